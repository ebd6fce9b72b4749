//go:build unix

package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"payload/internal/testkit"
)

func one(t *testing.T, n Need) Finding {
	t.Helper()
	found, err := Look(t.Context(), []Need{n})
	if err != nil {
		t.Fatal(err)
	}
	return found[0]
}

func TestLook(t *testing.T) {
	testkit.Fake(t, "cmake", `echo "cmake version 3.20.1"`)
	f := one(t, Need{Name: "cmake", For: "preset x"})
	if f.OK || f.Problem != "version 3.20.1 is too old, 3.21 is needed" {
		t.Errorf("%+v", f)
	}
	testkit.Fake(t, "cmake", `echo "cmake version 3.25.1"`)
	if f := one(t, Need{Name: "cmake", For: "preset x"}); !f.OK || f.Found != "3.25.1" {
		t.Errorf("%+v", f)
	}
	// A preset may ask for more than the table.
	if f := one(t, Need{Name: "cmake", Min: "3.26", For: "preset x"}); f.OK || f.Min != "3.26" {
		t.Errorf("%+v", f)
	}
	// 3.9 is older than 3.21, whatever letters say.
	testkit.Fake(t, "cmake", `echo "cmake version 3.9.0"`)
	if f := one(t, Need{Name: "cmake"}); f.OK {
		t.Errorf("%+v", f)
	}
	testkit.Fake(t, "cmake", `exit 1`)
	if f := one(t, Need{Name: "cmake"}); f.OK || !strings.Contains(f.Problem, "does not run") {
		t.Errorf("%+v", f)
	}
}

// A tool is there when any of the commands that sources try works.
func TestAnyCommandWillDo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	testkit.Fake(t, "python3", `echo "No module named pip" >&2; exit 1`)
	f := one(t, Need{Name: "pip"})
	if f.OK || f.Problem != "python3 -m pip does not run: python3: exit status 1: No module named pip" {
		t.Errorf("Python without pip: %+v", f)
	}
	testkit.Fake(t, "pip3", `echo "pip 24.1 from /somewhere (python 3.11)"`)
	if f = one(t, Need{Name: "pip"}); !f.OK || f.Found != "24.1" || filepath.Base(f.Path) != "pip3" {
		t.Errorf("pip3 alone: %+v", f)
	}
	testkit.Fake(t, "pip", `echo "pip 9.0 from /somewhere (python 2.7)"`)
	if f = one(t, Need{Name: "pip"}); !f.OK || f.Found != "24.1" {
		t.Errorf("an old pip before it: %+v", f)
	}
}

// What doctor asks for is what reading a mirror asks for.
func TestClientsAreThoseOfSources(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	testkit.Fake(t, "cargo", `echo "cargo 1.69.0"`)
	if f := one(t, Need{Name: "cargo"}); f.OK || f.Problem != "version 1.69.0 is too old, 1.70 is needed" || f.Found != "1.69.0" {
		t.Errorf("%+v", f)
	}
	testkit.Fake(t, "cargo", `echo "cargo 1.70.0"`)
	if f := one(t, Need{Name: "cargo"}); !f.OK {
		t.Errorf("%+v", f)
	}
}

func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	found, err := Look(t.Context(), []Need{
		{Name: "ninja", For: "preset a"}, {Name: "ninja", Min: "1.11", For: "preset b"}, {Name: "ccache", Optional: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 2 || found[0].Min != "1.11" || found[0].For != "preset b" {
		t.Errorf("needs of one name are not merged: %+v", found)
	}
	missing := Missing(found)
	if len(missing) != 1 || missing[0].Name != "ninja" {
		t.Errorf("%+v", missing)
	}
	text := (&MissingError{Missing: missing}).Error()
	if !strings.Contains(text, "ninja (compiling, for preset b): not on PATH") {
		t.Error(text)
	}
	// Without a package manager the commands can't be told, but the way is.
	commands, _, left := FixCommands(found)
	if len(commands) != 0 || len(left) != 2 || left[0].Get == "" {
		t.Errorf("%v, %+v", commands, left)
	}
}

func TestUnknownTool(t *testing.T) {
	_, err := Look(t.Context(), []Need{{Name: "frob", For: "preset x"}})
	if err == nil || !strings.Contains(err.Error(), "looking for frob, which preset x asks for") {
		t.Errorf("%v", err)
	}
}

func TestFix(t *testing.T) {
	log := t.TempDir() + "/log"
	testkit.Fake(t, "apt-get", `echo "$@" >>`+log+`; case "$*" in *broken*) echo no such package >&2; exit 100;; esac`)
	var out strings.Builder
	fix := func(commands ...Command) error {
		return Fix(t.Context(), commands, strings.NewReader(""), &out)
	}
	update := Command{Args: []string{"apt-get", "update"}}
	broken := Command{Args: []string{"apt-get", "install", "broken"}}
	err := fix(update, broken)
	if err == nil || !strings.Contains(err.Error(), "installing prerequisites: apt-get install: exit status 100") {
		t.Errorf("%v", err)
	}
	if !strings.Contains(out.String(), "no such package") {
		t.Errorf("the package manager's own words are lost: %q", out.String())
	}
	// What is optional may fail, and what comes after it still runs.
	broken.Optional = true
	if err := fix(broken, Command{Args: []string{"apt-get", "install", "last"}}); err != nil {
		t.Error(err)
	}
	done, err := os.ReadFile(log)
	if err != nil || !strings.HasSuffix(string(done), "install last\n") || !strings.Contains(out.String(), "not needed") {
		t.Errorf("%q, %q, %v", done, out.String(), err)
	}
	// Without sudo the person is told what root has to run.
	t.Setenv("PATH", t.TempDir())
	var notRoot *NotRootError
	if err := fix(Command{Args: []string{"sudo", "apt-get", "update"}}); !errors.As(err, &notRoot) {
		t.Errorf("%v", err)
	}
}

// A package for something optional never stands in the command for the rest.
func TestOptionalPackagesAreApart(t *testing.T) {
	if _, ok := found(); !ok {
		t.Skip("no package manager here")
	}
	commands, _, left := FixCommands([]Finding{
		{Name: "a", Packages: []string{"pa", "shared"}}, {Name: "b", Optional: true, Packages: []string{"pb", "shared"}}, {Name: "c", Get: "get c"}, {Name: "d", OK: true, Packages: []string{"pd"}},
	})
	last := commands[len(commands)-2:]
	if len(left) != 1 || left[0].Name != "c" || !strings.HasSuffix(strings.Join(last[0].Args, " "), " pa shared") || last[0].Optional ||
		!strings.HasSuffix(strings.Join(last[1].Args, " "), " pb") || !last[1].Optional {
		t.Errorf("%+v, %+v", commands, left)
	}
}
