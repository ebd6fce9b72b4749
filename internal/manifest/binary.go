package manifest

import (
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"github.com/hashicorp/go-version"

	"payload/internal/machofile"
)

// Inspect tells the architecture and floor of an ELF, Mach-O or PE file of size
// bytes; both are empty for anything else, a damaged binary included. Those of a
// universal file are joined by "+".
func Inspect(r io.ReaderAt, size int64) (string, *Floor) {
	var magic [4]byte
	if _, err := r.ReadAt(magic[:], 0); err != nil {
		return "", nil
	}
	if string(magic[:]) == elf.ELFMAG {
		f, err := elf.NewFile(r)
		if err != nil {
			return "", nil
		}
		defer func() { _ = f.Close() }()
		return ELFArch(f.Machine), elfFloor(f)
	}
	if images := MachO(r, size); len(images) > 0 {
		var archs []string
		floor := &Floor{}
		for _, f := range images {
			archs = append(archs, machoArch(f.Cpu))
			floor.MacOS = newer(floor.MacOS, machoMinimum(f))
		}
		return strings.Join(archs, "+"), orNil(floor)
	}
	if IsPE(r) {
		if f, err := pe.NewFile(r); err == nil {
			return peArch(f.Machine), nil
		}
	}
	return "", nil
}

// MachO gives the images of a Mach-O file of size bytes, several of a universal
// one; none for anything else, a damaged file included.
func MachO(r io.ReaderAt, size int64) []*macho.File {
	list, err := machofile.Slices(r, size)
	if err != nil {
		return nil
	}
	var images []*macho.File
	for _, s := range list {
		f, err := macho.NewFile(io.NewSectionReader(r, s.Offset, s.Size))
		if err != nil {
			return nil
		}
		images = append(images, f)
	}
	return images
}

// IsPE says whether a file begins as a program or library for Windows does: a
// program for DOS that says where the other one begins.
func IsPE(r io.ReaderAt) bool {
	var head [0x40]byte
	if _, err := r.ReadAt(head[:], 0); err != nil || string(head[:2]) != "MZ" {
		return false
	}
	var magic [4]byte
	_, err := r.ReadAt(magic[:], int64(binary.LittleEndian.Uint32(head[0x3c:])))
	return err == nil && string(magic[:]) == "PE\x00\x00"
}

func peArch(machine uint16) string {
	switch machine {
	case pe.IMAGE_FILE_MACHINE_AMD64:
		return "amd64"
	case pe.IMAGE_FILE_MACHINE_ARM64:
		return "arm64"
	case pe.IMAGE_FILE_MACHINE_I386:
		return "386"
	}
	return fmt.Sprintf("machine %#x", machine)
}

// ELFArch is an ELF machine in Go's words, or the ELF constant's name for one
// that Go has no word for.
func ELFArch(m elf.Machine) string {
	switch m {
	case elf.EM_X86_64:
		return "amd64"
	case elf.EM_AARCH64:
		return "arm64"
	case elf.EM_386:
		return "386"
	case elf.EM_ARM:
		return "arm"
	case elf.EM_RISCV:
		return "riscv64"
	case elf.EM_PPC64:
		return "ppc64"
	case elf.EM_S390:
		return "s390x"
	}
	return m.String()
}

func machoArch(c macho.Cpu) string {
	switch c {
	case macho.CpuAmd64:
		return "amd64"
	case macho.CpuArm64:
		return "arm64"
	}
	return strings.ToLower(c.String())
}

// elfFloor is the highest version of each library that the file asks for.
func elfFloor(f *elf.File) *Floor {
	needs, err := f.DynamicVersionNeeds()
	if err != nil {
		return nil
	}
	floor := &Floor{}
	for _, lib := range needs {
		for _, need := range lib.Needs {
			floor.Glibc = newer(floor.Glibc, GlibcOf(need.Dep))
			if v, ok := strings.CutPrefix(need.Dep, "GLIBCXX_"); ok {
				floor.Glibcxx = newer(floor.Glibcxx, v)
			}
		}
	}
	return orNil(floor)
}

// GlibcOf is the version of glibc that a symbol version asks for: "2.34" of
// "GLIBC_2.34"; empty for one of another library.
func GlibcOf(symbolVersion string) string {
	v, ok := strings.CutPrefix(symbolVersion, "GLIBC_")
	switch {
	case !ok:
		return ""
	case v == "ABI_DT_RELR": // packed relocations, which older loaders pass over
		return "2.36"
	}
	return v
}

// Load commands that debug/macho does not decode.
const (
	lcVersionMinMacOS = 0x24
	lcBuildVersion    = 0x32
	lcUUID            = 0x1b
)

func machoMinimum(f *macho.File) string {
	for _, load := range f.Loads {
		raw := load.Raw()
		if len(raw) < 16 {
			continue
		}
		switch f.ByteOrder.Uint32(raw) {
		case lcBuildVersion: // cmd, size, platform, minos
			return machoVersion(f.ByteOrder, raw[12:])
		case lcVersionMinMacOS: // cmd, size, version
			return machoVersion(f.ByteOrder, raw[8:])
		}
	}
	return ""
}

// machoVersion decodes xxxx.yy.zz in nibbles; a zero patch level is left out.
func machoVersion(order binary.ByteOrder, raw []byte) string {
	v := order.Uint32(raw)
	if v&0xff == 0 {
		return fmt.Sprintf("%d.%d", v>>16, v>>8&0xff)
	}
	return fmt.Sprintf("%d.%d.%d", v>>16, v>>8&0xff, v&0xff)
}

// newer is the higher of two dotted versions; what is no version (PRIVATE)
// never wins.
func newer(a, b string) string {
	vb, err := version.NewVersion(b)
	if err != nil {
		return a
	}
	va, err := version.NewVersion(a)
	if err != nil || vb.GreaterThan(va) {
		return b
	}
	return a
}

// Raise lifts f to other, field by field: the floor of both together.
func (f *Floor) Raise(other *Floor) {
	if other == nil {
		return
	}
	f.Glibc = newer(f.Glibc, other.Glibc)
	f.Glibcxx = newer(f.Glibcxx, other.Glibcxx)
	f.MacOS = newer(f.MacOS, other.MacOS)
}

func orNil(f *Floor) *Floor {
	if *f == (Floor{}) {
		return nil
	}
	return f
}
