package verify

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// verdicts asks the program about every variant, and gives the names of those
// that it would run here, sorted. The others are noted as skipped, or reported
// when they can't even be loaded.
func (s *sessions) verdicts(ctx context.Context, dir string, modules map[string]string) ([]string, error) {
	var runnable []string
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		module := filepath.Join(dir, filepath.FromSlash(modules[name]))
		out, err := s.once(ctx, dir, s.kind.probe.args, s.kind.probe.env, module)
		if ctx.Err() != nil {
			return nil, err
		}
		text := ""
		if out != nil {
			text = out.String()
		}
		switch {
		case s.kind.probe.loadedFrom(module).MatchString(text):
			runnable = append(runnable, name)
		case s.kind.probe.unsupported.MatchString(text):
			s.skip(name, s.whyNot(name))
		case s.kind.probe.broken.MatchString(text):
			s.fault("variant.broken", name, "the variant "+name+" can't be loaded", firstGroup(s.kind.probe.broken, text), modules[name])
		default:
			// The session with this variant alone will tell more.
			runnable = append(runnable, name)
		}
	}
	return runnable, nil
}

// whyNot names the CPU features that this machine lacks for a variant.
func (s *sessions) whyNot(name string) string {
	has := cpuFlags()
	var lacks []string
	for _, f := range s.kind.features[name] {
		if len(has) > 0 && !has[f] {
			lacks = append(lacks, f)
		}
	}
	if len(lacks) == 0 {
		return "the program says that this machine can't run it"
	}
	return "needs " + strings.Join(lacks, ", ")
}

// cpuFlags are the features of the first CPU, where the system tells them.
func cpuFlags() map[string]bool {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil
	}
	for line := range bytes.Lines(data) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		if k := string(bytes.TrimSpace(key)); k == "flags" || k == "Features" {
			flags := map[string]bool{}
			for _, f := range bytes.Fields(value) {
				flags[string(f)] = true
			}
			return flags
		}
	}
	return nil
}
