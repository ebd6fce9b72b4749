//go:build mlxbench

package main

/*
#cgo linux LDFLAGS: -ldl
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

// The types of mlx-c, as its headers have them.
typedef struct { void* ctx; } mlx_array;

static size_t (*ndim)(mlx_array);
static int (*set)(mlx_array*, mlx_array);
static int (*set_float32)(mlx_array*, float);

// peer_open takes the functions from the library that the process has.
static int peer_open(const char* path) {
  void* lib = dlopen(path, RTLD_NOW);
  if (!lib) {
    return 1;
  }
  ndim = (size_t (*)(mlx_array))dlsym(lib, "mlx_array_ndim");
  set = (int (*)(mlx_array*, mlx_array))dlsym(lib, "mlx_array_set");
  set_float32 = (int (*)(mlx_array*, float))dlsym(lib, "mlx_array_set_float32");
  return !(ndim && set && set_float32);
}

static size_t peer_ndim(void* a) { return ndim((mlx_array){a}); }
static int peer_set(void** out, void* a) { return set((mlx_array*)out, (mlx_array){a}); }
static int peer_set_float32(void** out, float v) { return set_float32((mlx_array*)out, v); }
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// A peer makes the same calls through cgo.
type peer struct {
	array unsafe.Pointer
	out   unsafe.Pointer
}

func openPeer(path string, array uintptr) (*peer, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	if C.peer_open(name) != 0 {
		return nil, fmt.Errorf("opening %s through cgo", path)
	}
	// The address is C's own; it only passes through Go.
	return &peer{array: *(*unsafe.Pointer)(unsafe.Pointer(&array))}, nil
}

func (p *peer) ndim()       { C.peer_ndim(p.array) }
func (p *peer) set()        { C.peer_set(&p.out, p.array) }
func (p *peer) setFloat32() { C.peer_set_float32(&p.out, 1) }
