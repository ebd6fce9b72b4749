package cmakerun

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// UndeclaredOptionError is a preset that sets what the project neither declares
// nor reads: an option that upstream removed or renamed, or a typing error.
type UndeclaredOptionError struct {
	Preset  string
	Option  string
	Nearest string             // the declared option most like it; may be empty
	More    []UndeclaredOption // further ones of the same preset
}

// UndeclaredOption is one more of them.
type UndeclaredOption struct{ Option, Nearest string }

func (e *UndeclaredOptionError) Error() string {
	var list []string
	for _, o := range append([]UndeclaredOption{{e.Option, e.Nearest}}, e.More...) {
		text := o.Option
		if o.Nearest != "" {
			text += " (the nearest declared option is " + o.Nearest + ")"
		}
		list = append(list, text)
	}
	return fmt.Sprintf("configuring preset %q: it sets what the project neither declares nor reads: %s", e.Preset, strings.Join(list, ", "))
}

// OverruledOptionError is a preset that turns an option on and a project that
// turned it off again: what was asked for would silently not be built.
type OverruledOptionError struct {
	Preset string
	Option string
	Want   string
	Got    string
}

func (e *OverruledOptionError) Error() string {
	return fmt.Sprintf("configuring preset %q: it sets %s to %s, and the project made it %s", e.Preset, e.Option, e.Want, e.Got)
}

// helpOfGiven is the help text of an entry that nothing declares.
const helpOfGiven = "No help, variable specified on the command line."

// checkOptions holds a preset against the cache that came of it. unused lists
// what CMake says was never read; a refresh reads nothing anew that the first
// configure read, so there it is not asked.
func checkOptions(b Build, r *Reply, unused []string, refresh bool) error {
	cache, err := r.Cache()
	if err != nil {
		return err
	}
	var bad []UndeclaredOption
	for _, name := range slices.Sorted(maps.Keys(b.Preset.Cache)) {
		entry, ok := cache[name]
		if want := b.Preset.Cache[name]; ok && isOn(want.Value) && isOff(entry.Value) {
			return &OverruledOptionError{Preset: b.Preset.Name, Option: name, Want: want.Value, Got: entry.Value}
		}
		declared := ok && ownHelp(entry) ||
			strings.HasPrefix(name, "CMAKE_") ||
			!slices.Contains(unused, name) ||
			slices.Contains(b.Preset.Vendor.ReadBy, name)
		if !declared && !refresh {
			bad = append(bad, UndeclaredOption{Option: name})
		}
	}
	if len(bad) == 0 {
		return nil
	}
	var options []string
	for _, name := range slices.Sorted(maps.Keys(cache)) {
		e := cache[name]
		if ownHelp(e) && e.Type != "INTERNAL" && e.Type != "STATIC" {
			options = append(options, name)
		}
	}
	for i := range bad {
		if best := Nearest(bad[i].Option, options, 1); len(best) > 0 {
			bad[i].Nearest = best[0]
		}
	}
	return &UndeclaredOptionError{Preset: b.Preset.Name, Option: bad[0].Option, Nearest: bad[0].Nearest, More: bad[1:]}
}

func ownHelp(e CacheEntry) bool { return e.Help != "" && e.Help != helpOfGiven }

var (
	onWords  = []string{"ON", "TRUE", "YES", "Y", "1"}
	offWords = []string{"OFF", "FALSE", "NO", "N", "0"}
)

func isOn(value string) bool  { return slices.Contains(onWords, strings.ToUpper(value)) }
func isOff(value string) bool { return slices.Contains(offWords, strings.ToUpper(value)) }
