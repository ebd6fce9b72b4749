package verify

import "golang.org/x/sys/unix"

func programCounter(tid int) (uint64, error) {
	var regs unix.PtraceRegs
	err := unix.PtraceGetRegs(tid, &regs)
	return regs.Rip, err
}
