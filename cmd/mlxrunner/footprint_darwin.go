package main

import (
	"os"

	"github.com/ebitengine/purego"
)

// footprint is what macOS counts against this process (phys_footprint), in
// bytes, which has what an accelerator holds too; 0 where it can't be told.
//
// It comes from proc_pid_rusage(pid, RUSAGE_INFO_V0, struct rusage_info_v0 *):
// a UUID of 16 bytes, then words of 8, of which the eighth is the footprint.
func footprint() int64 {
	lib, err := purego.Dlopen("/usr/lib/libSystem.B.dylib", purego.RTLD_LAZY)
	if err != nil {
		return 0
	}
	var usage func(pid, flavor int32, info *[12]uint64) int32
	purego.RegisterLibFunc(&usage, lib, "proc_pid_rusage")
	info := new([12]uint64)
	if usage(int32(os.Getpid()), 0, info) != 0 {
		return 0
	}
	return int64(info[9])
}
