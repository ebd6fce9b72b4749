// Package workspace is a repository as the verbs see it: payload.yaml, the
// lock, the patch series and the store, brought together into trees. The parts
// know nothing of each other; what has to agree is checked here.
package workspace

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"payload/internal/config"
	"payload/internal/patch"
	"payload/internal/pin"
	"payload/internal/source"
)

// Options say how sources are found.
type Options struct {
	Dir            string            // where to look for payload.yaml, upwards
	Overrides      map[string]string // component -> folder
	Refs           map[string]string // component -> ref in place of its pin; see RefVar
	Kinds          []source.Kind     // nil: source.DefaultKinds
	AllowUnpatched bool
	Repair         bool // make damaged stored trees anew instead of stopping
	Tell           func(format string, args ...any)
}

// Workspace is an opened repository.
type Workspace struct {
	File *config.File
	Lock *pin.Lock

	opts  Options
	store *source.Store
	read  *memory
}

// memory is which pristine trees this process has found already, so that
// upstream is asked about a ref once.
type memory struct {
	mu    sync.Mutex
	trees map[string]source.Pristine
}

// Open loads the repository around opts.Dir and the store.
func Open(ctx context.Context, opts Options) (*Workspace, error) {
	root, err := config.Find(opts.Dir)
	if err != nil {
		return nil, err
	}
	w := &Workspace{opts: opts, read: &memory{trees: map[string]source.Pristine{}}}
	if w.File, err = config.Load(root); err != nil {
		return nil, err
	}
	for name := range opts.Overrides {
		if _, err := w.File.Component(name); err != nil {
			return nil, err
		}
	}
	if w.Lock, err = pin.LoadLock(root); err != nil {
		return nil, err
	}
	dir, err := source.DefaultDir()
	if err != nil {
		return nil, err
	}
	if w.store, err = source.Open(ctx, dir); err != nil {
		return nil, err
	}
	return w, nil
}

// Store is where trees are kept.
func (w *Workspace) Store() *source.Store { return w.store }

// Asks says whether sources of a kind may be asked.
func (w *Workspace) Asks(kind source.Kind) bool {
	return len(w.opts.Kinds) == 0 || slices.Contains(w.opts.Kinds, kind)
}

// Pinned is a component as the repository asks for it.
type Pinned struct {
	Component config.Component
	Ref       string
	Series    patch.Series
	Entry     *pin.Entry // nil when the lock has none
	elsewhere bool       // at another ref than the pin, which an override doesn't stand for
	madeFor   *Pinned    // where the series was made, when it's carried to another ref
}

// Pinned reads a component's pin and series and holds them against the lock;
// a *pin.Disagreement says that the lock has to be written anew. Where
// PAYLOAD_REF_<NAME> names another ref, it is the series carried there.
func (w *Workspace) Pinned(name string) (Pinned, error) {
	p, err := w.Asked(name)
	if err != nil {
		return p, err
	}
	if ref := w.askedRef(p.Component); ref != "" && ref != p.Ref {
		if err := pin.CheckRef(ref); err != nil {
			return p, fmt.Errorf("reading %s: %w", RefVar(p.Component), err)
		}
		w.tell("%s at %s in place of %s, its patches carried there", name, ref, p.Ref)
		return w.Carried(p, ref), nil
	}
	p.Entry, err = w.Lock.For(name, p.Ref, p.Series.Digests())
	if err == nil && p.Entry != nil {
		err = p.Entry.HoldPrebuilt(prebuiltRows(p))
	}
	return p, err
}

// Asked is Pinned without holding the series against the lock; Entry is what
// the lock knows of the ref.
func (w *Workspace) Asked(name string) (Pinned, error) {
	c, err := w.File.Component(name)
	if err != nil {
		return Pinned{}, err
	}
	p := Pinned{Component: c}
	if p.Ref, err = pin.Read(w.File, c); err != nil {
		return p, err
	}
	if c.Patches != "" {
		if p.Series, err = patch.Load(w.File.Abs(c.Patches)); err != nil {
			return p, err
		}
	}
	if e, ok := w.Lock.Entry(name, p.Ref); ok {
		p.Entry = &e
	}
	return p, nil
}

// At is p at another ref than its pin.
func (w *Workspace) At(p Pinned, ref string) Pinned {
	if p.Ref == ref {
		return p
	}
	p.Ref, p.Entry, p.elsewhere = ref, nil, true
	if e, ok := w.Lock.Entry(p.Component.Name, ref); ok {
		p.Entry = &e
	}
	return p
}

// RefVar is the variable that puts another ref in the place of c's pin for one
// process and its children, as a bisection does.
func RefVar(c config.Component) string { return "PAYLOAD_REF_" + c.Var() }

// Moved is w with one component at another ref than its pin, its series carried
// there.
func (w *Workspace) Moved(name, ref string) *Workspace {
	moved := *w
	moved.opts.Refs = map[string]string{name: ref}
	return &moved
}

// Quiet is w without a word about its steps, for asking many refs.
func (w *Workspace) Quiet() *Workspace {
	quiet := *w
	quiet.opts.Tell = nil
	return &quiet
}

// askedRef is what RefVar holds; a folder that was named outright goes before it.
func (w *Workspace) askedRef(c config.Component) string {
	if ref := w.opts.Refs[c.Name]; ref != "" || w.opts.Overrides[c.Name] != "" {
		return ref
	}
	return os.Getenv(RefVar(c))
}

// Carried is p at another ref with the series as it stands, to be put there by
// the three-way merge from the tree that it was made for.
func (w *Workspace) Carried(p Pinned, ref string) Pinned {
	if p.Ref == ref {
		return p
	}
	moved := w.At(p, ref)
	moved.madeFor = &p
	return moved
}

// Tree is a component's patched tree on disk, checked and locked for reading
// until it is closed. With pristine the series is left out.
func (w *Workspace) Tree(ctx context.Context, p Pinned, pristine bool) (*source.Tree, error) {
	req := w.request(p)
	if p.Entry == nil && req.Override == "" {
		w.tell("%s %s: not in %s; what a source answers is taken as it is", p.Component.Name, p.Ref, pin.LockName)
	}
	if pristine {
		return w.store.Tree(ctx, req)
	}
	if p.madeFor != nil {
		base, err := w.Pristine(ctx, *p.madeFor)
		if err != nil {
			return nil, err
		}
		req.MadeFor = base.Tree
	}
	req.Patches = p.Series.Digests()
	req.Apply = w.apply(p, req.MadeFor)
	return w.store.Tree(ctx, req)
}

// Pristine makes a ref's pristine tree available as git objects, without
// writing it anywhere else.
func (w *Workspace) Pristine(ctx context.Context, p Pinned) (source.Pristine, error) {
	req := w.request(p)
	if req.Override != "" {
		return w.store.Pristine(ctx, req) // a folder may change
	}
	key := fmt.Sprintf("%s\x00%s\x00%t", p.Component.Name, p.Ref, p.Entry == nil)
	w.read.mu.Lock()
	found, ok := w.read.trees[key]
	w.read.mu.Unlock()
	if ok {
		return found, nil
	}
	found, err := w.store.Pristine(ctx, req)
	if err == nil {
		w.read.mu.Lock()
		w.read.trees[key] = found
		w.read.mu.Unlock()
	}
	return found, err
}

// Settled is p with what a source gave for it, so that nobody is asked again.
func (p Pinned) Settled(at source.Pristine) Pinned {
	if p.Entry == nil {
		row := pin.Source{From: at.From, Pristine: at.Tree, Patched: at.Tree}
		p.Entry = &pin.Entry{Component: p.Component.Name, Ref: p.Ref, Commit: at.Commit, Build: at.Build, Sources: []pin.Source{row}}
	}
	return p
}

// kinds are the kinds of source that may be asked.
func (w *Workspace) kinds() []source.Kind {
	if w.opts.Kinds == nil {
		return source.DefaultKinds
	}
	return w.opts.Kinds
}

// Unmoved asks upstream whether p's tag still names the commit that git gave
// when it was locked; a *pin.MovedTagError says that it doesn't. An upstream
// that doesn't answer, or isn't to be asked, says nothing.
func (w *Workspace) Unmoved(ctx context.Context, p Pinned) error {
	if p.Entry == nil || p.Entry.Commit == "" || !slices.Contains(w.kinds(), source.FromGit) {
		return nil
	}
	if _, judged := p.Entry.Source(string(source.FromGit)); !judged {
		return nil
	}
	timeout, err := pin.Timeout()
	if err != nil {
		return err
	}
	now, err := pin.Ask(ctx, w.File.Location(p.Component), p.Ref, timeout)
	if err == nil && !now.Branch && now.Commit != p.Entry.Commit {
		return &pin.MovedTagError{Component: p.Component.Name, Ref: p.Ref, Locked: p.Entry.Commit, Now: now.Commit}
	}
	return ctx.Err()
}

// History is upstream's history of p's component, up to the commits.
func (w *Workspace) History(ctx context.Context, p Pinned, commits ...string) (source.History, error) {
	return w.store.History(ctx, w.request(p), commits...)
}

// KeptHistory is History where it was fetched before.
func (w *Workspace) KeptHistory(ctx context.Context, p Pinned, commits ...string) (source.History, bool) {
	return w.store.KeptHistory(ctx, w.request(p), commits...)
}

// CheckSeries judges p's series against ref. Away from the pin, the right place
// for a hunk is where the merge from the pinned tree lands.
func (w *Workspace) CheckSeries(ctx context.Context, p Pinned, ref string) (patch.Report, error) {
	base, err := w.Pristine(ctx, p)
	if err != nil {
		return patch.Report{}, err
	}
	onto := base
	if ref != p.Ref {
		if onto, err = w.Pristine(ctx, w.At(p, ref)); err != nil {
			return patch.Report{}, err
		}
	}
	report, _, err := patch.CheckFrom(ctx, w.store.Repo(), base.Tree, onto.Tree, p.Series)
	if err != nil {
		return report, fmt.Errorf("checking the series of %s on %s: %w", p.Component.Name, ref, w.store.Full(err))
	}
	report.Component, report.Ref = p.Component.Name, ref
	return report, nil
}

func (w *Workspace) request(p Pinned) source.Request {
	override := w.Override(p.Component)
	if p.elsewhere {
		override = ""
	}
	return source.Request{
		File: w.File, Component: p.Component, Ref: p.Ref, Entry: p.Entry,
		Override: override, Kinds: w.opts.Kinds,
		AllowUnpatched: w.opts.AllowUnpatched, Repair: w.opts.Repair, Tell: w.opts.Tell,
	}
}

// Override is the folder that is used as c's source in place of all others;
// empty for none.
func (w *Workspace) Override(c config.Component) string {
	if dir := w.opts.Overrides[c.Name]; dir != "" || w.askedRef(c) != "" {
		return dir
	}
	return os.Getenv("PAYLOAD_SOURCE_" + c.Var())
}

// Depends lists what calls for another tree when it changes, absolute: files,
// and the folder of the patches, which ends in a slash and need not be there.
func (w *Workspace) Depends(p Pinned) []string {
	files := []string{filepath.Join(w.File.Root, config.FileName), w.File.Abs(p.Component.Pin)}
	if lock := filepath.Join(w.File.Root, pin.LockName); fileExists(lock) {
		files = append(files, lock)
	}
	if p.Component.Patches != "" {
		files = append(files, w.File.Abs(p.Component.Patches)+"/")
	}
	for _, f := range p.Series.Patches {
		files = append(files, filepath.Join(p.Series.Dir, f.File))
	}
	return files
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Sharing lists the components that a CMake project is given the trees of.
func (w *Workspace) Sharing(project string) []config.Component {
	var found []config.Component
	for _, c := range w.File.Components {
		if c.Project == project {
			found = append(found, c)
		}
	}
	return found
}

// Projects lists the CMake projects that payload.yaml names.
func Projects(f *config.File) []string {
	var found []string
	for _, c := range f.Components {
		if c.Project != "" && !slices.Contains(found, c.Project) {
			found = append(found, c.Project)
		}
	}
	return found
}

func (w *Workspace) tell(format string, args ...any) {
	if w.opts.Tell != nil {
		w.opts.Tell(format, args...)
	}
}
