package source

import (
	"archive/zip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"payload/internal/config"
	"payload/internal/manifest"
	"payload/internal/testkit"
)

// wheel writes a zip file of names, each of which holds its own name; one that
// ends in "*" is executable, "a->b" is a link.
func wheel(t *testing.T, names ...string) (path, sum string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "x.whl")
	f, err := os.Create(path)
	must(t, err)
	w := zip.NewWriter(f)
	for _, name := range names {
		h := &zip.FileHeader{Name: name}
		text, target, link := strings.Cut(name, "->")
		switch {
		case link:
			h.Name = text
			h.SetMode(os.ModeSymlink | 0o777)
			text = target
		case strings.HasSuffix(name, "*"):
			h.Name = strings.TrimSuffix(name, "*")
			h.SetMode(0o755)
		default:
			h.SetMode(0o644)
		}
		b, err := w.CreateHeader(h)
		must(t, err)
		_, err = b.Write([]byte(text))
		must(t, err)
	}
	must(t, w.Close())
	must(t, f.Close())
	sum, err = manifest.Digest(path)
	must(t, err)
	return path, sum
}

// What somebody compiled comes from pip for whatever machine, is kept like a
// source, and needs neither git nor a lock.
func TestFiles(t *testing.T) {
	path, sum := wheel(t, "x/lib/libx.so*", "x/include/x.h", "x-1.2.dist-info/METADATA", "x/lib/alias->libx.so")
	log := filepath.Join(t.TempDir(), "log")
	t.Setenv("PIP_FAKE_LOG", log)
	t.Setenv("PIP_FAKE_SDIST", path)
	testkit.Fake(t, "pip", fakePip)
	m := config.Mirror{Ref: "v1.2", PyPI: "x==1.2", Platform: "manylinux_2_35_x86_64", SHA256: sum}
	req, voice := request(t, t.TempDir())
	s := openStore(t)
	tree, err := s.Files(t.Context(), req, "x.prebuilt", m)
	must(t, err)
	defer tree.Close()
	if tree.From != "pypi:x==1.2/manylinux_2_35_x86_64" || tree.Ref != "v1.2" || tree.Stored {
		t.Errorf("got %+v", tree)
	}
	voice.has(t, "reading pypi:x==1.2/manylinux_2_35_x86_64")
	for name, mode := range map[string]os.FileMode{"x/lib/libx.so": 0o555, "x/include/x.h": 0o444} {
		if info, err := os.Stat(filepath.Join(tree.Path, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if target, err := os.Readlink(filepath.Join(tree.Path, "x/lib/alias")); err != nil || target != "libx.so" {
		t.Errorf("the link leads to %q, %v", target, err)
	}
	asked, err := os.ReadFile(log)
	must(t, err)
	for _, words := range []string{"--only-binary\n:all:\n", "--platform\nmanylinux_2_35_x86_64\n", "--require-hashes\n", "--no-deps\n"} {
		if !strings.Contains(string(asked), words) {
			t.Errorf("pip was asked without %q:\n%s", words, asked)
		}
	}
	// A snapshot stands for sources at a ref, which this is not.
	if _, ok, err := s.tree(t.Context(), snapshotRef("v1.2")); ok || err != nil {
		t.Errorf("a snapshot was made: %v", err)
	}

	again, err := s.Files(t.Context(), req, "x.prebuilt", m)
	must(t, err)
	defer again.Close()
	if !again.Stored || again.Path != tree.Path {
		t.Errorf("again %+v", again)
	}

	m.SHA256 = strings.Repeat("0", 64)
	if _, err := s.Files(t.Context(), req, "x.prebuilt", m); !errors.As(err, new(*DigestError)) {
		t.Errorf("another file gives %v", err)
	}
	req.Kinds = []Kind{FromGit}
	if _, err := s.Files(t.Context(), req, "x.prebuilt", m); !errors.As(err, new(*NoSourceError)) {
		t.Errorf("from git alone: %v", err)
	}
}

func TestUnzipRefuses(t *testing.T) {
	for name, why := range map[string]string{"../evil": "leads outside", "/evil": "leads outside", "l->../../evil": "leads outside", "l->/etc/passwd": "leads outside"} {
		path, _ := wheel(t, "a/b", name)
		dir := filepath.Join(t.TempDir(), "out", "dir")
		must(t, os.Mkdir(filepath.Dir(dir), 0o755))
		err := unpack(t.Context(), path, "", false, dir)
		if !errors.As(err, new(*RefusedError)) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: got %v", name, err)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s: something was written", name)
		}
	}
}
