package build

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"payload/internal/atomicfile"
	"payload/internal/codesign"
	"payload/internal/config"
	"payload/internal/folder"
	"payload/internal/machofile"
	"payload/internal/run"
)

// appleArch are Apple's names of processors, in Go's words.
var appleArch = map[string]string{"arm64": "arm64", "x86_64": "amd64"}

// target is the system and processor that the preset is for, in Go's words.
func (j *job) target() (goos, goarch string, err error) {
	if !j.cross {
		return runtime.GOOS, runtime.GOARCH, nil
	}
	arch := j.preset.Cache["CMAKE_OSX_ARCHITECTURES"].Value
	if goarch = appleArch[arch]; goarch == "" {
		return "", "", fmt.Errorf("preset %s is for the processors %q, and a program is built for one of arm64 and x86_64", j.preset.Name, arch)
	}
	return j.preset.Vendor.Cross.System, goarch, nil
}

// programName is the file of a program, beside the backends' folders.
func (j *job) programName(p config.Program) string {
	name := path.Base(p.Package)
	if goos, _, err := j.target(); err == nil && goos == "windows" {
		name += ".exe"
	}
	return name
}

// programs builds the repository's own programs that use what was staged, into
// lib. They need no C compiler, so they are built for any system on any.
func (j *job) programs(ctx context.Context, lib string) error {
	for _, p := range j.pinned {
		for _, own := range p.Component.Programs {
			goos, goarch, err := j.target()
			if err != nil {
				return fmt.Errorf("staging %s: %w", own.Package, err)
			}
			out := filepath.Join(lib, j.programName(own))
			archs := []string{goarch}
			if own.Universal && goos == "darwin" {
				archs = []string{"amd64", "arm64"}
			}
			info, err := j.compileProgram(ctx, own, goos, archs, out)
			if err != nil {
				return fmt.Errorf("staging %s for %s/%s: %w", own.Package, goos, strings.Join(archs, "+"), err)
			}
			j.compiledBy = info.GoVersion
			if err := j.programLicences(ctx, own, info, lib); err != nil {
				return fmt.Errorf("staging %s: collecting licences: %w", own.Package, err)
			}
			j.v.Say("%s for %s/%s, by %s", filepath.Base(out), goos, strings.Join(archs, "+"), info.GoVersion)
		}
	}
	return nil
}

// compileProgram builds a program for each architecture, of which macOS alone
// has several, and makes one file of them. It tells how the last was built.
func (j *job) compileProgram(ctx context.Context, own config.Program, goos string, archs []string, out string) (*buildinfo.BuildInfo, error) {
	var info *buildinfo.BuildInfo
	var images [][]byte
	for _, arch := range archs {
		_, err := run.Do(ctx, run.Cmd{
			Dir: j.w.File.Root,
			// The same sources give the same bytes wherever they lie.
			Args: []string{"go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out, "./" + path.Clean(own.Package)},
			Env:  []string{"CGO_ENABLED=0", "GOOS=" + goos, "GOARCH=" + arch, "GOFLAGS="},
		})
		if err != nil {
			return nil, err
		}
		if info, err = buildinfo.ReadFile(out); err != nil {
			return nil, err
		}
		if goos != "darwin" {
			return info, nil
		}
		image, err := os.ReadFile(out)
		if err != nil {
			return nil, err
		}
		images = append(images, image)
	}
	data, err := machofile.JoinThin(images)
	if err != nil {
		return nil, err
	}
	// Go signs for Apple silicon alone.
	if data, err = codesign.Bytes(ctx, data, codesign.Identifier("", out), nil, codesign.Options{}); err != nil {
		return nil, err
	}
	return info, atomicfile.Write(out, data, 0o755)
}

// licenceNames are the files in which modules keep what they are licensed under.
var licenceNames = []string{"LICENSE*", "LICENCE*", "COPYING*", "NOTICE*"}

// programLicences puts the licences of what is linked into a program beside it:
// of each module, and of Go itself.
func (j *job) programLicences(ctx context.Context, own config.Program, info *buildinfo.BuildInfo, lib string) error {
	to := filepath.Join(lib, "licenses", path.Base(own.Package))
	res, err := run.Do(ctx, run.Cmd{Dir: j.w.File.Root, Args: []string{"go", "env", "GOROOT"}})
	if err != nil {
		return err
	}
	if err := copyLicences(strings.TrimSpace(string(res.Stdout)), filepath.Join(to, "go")); err != nil {
		return err
	}
	if len(info.Deps) == 0 {
		return nil
	}
	args := []string{"go", "mod", "download", "-json"}
	for _, m := range info.Deps {
		args = append(args, m.Path+"@"+m.Version)
	}
	if res, err = run.Do(ctx, run.Cmd{Dir: j.w.File.Root, Args: args}); err != nil {
		return err
	}
	answers := json.NewDecoder(bytes.NewReader(res.Stdout))
	for range info.Deps {
		var found struct{ Path, Dir string }
		if err := answers.Decode(&found); err != nil {
			return fmt.Errorf("reading where modules lie: %w", err)
		}
		if err := copyLicences(found.Dir, filepath.Join(to, strings.ReplaceAll(found.Path, "/", "_"))); err != nil {
			return err
		}
	}
	return nil
}

// copyLicences copies the licences in a folder; one without any is an error.
func copyLicences(from, to string) error {
	found := 0
	for _, pattern := range licenceNames {
		files, err := folder.Glob(from, pattern)
		if err != nil {
			return err
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			if err := os.MkdirAll(to, 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(to, filepath.Base(f)), text, 0o644); err != nil {
				return err
			}
			found++
		}
	}
	if found == 0 {
		return fmt.Errorf("%s has none", from)
	}
	return nil
}
