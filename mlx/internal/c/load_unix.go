//go:build !windows

package c

import (
	"fmt"

	"github.com/ebitengine/purego"
)

func openLibrary(path string) (uintptr, error) {
	return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func lookUp(lib uintptr, name string) (uintptr, error) { return purego.Dlsym(lib, name) }

var pthreadSelf uintptr

func findThreadID() error {
	var err error
	if pthreadSelf, err = purego.Dlsym(purego.RTLD_DEFAULT, "pthread_self"); err != nil {
		return fmt.Errorf("finding pthread_self: %w", err)
	}
	return nil
}

// ThreadID tells threads of the system apart. It means something while the
// goroutine is locked to its thread.
func ThreadID() uintptr {
	id, _, _ := purego.SyscallN(pthreadSelf)
	return id
}
