package verify

import "golang.org/x/sys/unix"

func programCounter(tid int) (uint64, error) {
	var regs unix.PtraceRegsArm64
	err := unix.PtraceGetRegSetArm64(tid, 1, &regs) // NT_PRSTATUS
	return regs.Pc, err
}
