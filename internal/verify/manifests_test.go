package verify

import (
	"slices"
	"testing"

	"payload/internal/manifest"
)

// Each build has two programs here: those of one between the other's don't take
// away what the builds before had.
func TestAskOfSeveralBuilds(t *testing.T) {
	build := func(backend, variant string) manifest.Build {
		return manifest.Build{Components: []manifest.Component{
			{Name: "first", Verify: "completion-server", Program: "server", Backends: []string{"other"}},
			{Name: "second", Verify: "array-library", Program: "check", Backends: []string{backend}, Variants: []string{variant}},
		}}
	}
	var o Options
	o.ask(described{all: []manifest.Manifest{{Builds: []manifest.Build{build("gpu", "a"), build("cpu", "b")}}}})
	if o.Program != "check" || !slices.Equal(o.Backends, []string{"gpu", "cpu"}) || !slices.Equal(o.Variants, []string{"a", "b"}) {
		t.Errorf("%+v", o)
	}
	if want := []Program{{Kind: "completion-server", Path: "server"}}; !slices.Equal(o.Programs, want) {
		t.Errorf("and %+v", o.Programs)
	}
}

// A folder for a newer macOS than the one asked for is served by another build of
// its project for its processor, and by nothing else.
func TestServedBy(t *testing.T) {
	newer := manifest.Build{Project: "mlx", Arch: "arm64", Folders: []string{"gpu"}, Target: &manifest.Target{MacOS: "15.0"}}
	for name, c := range map[string]struct {
		project, arch, want string
	}{
		"a variant":         {"mlx", "arm64", "15.0"},
		"another project":   {"server", "arm64", "13.0"},
		"another processor": {"mlx", "amd64", "13.0"},
	} {
		old := manifest.Build{Project: c.project, Arch: c.arch, Target: &manifest.Target{MacOS: "13.0"}}
		got := targetOf(described{all: []manifest.Manifest{{Builds: []manifest.Build{old, newer}}}}, Options{MacOS: "13.0"})
		if v := got.macOSFor("gpu/lib.dylib"); v != c.want {
			t.Errorf("%s: its files have to load on macOS %s, not %s", name, v, c.want)
		}
	}
}
