// Package verify proves that a staged payload is what its manifest says, needs
// nothing that a user's machine lacks, and works: the program answers real
// requests from a copied folder, once with every variant this machine can run.
//
// It only reads the payload. Everything it starts and writes lives in a
// temporary folder and ends with the call, also when the context ends. What a
// kind of program is, which arguments it takes and what its log must hold, is
// data in kind.go; what a machine is expected to bring is data in platform.go.
package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"payload/internal/manifest"
	"payload/internal/report"
	"payload/internal/verify/tinymodel"
)

// Schema is the value of a result's first key.
const Schema = "payload.verify/v1"

// Options say what to verify.
type Options struct {
	Dir     string // the payload: the folder that holds payload.json
	Over    bool   // what a group relies on of its base has to be in Dir
	NoRun   bool   // static half only
	Kind    string // of runtime verification; empty means static only
	Program string // the file to start, relative to Dir
	// Backends are those that the payload was built for. Each that isn't the
	// CPU must do all of the work of a program that is started with its module;
	// without a folder of modules, of the program as it is.
	Backends []string
	// Variants are the CPU variants that were built: each must have its module,
	// and no other may be there. Empty means whatever is there.
	Variants []string
	// Programs are more of them, without backends and variants of their own.
	Programs []Program
	// Glibc, Glibcxx and MacOS are the oldest systems that every file has to load
	// on. The manifest's own are held too: the older counts.
	Glibc, Glibcxx, MacOS string
	Budgets               []Budget
	// Against is the last release; nil compares with nothing. A file may grow by
	// Growth percent.
	Against *Release
	Growth  int
	// Tell is given a line for each step as it ends; nil means silence.
	Tell func(format string, args ...any)
}

// Program is a file to start, relative to the payload, and the kind of runtime
// verification.
type Program struct{ Kind, Path string }

// Result is what was found.
type Result struct {
	Schema   string             `json:"schema"`
	Dir      string             `json:"dir"`
	Archive  *Packed            `json:"archive,omitempty"`
	Over     string             `json:"over,omitempty"` // the base that it was judged over
	Static   Static             `json:"static"`
	Runtime  *Runtime           `json:"runtime,omitempty"` // absent when nothing was started
	Programs []Runtime          `json:"programs,omitempty"`
	Skipped  []manifest.Skipped `json:"skipped,omitempty"` // what was not to be run
	Findings []report.Finding   `json:"findings"`
}

// Static is what the static half saw.
type Static struct {
	Files int            `json:"files"`
	Bytes int64          `json:"bytes"`
	ELF   int            `json:"elf"`
	MachO int            `json:"macho"` // one for each architecture of a file
	PE    int            `json:"pe"`
	Arch  string         `json:"arch,omitempty"`
	Floor manifest.Floor `json:"floor"`
	// Floors say what each floor comes from; System are the libraries that the
	// system has to bring.
	Floors []Needed `json:"floors,omitempty"`
	System []string `json:"system,omitempty"`
}

// Runtime is what the runtime half saw.
type Runtime struct {
	Kind     string             `json:"kind"`
	Program  string             `json:"program"`
	Version  string             `json:"version,omitempty"`
	Backends []Variant          `json:"backends,omitempty"` // of devices, each by its backend's name
	Variants []Variant          `json:"variants"`           // one without a name when the program has no variants
	Skipped  []manifest.Skipped `json:"skipped"`
	Requests int                `json:"requests"`
}

// Variant is one started program. Speeds are tokens a second.
type Variant struct {
	Name      string            `json:"name,omitempty"`
	Best      bool              `json:"best,omitempty"` // what the program picks by itself here
	ReadyMS   int64             `json:"ready_ms"`
	Requests  int               `json:"requests"`
	PromptTPS float64           `json:"prompt_tps"`
	DecodeTPS float64           `json:"decode_tps"`
	Log       map[string]string `json:"log,omitempty"` // pattern name to the line that matched
}

// Failed says whether the payload must not be used.
func (r *Result) Failed() bool { return report.Worst(r.Findings) == report.Error }

// Verified is the result in the manifest's words. A variant that an error was
// found with is left out.
func (r *Result) Verified() *manifest.Verified {
	v := &manifest.Verified{Static: !slices.ContainsFunc(r.Findings, func(f report.Finding) bool {
		return f.Category == categoryStatic && f.Severity == report.Error
	})}
	if r.Runtime == nil {
		v.Skipped = r.Skipped
		return v
	}
	v.Version, v.Skipped = r.Runtime.Version, slices.Concat(r.Skipped, r.Runtime.Skipped)
	if r.Runtime.Requests > 0 {
		v.Kind = r.Runtime.Kind
	}
	for _, ran := range r.Runtime.Variants {
		if ran.Name != "" && ran.Requests > 0 {
			v.Variants = append(v.Variants, ran.Name)
		}
	}
	slices.Sort(v.Variants)
	for _, ran := range r.Runtime.Backends {
		v.Backends = append(v.Backends, ran.Name)
	}
	for _, p := range r.Programs {
		v.Skipped = append(v.Skipped, p.Skipped...)
		if p.Requests > 0 {
			v.Programs = append(v.Programs, p.Program)
		}
	}
	return v
}

// notAsked is why nothing was run when the person wanted it so.
const notAsked = "asked not to run it"

// Proven says in words what a result without an error has shown.
func (r *Result) Proven() string {
	var on []string
	switch {
	case len(r.Skipped) > 0:
		var names []string
		for _, sk := range r.Skipped {
			names = append(names, sk.Name)
		}
		return "files checked; NOT run: " + strings.Join(names, ", ")
	case r.Runtime == nil:
		return "files checked, nothing was run"
	case r.Runtime.Requests == 0 && len(r.Runtime.Skipped) > 0:
		return "files checked; not run: " + r.Runtime.Skipped[0].Reason
	case r.Runtime.Requests == 0:
		return "files checked; not run"
	}
	if len(kinds[r.Runtime.Kind].steps) > 0 {
		proven := fmt.Sprintf("files checked, %d steps gave what they must", r.Runtime.Requests)
		for _, p := range r.Programs {
			if p.Requests > 0 {
				proven += fmt.Sprintf(", %s answered %d times as expected", p.Program, p.Requests)
			} else {
				proven += fmt.Sprintf(", %s not run", p.Program)
			}
		}
		return proven
	}
	for _, ran := range r.Runtime.Backends {
		on = append(on, ran.Name)
	}
	proven := fmt.Sprintf("files checked, %d requests answered as expected", r.Runtime.Requests)
	if len(on) > 0 {
		proven += ", by " + strings.Join(append(on, cpuBackend), " and ")
	}
	return proven
}

// FolderError is a path that can't hold a payload.
type FolderError struct {
	Dir string
	Err error
}

func (e *FolderError) Error() string { return fmt.Sprintf("verifying %s: %v", e.Dir, e.Err) }
func (e *FolderError) Unwrap() error { return e.Err }

// KindError is a kind of verification that does not exist.
type KindError struct{ Kind string }

func (e *KindError) Error() string {
	return fmt.Sprintf("no kind of verification is named %q; there are %v", e.Kind, kindNames())
}

// Payload verifies the payload in o.Dir. What is wrong with it is in the
// findings; an error means that it could not be judged: a *FolderError, a
// *KindError, or ctx's cause.
func Payload(ctx context.Context, o Options) (Result, error) {
	if o.Tell == nil {
		o.Tell = func(string, ...any) {}
	}
	res := Result{Schema: Schema, Dir: o.Dir, Findings: []report.Finding{}}
	info, err := os.Stat(o.Dir)
	if err == nil && !info.IsDir() {
		err = errors.New("not a folder")
	}
	if err != nil {
		return res, &FolderError{Dir: o.Dir, Err: err}
	}
	asked := slices.Clone(o.Programs)
	if o.Kind != "" {
		asked = slices.Insert(asked, 0, Program{o.Kind, o.Program})
	}
	for _, p := range asked {
		if _, known := kinds[p.Kind]; !known {
			return res, &KindError{Kind: p.Kind}
		}
	}
	// Looked for first: a folder that isn't a payload may hold anything, and a lot.
	if _, err := readManifests(o.Dir); errors.As(err, new(*manifest.MissingError)) {
		res.static("manifest.missing", manifest.Name, "the payload has no "+manifest.Name,
			"without it nothing says what the files should be", manifest.Name)
		return res, nil
	}
	files, err := static(&res, o)
	if err != nil {
		return res, err
	}
	if len(asked) == 0 {
		return res, nil
	}
	if o.NoRun {
		for _, p := range asked {
			res.Skipped = append(res.Skipped, manifest.Skipped{Name: p.Path, Reason: notAsked})
		}
		for _, name := range o.wanted() {
			res.Skipped = append(res.Skipped, manifest.Skipped{Name: name, Reason: notAsked})
		}
		return res, nil
	}
	expected, err := tinymodel.Expected()
	if err != nil {
		return res, err
	}
	try := func(p Program) (*Runtime, error) {
		o.Kind, o.Program = p.Kind, p.Path
		of := Result{}
		s := &sessions{kind: kinds[p.Kind], options: o, files: files, limits: defaultLimits, model: tinymodel.GGUF, expected: expected, res: &of}
		err := s.run(ctx)
		res.Findings = append(res.Findings, of.Findings...)
		return of.Runtime, err
	}
	if o.Kind != "" {
		if res.Runtime, err = try(Program{o.Kind, o.Program}); err != nil {
			return res, err
		}
	}
	for _, p := range o.Programs {
		ran, err := try(p)
		if err != nil {
			return res, err
		}
		res.Programs = append(res.Programs, *ran)
	}
	return res, nil
}

const (
	categoryStatic  = "static"
	categoryRuntime = "runtime"
)

// join makes a key's text of the parts that are not empty.
func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ":")
}

// fault makes an error finding whose key is stable as long as what names it is.
func fault(category, id, what, title, detail string, paths ...string) report.Finding {
	f := report.Finding{
		ID: id, Key: id + ":" + what, Category: category, Severity: report.Error, Title: title, Detail: detail,
	}
	for _, p := range paths {
		if p != "" {
			f.Where = append(f.Where, report.Place{Path: p})
		}
	}
	return f
}
