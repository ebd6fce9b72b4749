package doctor

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"payload/internal/folder"
	"payload/internal/run"
)

// wheels is a kit of an SDK that its maker publishes in wheels. pip fetches
// them, with their digests required, and runs nothing of them.
type wheels struct {
	requirements []string // lines of a requirements file, each with a digest
	holds        string   // version of the tool that asks for the kit
	system       string   // GOOS/GOARCH that the digests are of
	folder       string   // in the wheels; becomes the kit
	driver       string   // a library of the driver that the SDK's maker leaves out
	driverHeader string   // declares what is in it
}

func (k wheels) usable() bool { return k.system == runtime.GOOS+"/"+runtime.GOARCH }

func (k wheels) version() string { return k.holds }

func (k wheels) words() string {
	var names []string
	for _, r := range k.requirements {
		name, _, _ := strings.Cut(r, " ")
		names = append(names, name)
	}
	return "the wheels " + strings.Join(names, ", ")
}

func (k wheels) fill(ctx context.Context, dir, temp string, w io.Writer) error {
	pip, err := command(ctx, "pip")
	if err != nil {
		return err
	}
	wanted, out := filepath.Join(temp, "wanted.txt"), filepath.Join(temp, "download")
	if err := os.WriteFile(wanted, []byte(strings.Join(k.requirements, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	args := slices.Concat(pip, []string{"download", "--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", wanted, "-d", out, "--progress-bar", "off"})
	env := []string{"TMPDIR=" + temp, "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_INPUT=1"}
	if _, err := run.Do(ctx, run.Cmd{Dir: temp, Args: args, Env: env, Stdout: w, Stderr: w}); err != nil {
		return err
	}
	files, err := folder.Glob(out, "*.whl")
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := unzip(ctx, f, k.folder+"/", dir); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(f), err)
		}
	}
	if err := linkLibraries(dir); err != nil {
		return err
	}
	return k.standIn(ctx, dir, temp)
}

// command is how a tool is run here.
func command(ctx context.Context, name string) ([]string, error) {
	findings, err := Look(ctx, []Need{{Name: name, For: "unpacking"}})
	if err != nil {
		return nil, err
	}
	if missing := Missing(findings); len(missing) > 0 {
		return nil, &MissingError{Missing: missing}
	}
	places, _, err := tools[name].places()
	for _, p := range places {
		if p.path == findings[0].Path {
			return p.args, err
		}
	}
	return nil, errors.Join(err, fmt.Errorf("%s has gone", name))
}

// unzip writes the files below a folder of an archive to dir.
func unzip(ctx context.Context, file, below, dir string) error {
	r, err := zip.OpenReader(file)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // only read
	for _, f := range r.File {
		name, ok := strings.CutPrefix(f.Name, below)
		if !ok || name == "" || strings.HasSuffix(name, "/") {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !filepath.IsLocal(filepath.FromSlash(name)) || !f.Mode().IsRegular() {
			return fmt.Errorf("%s is no plain file of it", f.Name)
		}
		if err := unzipOne(f, filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			return err
		}
	}
	return nil
}

func unzipOne(f *zip.File, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := f.Open()
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	mode := os.FileMode(0o644)
	if f.Mode()&0o100 != 0 {
		mode = 0o755
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// linkLibraries adds what wheels leave out and linkers look for: lib64, and
// each library's name without its version.
func linkLibraries(dir string) error {
	if err := os.Symlink("lib", filepath.Join(dir, "lib64")); err != nil {
		return err
	}
	libraries, err := folder.Glob(dir, "lib/lib*.so.*")
	if err != nil {
		return err
	}
	for _, l := range libraries {
		plain, _, _ := strings.Cut(l, ".so.")
		if err := os.Symlink(filepath.Base(l), plain+".so"); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

var functionName = regexp.MustCompile(`\bcu[A-Z]\w*`)

// standIn makes a library to link with in place of the driver's, which only a
// machine with the device has. It holds every name of the header, and runs
// nowhere: the loader takes the driver's.
func (k wheels) standIn(ctx context.Context, dir, temp string) error {
	header, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(k.driverHeader)))
	if err != nil {
		return err
	}
	names := functionName.FindAllString(string(header), -1)
	slices.Sort(names)
	var text strings.Builder
	for _, n := range slices.Compact(names) {
		fmt.Fprintf(&text, "void %s(void) {}\n", n)
	}
	source := filepath.Join(temp, "driver.c")
	if err := os.WriteFile(source, []byte(text.String()), 0o644); err != nil {
		return err
	}
	cc, err := command(ctx, "cc")
	if err != nil {
		return err
	}
	plain, _, _ := strings.Cut(k.driver, ".so")
	stubs := filepath.Join(dir, "lib", "stubs")
	if err := os.MkdirAll(stubs, 0o755); err != nil {
		return err
	}
	_, err = run.Do(ctx, run.Cmd{Args: slices.Concat(cc, []string{"-shared", "-fPIC", "-Wl,-soname," + k.driver, "-o", filepath.Join(stubs, plain+".so"), source})})
	return err
}
