package source

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"payload/internal/config"
	"payload/internal/run"
	"payload/internal/testkit"
)

// fakePip answers as pip does: it compares the digest that the requirements
// file asks for and copies $FAKE_SDIST. What it was asked goes to $FAKE_LOG.
const fakePip = `
if [ "$1" = --version ]; then echo "pip 24.0 from /somewhere (python 3.11)"; exit 0; fi
printf '%s\n' "$@" >> "$PIP_FAKE_LOG"
while [ $# -gt 0 ]; do
  case "$1" in
    -r) wanted=$2; shift ;;
    -d) out=$2; shift ;;
  esac
  shift
done
want=$(sed 's/.*sha256://' "$wanted")
got=$(sha256sum "$PIP_FAKE_SDIST" | cut -d' ' -f1)
if [ "$want" != "$got" ]; then
  echo "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE." >&2
  echo "        Expected sha256 $want" >&2
  echo "             Got        $got" >&2
  exit 1
fi
mkdir -p "$out"
cp "$PIP_FAKE_SDIST" "$out/comp-1.2.tar.gz"
`

func TestPyPI(t *testing.T) {
	path, sum := archive(t)
	log := filepath.Join(t.TempDir(), "log")
	t.Setenv("PIP_FAKE_LOG", log)
	t.Setenv("PIP_FAKE_SDIST", path)
	testkit.Fake(t, "pip", fakePip)
	mirror := config.Mirror{Ref: "b7", PyPI: "comp==1.2", Path: "vendor/x", SHA256: sum}
	req, voice := request(t, t.TempDir(), mirror)
	s := openStore(t)
	tree := get(t, s, req)
	assertHard(t, tree.Path)
	if tree.From != "pypi:comp==1.2" || tree.Stored {
		t.Errorf("got %+v", tree)
	}
	voice.has(t, "reading pypi:comp==1.2")
	asked, err := os.ReadFile(log)
	must(t, err)
	for _, word := range []string{"download\n", "--require-hashes\n", "--no-deps\n", "--no-binary\ncomp\n"} {
		if !strings.Contains(string(asked), word) {
			t.Errorf("pip was asked without %q:\n%s", word, asked)
		}
	}
	get(t, s, req)
	if again, err := os.ReadFile(log); err != nil || len(again) != len(asked) {
		t.Errorf("pip was asked again: %v", err)
	}

	mirror.SHA256 = strings.Repeat("0", 64)
	req.Component.Mirrors = []config.Mirror{mirror}
	_, err = s.Tree(t.Context(), req)
	var wrong *DigestError
	if !errors.As(err, &wrong) || wrong.Want != mirror.SHA256 || wrong.Got != sum {
		t.Errorf("a wrong digest: %v", err)
	}
}

// A client that doesn't compare doesn't get anything past us.
func TestPyPIDigestIsComparedHereToo(t *testing.T) {
	path, sum := archive(t)
	t.Setenv("PIP_FAKE_LOG", os.DevNull)
	t.Setenv("PIP_FAKE_SDIST", path)
	testkit.Fake(t, "pip", strings.Replace(fakePip, `"$want" != "$got"`, `a = b`, 1))
	req, _ := request(t, t.TempDir(), config.Mirror{Ref: "b7", PyPI: "comp==1.2", Path: "vendor/x", SHA256: strings.Repeat("0", 64)})
	_, err := openStore(t).Tree(t.Context(), req)
	var wrong *DigestError
	if !errors.As(err, &wrong) || wrong.Got != sum {
		t.Errorf("got %v", err)
	}
}

func TestPyPIWithoutThePackage(t *testing.T) {
	testkit.Fake(t, "pip", `
if [ "$1" = --version ]; then echo "pip 24.0"; exit 0; fi
echo "ERROR: No matching distribution found for comp==1.2" >&2; exit 1`)
	req, voice := request(t, t.TempDir(), config.Mirror{Ref: "b7", PyPI: "comp==1.2", SHA256: strings.Repeat("0", 64)})
	_, err := openStore(t).Tree(t.Context(), req)
	var none *NoSourceError
	if !errors.As(err, &none) || !errors.Is(err, run.ErrNoPackage) {
		t.Errorf("got %v", err)
	}
	voice.has(t, "pypi:comp==1.2 passed over")
}

// fakeCargo puts $CARGO_FAKE_CRATE into cargo's cache.
const fakeCargo = `
if [ "$1" = --version ]; then echo "cargo $CARGO_FAKE_VERSION (abc 2026-01-01)"; exit 0; fi
cat Cargo.toml >> "$CARGO_FAKE_LOG"
mkdir -p "$CARGO_HOME/registry/cache/index-123"
cp "$CARGO_FAKE_CRATE" "$CARGO_HOME/registry/cache/index-123/comp-sys-1.2.0.crate"
`

func TestCrate(t *testing.T) {
	path, sum := archive(t)
	log := filepath.Join(t.TempDir(), "log")
	t.Setenv("CARGO_FAKE_LOG", log)
	t.Setenv("CARGO_FAKE_CRATE", path)
	t.Setenv("CARGO_FAKE_VERSION", "1.85.0")
	t.Setenv("CARGO_HOME", t.TempDir())
	testkit.Fake(t, "cargo", fakeCargo)
	mirror := config.Mirror{Ref: "b7", Crate: "comp-sys==1.2.0", Path: "vendor/x", SHA256: sum}
	req, _ := request(t, t.TempDir(), mirror)
	tree := get(t, openStore(t), req)
	assertHard(t, tree.Path)
	if tree.From != "crate:comp-sys==1.2.0" {
		t.Errorf("got %+v", tree)
	}
	asked, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(asked), `comp-sys = { version = "=1.2.0"`) {
		t.Errorf("cargo was asked %q, %v", asked, err)
	}

	// What cargo has already isn't fetched, and is compared all the same.
	t.Setenv("CARGO_FAKE_LOG", filepath.Join(t.TempDir(), "none"))
	get(t, openStore(t), req)
	if _, err := os.Stat(os.Getenv("CARGO_FAKE_LOG")); err == nil {
		t.Error("cargo was asked again")
	}
	mirror.SHA256 = strings.Repeat("0", 64)
	req.Component.Mirrors = []config.Mirror{mirror}
	_, err = openStore(t).Tree(t.Context(), req)
	var wrong *DigestError
	if !errors.As(err, &wrong) || wrong.Got != sum || wrong.Want != mirror.SHA256 {
		t.Errorf("a wrong digest: %v", err)
	}
}

func TestNoClientIsGoodEnough(t *testing.T) {
	t.Setenv("CARGO_HOME", t.TempDir())
	testkit.Fake(t, "cargo", `echo "cargo 1.65.0"`)
	req, _ := request(t, t.TempDir(), config.Mirror{Ref: "b7", Crate: "comp-sys==1.2.0", SHA256: strings.Repeat("0", 64)})
	_, err := openStore(t).Tree(t.Context(), req)
	var missing *run.MissingError
	if !errors.As(err, &missing) || missing.Tool != "cargo" {
		t.Fatalf("got %v", err)
	}
	if !strings.Contains(err.Error(), "cargo is 1.65.0, older than 1.70") {
		t.Errorf("%v does not say why", err)
	}
}
