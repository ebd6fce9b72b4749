package mlx

import (
	"fmt"
	"runtime"

	"payload/mlx/internal/c"
)

// A DeviceKind is what a device is: the processor, or an accelerator.
type DeviceKind int32

// The kinds of devices.
const (
	KindCPU = DeviceKind(c.MLX_CPU)
	KindGPU = DeviceKind(c.MLX_GPU)
)

// A Device is where a stream runs.
type Device struct {
	Kind  DeviceKind
	Index int
}

// CPU and GPU are the first device of their kind.
var (
	CPU = Device{Kind: KindCPU}
	GPU = Device{Kind: KindGPU}
)

func (d Device) String() string {
	if d.Kind == KindGPU {
		return fmt.Sprintf("gpu:%d", d.Index)
	}
	return fmt.Sprintf("cpu:%d", d.Index)
}

// with gives f the device as C has it.
func (d Device) with(op string, f func(c.Device) error) error {
	if err := Load(); err != nil {
		return err
	}
	h, err := c.DeviceNewType(c.DeviceType(d.Kind), int32(d.Index))
	if err != nil {
		return wrap(op, err)
	}
	defer func() { _ = c.DeviceFree(h) }() // it can't fail
	return wrap(op, f(h))
}

// Available tells whether the library can use the device on this machine.
func (d Device) Available() (bool, error) {
	ok := false
	err := d.with("Available", func(h c.Device) error { return c.DeviceIsAvailable(&ok, h) })
	return ok, err
}

// Info gives what MLX knows of the device: name, architecture, sizes.
func (d Device) Info() (map[string]any, error) {
	out := map[string]any{}
	err := d.with("Info", func(h c.Device) error {
		info, err := c.DeviceInfoNew()
		if err != nil {
			return err
		}
		defer func() { _ = c.DeviceInfoFree(info) }() // it can't fail
		if err := c.DeviceInfoGet(&info, h); err != nil {
			return err
		}
		keys, err := infoKeys(info)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if out[key], err = infoValue(info, key); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

func infoKeys(info c.DeviceInfo) ([]string, error) {
	list, err := c.VectorStringNew()
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.VectorStringFree(list) }() // it can't fail
	if err := c.DeviceInfoGetKeys(&list, info); err != nil {
		return nil, err
	}
	keys := make([]string, c.VectorStringSize(list))
	for i := range keys {
		if err := c.VectorStringGet(&keys[i], list, uint64(i)); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func infoValue(info c.DeviceInfo, key string) (any, error) {
	var isText bool
	if err := c.DeviceInfoIsString(&isText, info, key); err != nil {
		return nil, err
	}
	if isText {
		var text string
		return text, c.DeviceInfoGetString(&text, info, key)
	}
	var size uint64
	err := c.DeviceInfoGetSize(&size, info, key)
	return size, err
}

// DefaultDevice gives the device that MLX prefers on this machine.
func DefaultDevice() (Device, error) {
	if err := Load(); err != nil {
		return Device{}, err
	}
	h, err := c.DeviceNew()
	if err != nil {
		return Device{}, wrap("DefaultDevice", err)
	}
	defer func() { _ = c.DeviceFree(h) }() // it can't fail
	if err := c.GetDefaultDevice(&h); err != nil {
		return Device{}, wrap("DefaultDevice", err)
	}
	var kind c.DeviceType
	var index int32
	if err := c.DeviceGetType(&kind, h); err != nil {
		return Device{}, wrap("DefaultDevice", err)
	}
	err = wrap("DefaultDevice", c.DeviceGetIndex(&index, h))
	return Device{Kind: DeviceKind(kind), Index: int(index)}, err
}

// A Stream is an order of work on a device, bound to the thread of the system
// that it was made on. MLX keeps the place of a stream for the life of the
// process, so make few.
type Stream struct {
	h      c.Stream
	host   c.Stream // for what only the processor does; made when first needed
	beside []*Stream
	device Device
	thread uintptr
}

// NewStream makes a stream on d for the thread that calls. The goroutine must
// be locked to its thread; mlx/mlxthread does all that.
func NewStream(d Device) (*Stream, error) {
	s := &Stream{device: d}
	err := d.with("NewStream", func(h c.Device) (err error) {
		s.thread = c.ThreadID()
		s.h, err = c.StreamNewDevice(h)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Device gives the device of the stream.
func (s *Stream) Device() Device { return s.device }

// SetDefault makes s the stream that MLX itself takes for its device on this
// thread, where an operation has none of its own.
func (s *Stream) SetDefault() error { return wrap("SetDefault", c.SetDefaultStream(s.h)) }

// Synchronize waits until all work of the stream, and of those beside it, is
// done.
func (s *Stream) Synchronize() error {
	for _, b := range s.beside {
		if err := b.Synchronize(); err != nil {
			return err
		}
	}
	return wrap("Synchronize", c.Synchronize(s.h))
}

// besides gives the n-th stream beside s, of the same device and thread.
func (s *Stream) besides(n int) (*Stream, error) {
	for len(s.beside) < n {
		b, err := NewStream(s.device)
		if err != nil {
			return nil, err
		}
		s.beside = append(s.beside, b)
	}
	return s.beside[n-1], nil
}

// cpu gives the stream for what only the processor does, such as reading
// files: s itself there, else MLX's own of this thread.
func (s *Stream) cpu() (c.Stream, error) {
	if s.device.Kind == KindCPU {
		return s.h, nil
	}
	var err error
	if s.host == 0 {
		s.host, err = c.DefaultCpuStreamNew()
	}
	return s.host, err
}

// Free gives up the handle. The stream must not be used after.
func (s *Stream) Free() {
	for _, b := range s.beside {
		b.Free()
	}
	for _, h := range []*c.Stream{&s.h, &s.host} {
		if *h != 0 {
			_ = c.StreamFree(*h) // it can't fail on a handle of its own
			*h = 0
		}
	}
}

// ClearStreams takes down what MLX holds for the streams of this thread, and
// its compiled functions. Arrays of those streams can't be evaluated after.
func ClearStreams() error {
	if err := Load(); err != nil {
		return err
	}
	return wrap("ClearStreams", c.ClearStreams())
}

// ThreadID tells threads of the system apart, for a goroutine locked to its
// own; 0 while no library is loaded.
func ThreadID() uintptr {
	if Load() != nil {
		return 0
	}
	return c.ThreadID()
}

// ReferenceBLAS tells whether products on the processor are those of the BLAS
// that MLX's packages for Linux bring: one thread, no blocks, and rows of a
// matrix several times slower than columns. It loads nothing.
func ReferenceBLAS() bool { return runtime.GOOS == "linux" && !c.OpenBLAS }
