package mlx

import (
	"sync/atomic"

	"payload/mlx/internal/c"
)

// Memory is what MLX's allocator and mapped arrays hold, in bytes.
type Memory struct {
	Active int64 // in arrays, those over mapped memory included
	Cache  int64 // freed and kept for reuse
	Peak   int64 // the most that was active since the start or ResetPeak, with what is mapped now
	Limit  int64 // where allocating waits for running work
}

// MemoryInUse asks the allocator.
func MemoryInUse() (Memory, error) {
	if err := Load(); err != nil {
		return Memory{}, err
	}
	var m Memory
	for _, q := range []struct {
		ask func(*uint64) error
		to  *int64
	}{
		{c.GetActiveMemory, &m.Active},
		{c.GetCacheMemory, &m.Cache},
		{c.GetPeakMemory, &m.Peak},
		{c.GetMemoryLimit, &m.Limit},
	} {
		var n uint64
		if err := q.ask(&n); err != nil {
			return Memory{}, wrap("MemoryInUse", err)
		}
		*q.to = int64(n)
	}
	m.Active += mapped.Load()
	m.Peak = max(m.Peak, highest.Load()) + mapped.Load()
	return m, nil
}

// SetCacheLimit bounds what is kept for reuse, and gives the limit before.
// On the processor MLX starts with 32 MiB, which holds less than a layer of
// most models.
func SetCacheLimit(bytes int64) (int64, error) {
	return setLimit("SetCacheLimit", c.SetCacheLimit, bytes)
}

// SetMemoryLimit bounds what arrays may take before allocating waits for
// running work, and gives the limit before.
func SetMemoryLimit(bytes int64) (int64, error) {
	return setLimit("SetMemoryLimit", c.SetMemoryLimit, bytes)
}

// SetWiredLimit bounds what is kept resident for an accelerator, and gives the
// limit before. On the processor it does nothing.
func SetWiredLimit(bytes int64) (int64, error) {
	return setLimit("SetWiredLimit", c.SetWiredLimit, bytes)
}

func setLimit(op string, set func(*uint64, uint64) error, bytes int64) (int64, error) {
	if err := Load(); err != nil {
		return 0, err
	}
	var before uint64
	err := set(&before, uint64(bytes))
	return int64(before), wrap(op, err)
}

// ClearCache gives what is kept for reuse back to the system.
func ClearCache() error {
	if err := Load(); err != nil {
		return err
	}
	return wrap("ClearCache", c.ClearCache())
}

// ResetPeak starts the count of Memory.Peak anew.
func ResetPeak() error {
	if err := Load(); err != nil {
		return err
	}
	highest.Store(0)
	return wrap("ResetPeak", c.ResetPeakMemory())
}

// highest is the peak before what PeakOf looks at.
var highest atomic.Int64

// PeakOf runs f and gives the most that was active meanwhile, as Memory.Peak
// would. That one goes on as if it had not been asked.
func PeakOf(f func() error) (int64, error) {
	before, err := MemoryInUse()
	if err != nil {
		return 0, err
	}
	highest.Store(before.Peak - mapped.Load())
	if err := wrap("PeakOf", c.ResetPeakMemory()); err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	var peak uint64
	err = wrap("PeakOf", c.GetPeakMemory(&peak))
	return int64(peak) + mapped.Load(), err
}
