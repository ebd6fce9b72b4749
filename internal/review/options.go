package review

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"payload/internal/report"
)

// ConfiguredPair is what CMake answered when each side was configured as a
// sub-project with nothing set: the values that its options have then.
type ConfiguredPair struct{ Old, New map[string]string }

// evaluate replaces the default that stands in a CMake file by the value that
// it comes to, where both sides were configured and both have the option.
func (r *reviewer) evaluate(was, is []item) {
	pair := r.in.Configured
	if pair == nil {
		return
	}
	raw := map[string]string{}
	for i := range was {
		raw[was[i].name] = was[i].attrs["default"]
	}
	for i := range is {
		name := is[i].name
		old, ok1 := pair.Old[name]
		now, ok2 := pair.New[name]
		text, both := raw[name]
		switch {
		case !ok1 || !ok2 || !both:
		case old != now:
			is[i].attrs["default"] = now
			for n := range was {
				if was[n].name == name {
					was[n].attrs["default"] = old
				}
			}
		case text != is[i].attrs["default"]:
			is[i].attrs["evaluated"], is[i].attrs["is"] = "same", now
		}
	}
}

// setsOption finds a preset of ours that gives an option a value.
func (r *reviewer) setsOption(name string) *report.Place {
	for _, f := range r.ours.files {
		if !strings.HasPrefix(path.Base(f.path), "CMake") || !strings.HasSuffix(f.path, "Presets.json") {
			continue
		}
		var presets struct {
			Configure []struct {
				Cache map[string]any `json:"cacheVariables"`
			} `json:"configurePresets"`
		}
		if json.Unmarshal([]byte(f.text), &presets) != nil {
			continue // not a presets file that CMake would read
		}
		for _, p := range presets.Configure {
			if _, ok := p.Cache[name]; ok {
				at := strings.Index(f.text, fmt.Sprintf("%q", name))
				return &report.Place{Path: f.path, Line: 1 + strings.Count(f.text[:max(at, 0)], "\n")}
			}
		}
	}
	return nil
}
