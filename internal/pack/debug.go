package pack

import (
	"context"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"payload/internal/manifest"
	"payload/internal/run"
)

// debugEnding is the end of the name of the archive with debug information.
const debugEnding = "-debug.tar.zst"

// debugFile is debug information that was taken out of a file.
type debugFile struct {
	of      string // the file, in the payload
	buildID string
}

// debugRoot is what the archive of debug information holds: debuggers look in
// .build-id of a folder that they are told.
func (j *Job) debugRoot() string { return filepath.Join(j.Work, "debug") }

// splitDebug moves the debug information of ELF files into files of their own,
// which are found by build id. Symbols stay where they are: a crash report names
// functions.
func splitDebug(ctx context.Context, j *Job) error {
	files, err := manifest.Describe(j.Payload)
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.Link != "" || f.Arch == "" {
			continue
		}
		id, has, err := debugInformation(j.at(f.Path))
		switch {
		case err != nil:
			return fmt.Errorf("reading %s: %w", f.Path, err)
		case !has:
			continue
		case id == "":
			return fmt.Errorf("%s has debug information and no build id, by which a debugger would find it: link it with --build-id", f.Path)
		}
		if err := j.split(ctx, f, id); err != nil {
			return fmt.Errorf("taking debug information out of %s: %w", f.Path, err)
		}
	}
	if len(j.debug) == 0 {
		j.Say("no file has debug information")
	} else {
		j.Say("debug information of %d files goes to %s", len(j.debug), j.Name()+debugEnding)
	}
	return nil
}

func (j *Job) split(ctx context.Context, f manifest.File, id string) error {
	tool, err := objcopy(f.Arch)
	if err != nil {
		return err
	}
	out := filepath.Join(j.debugRoot(), "lib", "debug", ".build-id", id[:2], id[2:]+".debug")
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	file, bare := j.at(f.Path), j.at(f.Path)+".bare"
	for _, args := range [][]string{
		{tool, "--only-keep-debug", file, out},
		{tool, "--strip-debug", file, bare},
	} {
		if _, err := run.Do(ctx, run.Cmd{Args: args, Expendable: true}); err != nil {
			return err
		}
	}
	if err := os.Chmod(out, 0o644); err != nil {
		return err
	}
	if err := os.Rename(bare, file); err != nil {
		return err
	}
	j.debug = append(j.debug, debugFile{of: f.Path, buildID: id})
	return nil
}

// triples are the names by which binutils for another processor begin.
var triples = map[string]string{"amd64": "x86_64-linux-gnu-", "arm64": "aarch64-linux-gnu-"}

// objcopy is the program for files of an architecture.
func objcopy(arch string) (string, error) {
	names := []string{triples[arch] + "objcopy", "llvm-objcopy"}
	if arch == runtime.GOARCH {
		names = append([]string{"objcopy"}, names...)
	}
	for _, name := range names {
		if _, err := run.LookPath(name); err == nil {
			return name, nil
		}
	}
	_, err := run.LookPath(names[0])
	return "", err
}

// debugInformation says whether an ELF file has any, and its build id.
func debugInformation(file string) (id string, has bool, err error) {
	f, err := elf.Open(file)
	if err != nil {
		return "", false, nil //nolint:nilerr // not ELF, so nothing for this step
	}
	defer func() { _ = f.Close() }() // only read
	for _, s := range f.Sections {
		has = has || strings.HasPrefix(s.Name, ".debug_") || strings.HasPrefix(s.Name, ".zdebug_")
	}
	note := f.Section(".note.gnu.build-id")
	if !has || note == nil {
		return "", has, nil
	}
	data, err := note.Data()
	if err != nil {
		return "", has, err
	}
	// Sizes of name and description, type, the name "GNU\0", the id.
	const header = 16
	if len(data) < header+2 {
		return "", has, fmt.Errorf("its build id has %d bytes", len(data))
	}
	size := int(f.ByteOrder.Uint32(data[4:]))
	if size < 2 || header+size > len(data) {
		return "", has, fmt.Errorf("its build id says %d bytes", size)
	}
	return hex.EncodeToString(data[header : header+size]), has, nil
}
