package pack

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"payload/internal/archive"
	"payload/internal/manifest"
	"payload/internal/run"
)

// debugForms are the archives of debug information.
var debugForms = map[string]form{
	"linux":  {"-debug.tar.zst", tarZstd},
	"darwin": {"-dSYM.tgz", archive.WriteTarGzip},
}

// KeepDebug has what lies below root become the archive of debug information.
// files say what of it is of which file; their ids are read here, and those of
// both have to be the same.
func (j *Job) KeepDebug(root string, files []manifest.Debugged) error {
	for i := range files {
		f := &files[i]
		var err error
		if f.IDs, err = manifest.BuildIDs(j.at(f.Path)); err != nil {
			return fmt.Errorf("reading %s: %w", f.Path, err)
		}
		ids, err := manifest.BuildIDs(filepath.Join(root, filepath.FromSlash(f.In)))
		switch {
		case err != nil:
			return fmt.Errorf("reading %s: %w", f.In, err)
		case len(ids) == 0 || !slices.Equal(ids, f.IDs):
			return fmt.Errorf("the debug information %s is of %v, and %s is %v", f.In, ids, f.Path, f.IDs)
		}
	}
	j.debugRoot, j.debug = root, &manifest.Debug{Name: j.Name() + debugForms[j.Group.System].ending, Files: files}
	j.Say("debug information of %d files goes to %s", len(files), j.debug.Name)
	return nil
}

// packDebug writes the archive of debug information, whose digest the manifest has.
func packDebug(ctx context.Context, j *Job) error {
	if j.debug == nil {
		return nil
	}
	items, err := archive.Items(j.debugRoot)
	if err != nil {
		return err
	}
	w, err := j.write(ctx, debugForms[j.Group.System], "debug", items)
	j.debug.SHA256, j.debug.Size = w.SHA256, w.Size
	return err
}

// splitDebug moves the debug information of ELF files into files of their own,
// which are found by build id. Symbols stay where they are: a crash report names
// functions.
func splitDebug(ctx context.Context, j *Job) error {
	files, err := manifest.Describe(j.Payload)
	if err != nil {
		return err
	}
	root := filepath.Join(j.Work, "debug")
	var split []manifest.Debugged
	for _, f := range files {
		if f.Link != "" || f.Arch == "" || !hasDebugInformation(j.at(f.Path)) {
			continue
		}
		ids, err := manifest.BuildIDs(j.at(f.Path))
		switch {
		case err != nil:
			return fmt.Errorf("reading %s: %w", f.Path, err)
		case len(ids) == 0:
			return fmt.Errorf("%s has debug information and no build id, by which a debugger would find it: link it with --build-id", f.Path)
		}
		// Debuggers look in .build-id of a folder that they are told.
		in := path.Join("lib/debug/.build-id", ids[0][:2], ids[0][2:]+".debug")
		if err := j.split(ctx, f, filepath.Join(root, filepath.FromSlash(in))); err != nil {
			return fmt.Errorf("taking debug information out of %s: %w", f.Path, err)
		}
		split = append(split, manifest.Debugged{Path: f.Path, In: in})
	}
	if len(split) == 0 {
		j.Say("no file has debug information")
		return nil
	}
	return j.KeepDebug(root, split)
}

func (j *Job) split(ctx context.Context, f manifest.File, out string) error {
	tool, err := objcopy(f.Arch)
	if err != nil {
		return err
	}
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
	return os.Rename(bare, file)
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

// hasDebugInformation says whether a file is ELF and has any.
func hasDebugInformation(file string) bool {
	f, err := elf.Open(file)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // only read
	return slices.ContainsFunc(f.Sections, func(s *elf.Section) bool {
		return strings.HasPrefix(s.Name, ".debug_") || strings.HasPrefix(s.Name, ".zdebug_")
	})
}
