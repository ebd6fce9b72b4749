package mlx

import (
	"debug/macho"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// tooNew says why a payload's library must not be loaded on a system: dyld does
// not look at what a library was built for, and one for a newer macOS fails
// later, at the first function that is not there. MLX's files beside it count,
// the kernels too. system is a version of macOS; empty, nothing is too new.
func tooNew(library, system string) string {
	if system == "" {
		return ""
	}
	files, err := os.ReadDir(filepath.Dir(library))
	if err != nil {
		return "" // told by opening the library
	}
	for _, f := range files {
		if !strings.Contains(f.Name(), "mlx") {
			continue // somebody else's, where the folder is shared
		}
		needs := minimum(filepath.Join(filepath.Dir(library), f.Name()))
		if needs != "" && after(needs, system) {
			return fmt.Sprintf("%s is for macOS %s and later, this is %s", f.Name(), needs, system)
		}
	}
	return ""
}

// minimum is the oldest macOS that a Mach-O file, or a file of Metal's kernels,
// is for; empty where it doesn't say, or is neither.
func minimum(file string) string {
	if filepath.Ext(file) == ".metallib" {
		return metallibMinimum(file)
	}
	if fat, err := macho.OpenFat(file); err == nil {
		defer func() { _ = fat.Close() }() // only read
		for _, a := range fat.Arches {
			if a.Cpu == macho.CpuArm64 {
				return imageMinimum(a.File)
			}
		}
		return ""
	}
	f, err := macho.Open(file)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // only read
	return imageMinimum(f)
}

func imageMinimum(f *macho.File) string {
	const buildVersion = 0x32 // LC_BUILD_VERSION: cmd, size, platform, minos as xxxx.yy.zz
	for _, load := range f.Loads {
		raw := load.Raw()
		if len(raw) >= 16 && f.ByteOrder.Uint32(raw) == buildVersion {
			v := f.ByteOrder.Uint32(raw[12:])
			return fmt.Sprintf("%d.%d", v>>16, v>>8&0xff)
		}
	}
	return ""
}

// metallibMinimum reads the header of Metal's format: "MTLB", and at 0x0C the
// major and minor version as 16 bits each, little-endian.
func metallibMinimum(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // only read
	var head [16]byte
	if _, err := f.ReadAt(head[:], 0); err != nil || string(head[:4]) != "MTLB" {
		return ""
	}
	return fmt.Sprintf("%d.%d", binary.LittleEndian.Uint16(head[12:]), binary.LittleEndian.Uint16(head[14:]))
}

// after compares dotted versions by number; what is none counts as 0.
func after(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(as), len(bs)) {
		if x, y := part(as, i), part(bs, i); x != y {
			return x > y
		}
	}
	return false
}

func part(version []string, i int) int {
	if i >= len(version) {
		return 0
	}
	n, _ := strconv.Atoi(version[i])
	return n
}

// macOSVersion is the version of macOS by what the system says of itself and by
// its kernel's. To a program that was built with an older SDK the system says
// 10.16 or 16.0, whatever it is; the kernel always tells: Darwin 20 to 24 is macOS
// 11 to 15, Darwin 25 is macOS 26, and so on, with the same second number.
func macOSVersion(product, kernel string) string {
	if product != "" && product != "10.16" && !strings.HasPrefix(product, "16.") {
		return product
	}
	numbers := strings.Split(kernel, ".")
	switch major := part(numbers, 0); {
	case major >= 25:
		return fmt.Sprintf("%d.%d", major+1, part(numbers, 1))
	case major >= 20:
		return fmt.Sprintf("%d.%d", major-9, part(numbers, 1))
	}
	return product
}
