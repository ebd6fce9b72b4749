package server

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A gate lets so many requests in at once; others wait their turn, first come
// first served, and what finds too many waiting is turned away.
type gate struct {
	places chan struct{}
	most   int // that may wait

	mu      sync.Mutex
	waiting int
	typical time.Duration // how long a request takes, the last ones counting most
}

func newGate(concurrent, queue int) *gate {
	return &gate{places: make(chan struct{}, concurrent), most: queue}
}

// A fullError turns a request away.
type fullError struct {
	waiting int
	after   time.Duration
}

func (e *fullError) Error() string {
	return fmt.Sprintf("%d requests are waiting, and no more may; try again later", e.waiting)
}

// enter waits for a place, as long as ctx allows. Call leave.
func (g *gate) enter(ctx context.Context) (leave func(), err error) {
	select {
	case g.places <- struct{}{}:
		return g.leave(time.Now()), nil
	default:
	}
	if err := g.wait(); err != nil {
		return nil, err
	}
	defer g.add(-1)
	select {
	case g.places <- struct{}{}:
		return g.leave(time.Now()), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for a turn: %w", context.Cause(ctx))
	}
}

func (g *gate) wait() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting >= g.most {
		rounds := 1 + g.waiting/cap(g.places)
		return &fullError{g.waiting, min(max(time.Duration(rounds)*g.typical, time.Second), time.Minute)}
	}
	g.waiting++
	return nil
}

func (g *gate) add(n int) {
	g.mu.Lock()
	g.waiting += n
	g.mu.Unlock()
}

func (g *gate) leave(entered time.Time) func() {
	return func() {
		<-g.places
		g.mu.Lock()
		g.typical += (time.Since(entered) - g.typical) / 8
		g.mu.Unlock()
	}
}

// counts tells how many run and how many wait.
func (g *gate) counts() (running, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.places), g.waiting
}
