package verify

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"payload/internal/verify/tinymodel"
)

func TestAssertLog(t *testing.T) {
	patterns := []pattern{
		{name: "backend", re: regexp.MustCompile(`loaded (?P<backend>\S+) backend from (?P<module>.+)$`)},
		{name: "layers", re: regexp.MustCompile(`layer \d+ on (?P<backend>\w+)`), every: true},
		{name: "offloaded", re: regexp.MustCompile(`offloaded (?P<done>\d+)/(?P<all>\d+)`), accelerator: true},
	}
	const cpu = "loaded CPU backend from /x/a.so"
	for name, tt := range map[string]struct {
		lines           []string
		backend, module string
		want            []string
	}{
		"good":            {[]string{cpu, "layer 0 on CPU"}, "CPU", "a.so", nil},
		"other case":      {[]string{cpu, "layer 0 on cpu"}, "CPU", "", nil},
		"wrong module":    {[]string{cpu, "layer 0 on CPU"}, "CPU", "b.so", []string{"variant.wrong backend"}},
		"one of two":      {[]string{"loaded CPU backend from /x/b.so", cpu, "layer 0 on CPU"}, "CPU", "a.so", nil},
		"nothing":         {nil, "CPU", "", []string{"log.missing backend", "log.missing layers"}},
		"silently on CPU": {[]string{cpu, "layer 0 on CPU"}, "Vulkan", "", []string{"backend.wrong backend", "backend.wrong layers", "log.missing offloaded"}},
		"all offloaded":   {[]string{cpu, "loaded Vulkan backend from v.so", "layer 0 on Vulkan", "offloaded 3/3"}, "Vulkan", "", nil},
		"some offloaded":  {[]string{cpu, "loaded Vulkan backend from v.so", "layer 0 on Vulkan", "offloaded 2/3"}, "Vulkan", "", []string{"log.partial offloaded"}},
		"one elsewhere":   {[]string{cpu, "layer 0 on CPU", "layer 1 on CUDA"}, "CPU", "", []string{"backend.wrong layers"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, bad := assertLog(tt.lines, patterns, tt.backend, tt.module, "")
			var got []string
			for _, p := range bad {
				got = append(got, p.id+" "+p.what)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTape(t *testing.T) {
	var tp tape
	line := strings.Repeat("x", 99) + "\n"
	for range (headSize + 3*tailSize) / len(line) {
		if n, err := tp.Write([]byte(line)); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	if _, err := tp.Write([]byte("D noise\nthe end\r\n\nD noise\n")); err != nil {
		t.Fatal(err)
	}
	if n := len(tp.String()); n < headSize || n > headSize+tailSize+100 {
		t.Errorf("kept %d bytes", n)
	}
	if got := tp.last(2, regexp.MustCompile(`^D `)); got != strings.TrimSpace(line)+"\nthe end" {
		t.Errorf("last lines are %q", got)
	}
	if got := (&tape{}).last(3, nil); got != "" {
		t.Errorf("an empty tape ends in %q", got)
	}
}

// Every kind is data: what it says must at least hang together.
func TestKinds(t *testing.T) {
	for name, k := range kinds {
		if k.questions != nil {
			expected, err := tinymodel.Expected()
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range k.questions(expected) {
				if names := strings.Join(q.args, " "); q.name == "" || !strings.Contains(names, "{model}") {
					t.Errorf("%s: question %q is asked with %q", name, q.name, names)
				}
			}
			continue
		}
		if len(k.steps) > 0 { // it answers nothing
			for _, s := range k.steps {
				if s.name == "" || s.name == lastStep || s.judge == nil {
					t.Errorf("%s: step %q is incomplete", name, s.name)
				}
			}
			continue
		}
		names := map[string]bool{}
		for _, p := range k.log {
			if names[p.name] {
				t.Errorf("%s: two patterns are named %q", name, p.name)
			}
			names[p.name] = true
			if (p.re.SubexpIndex(groupDone) < 0) != (p.re.SubexpIndex(groupAll) < 0) {
				t.Errorf("%s: pattern %q has one group of two", name, p.name)
			}
		}
		all := strings.Join(k.args, " ")
		for _, must := range []string{"{model}", "{host}", "{port}", "{name}", "{threads}"} {
			if !strings.Contains(all, must) {
				t.Errorf("%s: no %s among the arguments", name, must)
			}
		}
		if len(k.checks) == 0 || len(k.threaded) == 0 || k.health == "" {
			t.Errorf("%s is incomplete", name)
		}
	}
	for line, want := range map[string]bool{
		"CPU KV buffer size =     0.00 MiB": false, "CPU KV buffer size =     0.75 MiB": true,
		"CPU KV buffer size =    10.00 MiB": true, "CPU KV buffer size =     0.05 MiB": true,
	} {
		i := slices.IndexFunc(kinds["completion-server"].log, func(p pattern) bool { return p.name == "cache memory" })
		if got := kinds["completion-server"].log[i].re.MatchString(line); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
	for version, want := range map[string][]string{
		"0.5.0-dev (build 11312, commit 0c1e57098)": {"11312", "0c1e57098"},
		"10454 (4df29be4f)":                         {"10454", "4df29be4f"},
	} {
		m := kinds["completion-server"].builtFrom.FindStringSubmatch(version)
		if m == nil || !slices.Equal(m[1:], want) {
			t.Errorf("%q gives %q", version, m)
		}
	}
}
