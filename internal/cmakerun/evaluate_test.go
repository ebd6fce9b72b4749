package cmakerun

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// A machine may have ninja alone: no make, which CMake takes by default.
func TestEvaluateWithoutMake(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("tools are looked up by links in a folder, as on Linux")
	}
	bin := t.TempDir()
	for _, tool := range []string{"cmake", "ninja", "cc", "c++", "as", "ld", "ar", "ranlib"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	source := t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "CMakeLists.txt"), []byte("option(TOY_FAST \"be fast\" ON)\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	options, err := Evaluate(context.Background(), source, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if got := options["TOY_FAST"]; got.Value != "ON" || got.Help != "be fast" {
		t.Errorf("TOY_FAST is %+v", got)
	}
}
