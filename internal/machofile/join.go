package machofile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
)

// Input is an image that goes into a universal file.
type Input struct {
	Slice // of which CPU and Size are read
	From  io.ReaderAt
}

// place gives each image its offset, and says whether the table has to be of
// the kind with 64-bit offsets. The order and the alignment are those of LLVM's
// lipo, which follows Apple's: arm64 after all others, 16 KiB for it and 4 KiB
// for x86.
func place(inputs []Input) (wide bool) {
	slices.SortStableFunc(inputs, func(a, b Input) int {
		if (a.CPU == CPUArm64) != (b.CPU == CPUArm64) {
			if a.CPU == CPUArm64 {
				return 1
			}
			return -1
		}
		return int(int64(a.CPU) - int64(b.CPU))
	})
	for _, wide := range []bool{false, true} {
		at := int64(8 + entrySize(wide)*len(inputs))
		for i := range inputs {
			in := &inputs[i]
			in.Align = 14
			if in.CPU == CPUAmd64 {
				in.Align = 12
			}
			unit := int64(1) << in.Align
			in.Offset = (at + unit - 1) / unit * unit
			at = in.Offset + in.Size
		}
		if at <= math.MaxUint32 {
			return wide
		}
	}
	return true
}

// Join writes a universal file of thin images and says where they lie. A CPU
// twice is refused.
func Join(w io.Writer, inputs []Input) ([]Slice, error) {
	for i, in := range inputs {
		if slices.ContainsFunc(inputs[:i], func(other Input) bool { return sameCPU(other.Slice, in.Slice) }) {
			return nil, fmt.Errorf("two images are for %s", in.Arch())
		}
	}
	inputs = slices.Clone(inputs)
	wide := place(inputs)
	be := binary.BigEndian
	magic := uint32(magicFat)
	if wide {
		magic = magicFat64
	}
	head := be.AppendUint32(be.AppendUint32(nil, magic), uint32(len(inputs)))
	var out []Slice
	for _, in := range inputs {
		head = be.AppendUint32(be.AppendUint32(head, in.CPU), in.SubCPU)
		if wide {
			head = be.AppendUint64(be.AppendUint64(head, uint64(in.Offset)), uint64(in.Size))
			head = be.AppendUint32(be.AppendUint32(head, in.Align), 0)
		} else {
			head = be.AppendUint32(be.AppendUint32(be.AppendUint32(head, uint32(in.Offset)), uint32(in.Size)), in.Align)
		}
		out = append(out, in.Slice)
	}
	if _, err := w.Write(head); err != nil {
		return nil, err
	}
	at := int64(len(head))
	for _, in := range inputs {
		if _, err := w.Write(make([]byte, in.Offset-at)); err != nil {
			return nil, err
		}
		n, err := io.Copy(w, io.NewSectionReader(in.From, 0, in.Size))
		if err == nil && n != in.Size {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		at = in.Offset + n
	}
	return out, nil
}

// JoinThin makes a universal file's content of thin images; of one it is the
// image itself.
func JoinThin(images [][]byte) ([]byte, error) {
	if len(images) == 1 {
		return images[0], nil
	}
	var inputs []Input
	for _, data := range images {
		m, err := Thin(data)
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, Input{Slice: m.Slice(), From: bytes.NewReader(data)})
	}
	var out bytes.Buffer
	_, err := Join(&out, inputs)
	return out.Bytes(), err
}
