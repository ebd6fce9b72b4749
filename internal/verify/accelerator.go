package verify

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"payload/internal/manifest"
)

// The findings of a payload that may be good, on a machine without the device
// that it is for, or without its driver.
const (
	FindingIdle   = "backend.idle"
	FindingBroken = "backend.broken"
)

// accelerator is a backend in a folder of its own. A program does not look
// there, so it is started with the module's path.
type accelerator struct {
	name   string // the backend's, as the log has it
	module string // relative to the payload, forward slashes
}

// accelerators are the modules of backends in folders of their own, sorted.
func (k kind) accelerators(files []manifest.File) []string {
	var found []string
	for _, f := range files {
		inFolder := strings.Contains(f.Path, "/")
		if f.Link == "" && inFolder && k.module != nil && k.module.MatchString(path.Base(f.Path)) && k.variantOf(path.Base(f.Path)) == "" {
			found = append(found, f.Path)
		}
	}
	slices.Sort(found)
	return found
}

// wanted are the backends, other than the CPU's, that the payload was built
// for.
func (o Options) wanted() []string {
	return slices.DeleteFunc(slices.Clone(o.Backends), func(name string) bool { return strings.EqualFold(name, cpuBackend) })
}

// accelerators finds out which backend each module is, and reports those that
// the program can't load and those that are not there.
func (s *sessions) accelerators(ctx context.Context, dir string) ([]accelerator, error) {
	var usable []accelerator
	wanted := s.options.wanted()
	missing := slices.Clone(wanted)
	modules := s.kind.accelerators(s.files)
	for _, module := range modules {
		file := filepath.Join(dir, filepath.FromSlash(module))
		out, err := s.once(ctx, dir, s.kind.probe.args, slices.Concat(s.kind.probe.env, s.kind.chosenDevices()), file)
		if ctx.Err() != nil {
			return nil, err
		}
		text := ""
		if out != nil {
			text = out.String()
		}
		name := firstGroup(s.kind.probe.loadedFrom(file), text)
		if name == "" && len(wanted) == 1 {
			name = wanted[0] // what it is for; its session tells whether it is
		}
		missing = slices.DeleteFunc(missing, func(w string) bool { return strings.EqualFold(w, name) })
		why := s.kind.probe.refusal(text)
		switch {
		case why != "":
			s.fault(FindingBroken, module, fmt.Sprintf("the %s backend can't be loaded: %s", orUnknown(name), why), s.deviceAdvice(), module)
		case !slices.ContainsFunc(wanted, func(w string) bool { return strings.EqualFold(w, name) }):
			s.fault("backend.unknown", module, fmt.Sprintf("%s is the %s backend, which this payload was not built for", module, orUnknown(name)),
				fmt.Sprintf("it was built for %s", strings.Join(s.options.Backends, ", ")), module)
		default:
			usable = append(usable, accelerator{name, module})
		}
	}
	if len(modules) > 0 {
		for _, name := range missing {
			s.fault("backend.missing", name, "the payload was built for "+name+" and holds no module of it", "")
		}
	}
	return usable, nil
}

func orUnknown(name string) string {
	if name == "" {
		return "unknown"
	}
	return name
}

// loadedFrom matches the line that tells which backend was loaded from a file.
func (p probe) loadedFrom(module string) *regexp.Regexp {
	return regexp.MustCompile(strings.ReplaceAll(p.loaded.String(), "{module}", regexp.QuoteMeta(module)))
}

// refusal is why the program would not load a module; empty when it would, or
// when it does not say.
func (p probe) refusal(text string) string {
	switch {
	case p.broken.MatchString(text):
		return firstGroup(p.broken, text)
	case p.unsupported.MatchString(text):
		return "the program says that this machine can't run it"
	}
	return ""
}

// backend is the one that must do the work of a program that loads what lies
// beside it.
func (s *sessions) backend() string {
	if wanted := s.options.wanted(); len(wanted) > 0 && len(s.kind.accelerators(s.files)) == 0 {
		return wanted[0]
	}
	return cpuBackend
}

// chosenDevices are the variables, as the person has them, by which devices are
// chosen or hidden.
func (k kind) chosenDevices() []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if slices.Contains(k.deviceVars, name) {
			env = append(env, kv)
		}
	}
	slices.Sort(env)
	return env
}

// deviceAdvice says what decides which devices the program sees.
func (s *sessions) deviceAdvice() string {
	if set := s.kind.chosenDevices(); len(set) > 0 {
		return "chosen here by " + strings.Join(set, " ")
	}
	return "no device is chosen or hidden here (" + strings.Join(s.kind.deviceVars, ", ") + ")"
}

// idle is the first word about a program whose layers did not all lie on the
// backend that the payload is for. Everything else that its log lacks follows
// from that.
func (s *sessions) idle(lines []string, backend string) (problem, bool) {
	layers := map[string]string{} // the log tells each several times
	for _, p := range s.kind.log {
		if i := p.re.SubexpIndex(groupLayer); i >= 0 {
			for _, line := range lines {
				if m := p.re.FindStringSubmatch(line); m != nil {
					layers[m[i]] = strings.ToUpper(m[p.re.SubexpIndex(groupBackend)])
				}
			}
		}
	}
	all := len(layers)
	on := map[string]int{}
	for _, name := range layers {
		on[name]++
	}
	done := on[strings.ToUpper(backend)]
	if all == 0 || done == all {
		return problem{}, false
	}
	title := fmt.Sprintf("%s did only a part of the work: %d of %d layers lay on it", backend, done, all)
	if done == 0 && on[cpuBackend] == all {
		title = fmt.Sprintf("the CPU did the work, not %s: %d of %d layers lay on the CPU", backend, all, all)
	}
	return problem{id: FindingIdle, what: backend, title: title, detail: s.devicesSeen(lines) + s.deviceAdvice()}, true
}

// devicesSeen are the log's lines about devices, for a person.
func (s *sessions) devicesSeen(lines []string) string {
	var seen strings.Builder
	for _, p := range s.kind.log {
		if p.name != patternDevice {
			continue
		}
		for _, line := range lines {
			if m := p.re.FindString(line); m != "" {
				seen.WriteString("the program sees" + strings.TrimPrefix(m, " -") + "\n")
			}
		}
	}
	return seen.String()
}
