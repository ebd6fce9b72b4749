package testkit

import (
	"os"
	"runtime"
	"testing"

	"payload/internal/run"
)

// Browser finds a Chromium. A test that has none is skipped and says so; in CI
// on Linux, where scripts/test installs one, that would hide a fault and fails.
func Browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"} {
		if path, err := run.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") != "" && runtime.GOOS == "linux" {
		t.Fatal("no Chromium is on PATH")
	}
	t.Skip("no Chromium is on PATH: apt-get install chromium")
	return ""
}
