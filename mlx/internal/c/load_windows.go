package c

import (
	"syscall"
	"unsafe"
)

// What loads the library's own folder before the others in the search for
// the libraries that it needs (LOAD_WITH_ALTERED_SEARCH_PATH).
const alteredSearchPath = 0x8

var (
	kernel             = syscall.NewLazyDLL("kernel32.dll")
	loadLibraryEx      = kernel.NewProc("LoadLibraryExW")
	getCurrentThreadID = kernel.NewProc("GetCurrentThreadId")
)

func openLibrary(path string) (uintptr, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return 0, err
	}
	lib, _, err := loadLibraryEx.Call(uintptr(unsafe.Pointer(name)), 0, alteredSearchPath)
	if lib == 0 {
		return 0, err
	}
	return lib, nil
}

func lookUp(lib uintptr, name string) (uintptr, error) {
	return syscall.GetProcAddress(syscall.Handle(lib), name)
}

func findThreadID() error { return getCurrentThreadID.Find() }

// ThreadID tells threads of the system apart. It means something while the
// goroutine is locked to its thread.
func ThreadID() uintptr {
	id, _, _ := getCurrentThreadID.Call()
	return id
}
