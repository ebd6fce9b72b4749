package mlx

import (
	"sync"

	"github.com/ebitengine/purego"
)

// A registry keeps Go values that C holds by number.
type registry[T any] struct {
	mu   sync.Mutex
	last uintptr
	held map[uintptr]T
}

func (r *registry[T]) add(v T) uintptr {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == nil {
		r.held = map[uintptr]T{}
	}
	r.last++
	r.held[r.last] = v
	return r.last
}

func (r *registry[T]) get(id uintptr) (T, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.held[id]
	return v, ok
}

func (r *registry[T]) take(id uintptr) (T, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.held[id]
	delete(r.held, id)
	return v, ok
}

// What Mapped must call when MLX is done with the memory.
var releases registry[func()]

// Callbacks of C are made once each: a process can have a limited number, and
// they are never freed.
var releaseAddress = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(id uintptr) uintptr {
		if release, ok := releases.take(id); ok && release != nil {
			release()
		}
		return 0
	})
})
