package verify

import (
	"fmt"
	"path/filepath"
	"strings"
)

// assertLog compares a log with what the kind declares. It gives the lines that
// matched, by the pattern's name. module is the base name of the module that
// must have been loaded; empty means any. mapped is the one that the program has
// in its memory, which proves it too: some versions load before they log.
func assertLog(lines []string, patterns []pattern, backend, module, mapped string) (map[string]string, []problem) {
	matched := map[string]string{}
	var bad []problem
	for _, p := range patterns {
		if p.accelerator && backend == cpuBackend {
			continue
		}
		hits := 0
		var wrongBackend, wrongModule []string
		for _, line := range lines {
			m := p.re.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			group := func(name string) string {
				if i := p.re.SubexpIndex(name); i >= 0 {
					return strings.TrimSpace(m[i])
				}
				return ""
			}
			if got := group(groupBackend); got != "" && !strings.EqualFold(got, backend) {
				wrongBackend = append(wrongBackend, got)
				continue
			}
			if got := filepath.Base(group(groupModule)); group(groupModule) != "" && module != "" && got != module {
				wrongModule = append(wrongModule, got)
				continue
			}
			if done, all := group(groupDone), group(groupAll); done != all {
				bad = append(bad, problem{
					id: "log.partial", what: p.name, title: fmt.Sprintf("%s: only %s of %s", p.name, done, all),
					detail: strings.TrimSpace(line),
				})
			}
			if hits++; hits == 1 {
				matched[p.name] = strings.TrimSpace(line)
			}
		}
		switch {
		case hits > 0 && (!p.every || len(wrongBackend) == 0):
		case len(wrongModule) > 0:
			bad = append(bad, problem{
				id: "variant.wrong", what: p.name, title: fmt.Sprintf("the program loaded %s, not %s", wrongModule[0], module),
				detail: "pattern: " + p.re.String(),
			})
		case len(wrongBackend) > 0:
			bad = append(bad, problem{
				id: "backend.wrong", what: p.name, title: fmt.Sprintf("%s: the log names %s, not %s", p.name, wrongBackend[0], backend),
				detail: "pattern: " + p.re.String(),
			})
		case p.re.SubexpIndex(groupModule) >= 0 && mapped != "" && (module == "" || module == mapped):
			matched[p.name] = mapped + " is mapped"
		default:
			bad = append(bad, problem{
				id: "log.missing", what: p.name, title: fmt.Sprintf("the log has no line for %q", p.name),
				detail: "pattern: " + p.re.String() + "\neither the program lost it, or the log's format moved",
			})
		}
	}
	return matched, bad
}
