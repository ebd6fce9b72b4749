// Package pack makes a release out of staged payloads: one archive a group of
// payload.yaml, with what proves it. It owns the list of steps, what may not be
// packaged, and the archive's manifest; formats belong to internal/archive, and
// what only one system has (merging and signing Mach-O files) is handed in.
//
// Staged trees are only read. All work is done in a folder beside the result,
// and what is finished is moved to its place at the end: a reader, or a kill at
// any moment, meets whole files, and checksums that hold or none.
package pack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"payload/internal/archive"
	"payload/internal/atomicfile"
	"payload/internal/config"
	"payload/internal/folder"
	"payload/internal/manifest"
	"payload/internal/voice"
	"payload/internal/workspace"
)

// Options say what to package and how.
type Options struct {
	System string   // linux, darwin or windows
	From   string   // folder of staged trees, one a preset; absolute
	Out    string   // where the release goes; absolute, made where it is not there
	Groups []string // names; empty: every group whose presets are staged

	Glibc string // the oldest glibc that every file must load on; empty: any
	MacOS string // the oldest macOS, likewise

	MaxPart int64    // bytes of each file of an archive; 0: one file
	Allow   []string // what would be refused, by the names in Allowances
	SignKey string   // file of a minisign key; empty: nothing is signed
	Builder string   // URI of who packages, for the provenance
	Version string   // of this program

	// Merge makes j.Payload out of several staged trees, Debug takes debug
	// information out of it for j.KeepDebug, and Sign signs what is in it; each
	// replaces the step of that name. nil stands for what most systems need: trees
	// that don't overlap, and no signatures.
	Merge func(ctx context.Context, j *Job) error
	Debug func(ctx context.Context, j *Job) error
	Sign  func(ctx context.Context, j *Job) error
	// Extra writes further forms of the finished tree (a disk image) to j.New.
	Extra func(ctx context.Context, j *Job) error
}

// Allowances are what Options.Allow may hold: each is a reason to refuse that is
// written into the manifest where it was passed over.
var Allowances = []string{AllowUnlocked, AllowUnverified, AllowChanged, AllowFloor, AllowBudget, AllowCompressor}

// The allowances.
const (
	AllowUnlocked   = "unlocked"             // pins, patches or sources other than the lock's
	AllowUnverified = "unverified"           // not proven, or only some of it
	AllowChanged    = "changed"              // files that differ from the staged payload.json
	AllowFloor      = "floor"                // files that need a newer system than asked for
	AllowBudget     = manifest.AllowedBudget // files that are larger than payload.yaml lets them be
	AllowCompressor = "compressor"           // another version of zstd than payload.yaml's
)

// Schema is the value of a result's first key.
const Schema = "payload.package/v1"

// Result is a finished release: `payload package --json` prints it.
type Result struct {
	Schema   string    `json:"schema"`
	System   string    `json:"system"`
	Out      string    `json:"out"`
	Packages []Package `json:"packages"`
	LeftOut  []LeftOut `json:"left_out"`
	Sums     string    `json:"sums"` // name of the file of checksums
	Signed   bool      `json:"signed"`
	Seconds  float64   `json:"seconds"`
}

// Package is one archive and what goes with it. Names are those of files in Out.
type Package struct {
	Group    string             `json:"group"`
	Arch     string             `json:"arch"`
	Files    []File             `json:"files"`
	Manifest string             `json:"manifest"` // path in the archive
	Entries  int                `json:"entries"`  // files and links in the archive
	Bytes    int64              `json:"bytes"`    // of its files
	Saved    int64              `json:"saved"`    // bytes that links stand for
	Allowed  []manifest.Allowed `json:"allowed"`
	Missing  []string           `json:"missing"` // what the group expects and the trees lack

	name string // that its files' names begin with
}

// File is a file of the release.
type File struct {
	Name   string   `json:"name"`
	Kind   string   `json:"kind"` // archive, part, debug, sbom, provenance
	SHA256 string   `json:"sha256"`
	Size   int64    `json:"size"`
	Parts  []string `json:"parts,omitempty"` // the files that make it up, in its place
}

// LeftOut is a group that was not packaged, and why.
type LeftOut struct {
	Group string `json:"group"`
	Why   string `json:"why"`
}

// Job is one group on its way to an archive; steps hand it on.
type Job struct {
	Options Options
	Group   config.Group
	Trees   []Tree    // the staged trees, in the order of the group's presets
	Time    time.Time // of everything that carries a time
	// Work is a folder for the job alone, on Out's disk. Root in it is what the
	// archive will hold, laid out as it is unpacked; Payload is lib/payload in it.
	Work, Root, Payload string
	// New is the folder whose files go to Out when all is done.
	New string
	// Manifest is filled from the trees when they are collected; describe adds the
	// files. What a step learns goes into its Package.
	Manifest manifest.Manifest

	w          *workspace.Workspace
	v          *voice.Voice
	repo       repository
	compressor *manifest.Compressor
	budget     map[string]int64
	debug      *manifest.Debug
	debugRoot  string // what its archive holds
	items      []archive.Item
	archive    archive.Written // the first of its forms
	result     Package
}

// Tree is one staged tree.
type Tree struct {
	Preset   string
	Dir      string // lib/payload in it
	Manifest manifest.Manifest
}

// Say tells the person something, below the current step.
func (j *Job) Say(format string, args ...any) { j.v.Say(format, args...) }

// Progress shows how far a long step is.
func (j *Job) Progress(done, total int64, what string) {
	const unit, short = 1 << 10, 8 << 20 // the bar counts in int, which may have 32 bits
	if total < short {
		return // over before it is read
	}
	j.v.Progress(int(done/unit), int(max(1, total/unit)), what)
}

// Name is the archive's file name without its ending.
func (j *Job) Name() string { return "payload-" + j.Group.Title() }

// ManifestName is the manifest's name in the archive's lib/payload. A group that
// is unpacked over another one must not overwrite that one's.
func (j *Job) ManifestName() string {
	if j.Group.Over == "" {
		return manifest.Name
	}
	return manifest.NameFor(j.Group.Name)
}

// step is one of the list, by its name in messages.
type step struct {
	name string
	do   func(context.Context, *Job) error
	when bool
}

// steps is all that makes a package, in order.
func (j *Job) steps() []step {
	merge, debug, sign, extra := j.Options.Merge, j.Options.Debug, j.Options.Sign, j.Options.Extra
	if merge == nil {
		merge = unite
	}
	if debug == nil && j.Group.System == "linux" {
		debug = splitDebug
	}
	return []step{
		{"collect", collect, true},
		{"merge", merge, true},
		{"debug symbols", debug, debug != nil},
		{"share", share, j.Group.System == "linux"},
		{"check", judge, true},
		{"sign", sign, sign != nil},
		{"describe", describe, true},
		{"archive", pack, true},
		{"extra", extra, extra != nil},
		{"proof", prove, true},
	}
}

// Run packages every group that o asks for.
func Run(ctx context.Context, w *workspace.Workspace, v *voice.Voice, o Options) (res Result, err error) {
	begun := time.Now()
	res = Result{Schema: Schema, System: o.System, Out: o.Out, Packages: []Package{}, LeftOut: []LeftOut{}}
	groups, leftOut, err := choose(w.File, o)
	if err != nil {
		return res, err // it says what was to be packaged
	}
	res.LeftOut = append(res.LeftOut, leftOut...)
	repo, err := lookAt(ctx, w.File.Root)
	if err != nil {
		return res, fmt.Errorf("packaging for %s: %w", o.System, err)
	}
	key, err := readKey(o.SignKey)
	if err != nil {
		return res, err
	}
	if _, err := keptSums(o.Out); err != nil { // packing may take minutes
		return res, fmt.Errorf("packaging for %s: %w", o.System, err)
	}
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return res, fmt.Errorf("packaging for %s: %w", o.System, err)
	}
	work, done, err := workFolder(o.Out)
	if err != nil {
		return res, fmt.Errorf("packaging for %s: %w", o.System, err)
	}
	defer func() { err = errors.Join(err, done()) }()
	fresh := filepath.Join(work, "new")
	if err := os.Mkdir(fresh, 0o755); err != nil {
		return res, fmt.Errorf("packaging for %s: %w", o.System, err)
	}
	for _, g := range groups {
		j := newJob(w, v, o, g, repo, work, fresh)
		if err := j.walk(ctx); err != nil {
			return res, atomicfile.Full(err, o.Out)
		}
		res.Packages = append(res.Packages, j.result)
	}
	for _, l := range res.LeftOut {
		v.Say("left out: %s: %s", l.Group, l.Why)
	}
	if err := hand(fresh, o.Out, res.Packages, key); err != nil {
		return res, fmt.Errorf("packaging for %s: %w", o.System, atomicfile.Full(err, o.Out))
	}
	res.Sums, res.Signed = archive.SumsName, key != nil
	res.Seconds = time.Since(begun).Seconds()
	return res, nil
}

// workPrefix begins the name of the folder in which a release is put together.
const workPrefix = ".packaging-"

// workFolder makes the folder, which done deletes, and clears those that a kill
// left: nobody holds their lock any more.
func workFolder(out string) (dir string, done func() error, err error) {
	old, err := folder.Glob(out, workPrefix+"*")
	if err != nil {
		return "", nil, err
	}
	for _, left := range old {
		lock := flock.New(filepath.Join(left, lockName))
		if free, err := lock.TryLock(); err == nil && free {
			if err := errors.Join(lock.Close(), os.RemoveAll(left)); err != nil {
				return "", nil, err
			}
		}
	}
	if dir, err = os.MkdirTemp(out, workPrefix); err != nil {
		return "", nil, err
	}
	lock := flock.New(filepath.Join(dir, lockName))
	if _, err := lock.TryLock(); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, func() error { return errors.Join(lock.Close(), os.RemoveAll(dir)) }, nil
}

const lockName = "lock"

func newJob(w *workspace.Workspace, v *voice.Voice, o Options, g config.Group, repo repository, work, fresh string) *Job {
	j := &Job{Options: o, Group: g, Time: repo.time, New: fresh, w: w, v: v, repo: repo}
	j.Work = filepath.Join(work, g.Title())
	j.Root = filepath.Join(j.Work, "root")
	j.Payload = filepath.Join(j.Root, filepath.FromSlash(payloadDir))
	j.result = Package{name: j.Name(), Group: g.Name, Arch: g.Arch, Files: []File{}, Allowed: []manifest.Allowed{}, Missing: []string{}}
	return j
}

// payloadDir is where a payload lies in an archive, as in a staged tree.
const payloadDir = "lib/payload"

func (j *Job) walk(ctx context.Context) error {
	if err := os.MkdirAll(j.Payload, 0o755); err != nil {
		return fmt.Errorf("packaging %s: %w", j.Group.Title(), err)
	}
	for _, s := range j.steps() {
		if !s.when {
			continue
		}
		err := j.v.Step(j.Group.Title()+": "+s.name, func() error { return s.do(ctx, j) })
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("cancelled while packaging %s, in step %s: %w", j.Group.Title(), s.name, context.Cause(ctx))
		}
		if err != nil {
			return fmt.Errorf("packaging %s: %w", j.Group.Title(), err)
		}
	}
	return os.RemoveAll(j.Work) // the next group may need the room
}

// UnknownGroupError is a group that payload.yaml lacks for a system.
type UnknownGroupError struct {
	Name, System string
	Known        []string
}

func (e *UnknownGroupError) Error() string {
	if len(e.Known) == 0 {
		return fmt.Sprintf("packaging for %s: %s has no groups for it", e.System, config.FileName)
	}
	return fmt.Sprintf("packaging for %s: no group for it is named %q (there are: %s)", e.System, e.Name, strings.Join(e.Known, ", "))
}

// NotStagedError is a group whose trees are not all there.
type NotStagedError struct {
	Group   string
	Presets []string // that have to be built
	From    string
}

func (e *NotStagedError) Error() string {
	return fmt.Sprintf("packaging %s: nothing is staged for %s in %s", e.Group, strings.Join(e.Presets, ", "), e.From)
}

// choose finds the groups to package. A group of several presets is packaged
// whole or not at all.
func choose(f *config.File, o Options) (groups []config.Group, leftOut []LeftOut, err error) {
	var known []string
	var first *NotStagedError
	staged := map[string]bool{} // names of groups that have all
	for _, g := range f.Packages.Groups {
		if g.System != o.System {
			continue
		}
		if !slices.Contains(known, g.Name) {
			known = append(known, g.Name)
		}
		if len(o.Groups) > 0 && !slices.Contains(o.Groups, g.Name) {
			continue
		}
		missing := &NotStagedError{Group: g.Title(), From: o.From}
		for _, p := range g.Presets {
			if !exists(filepath.Join(o.From, p, filepath.FromSlash(payloadDir))) {
				missing.Presets = append(missing.Presets, p)
			}
		}
		switch {
		case len(missing.Presets) == 0:
			groups = append(groups, g)
			staged[g.Name] = true
		case len(missing.Presets) < len(g.Presets):
			return nil, nil, missing
		default:
			leftOut = append(leftOut, LeftOut{Group: g.Title(), Why: "nothing is staged for " + strings.Join(missing.Presets, ", ")})
			if first == nil {
				first = missing
			}
		}
	}
	for _, name := range o.Groups {
		if !slices.Contains(known, name) {
			return nil, nil, &UnknownGroupError{Name: name, System: o.System, Known: known}
		}
		if !staged[name] {
			i := slices.IndexFunc(f.Packages.Groups, func(g config.Group) bool { return g.Name == name && g.System == o.System })
			g := f.Packages.Groups[i]
			return nil, nil, &NotStagedError{Group: g.Title(), Presets: g.Presets, From: o.From}
		}
	}
	switch {
	case len(known) == 0:
		return nil, nil, &UnknownGroupError{System: o.System}
	case len(groups) == 0:
		return nil, nil, first
	}
	return groups, leftOut, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// threads is how many are used; what is made does not depend on it.
func threads() int { return max(1, runtime.GOMAXPROCS(0)) }
