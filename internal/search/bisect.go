package search

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"payload/internal/atomicfile"
	"payload/internal/patch"
	"payload/internal/pin"
	"payload/internal/run"
	"payload/internal/source"
	"payload/internal/workspace"
)

// A bisection keeps what it has learnt in build/bisect/COMPONENT/state.json,
// written whole after each ref that was asked. A kill at any instant costs the
// ref that was being asked, and no more.
const bisectState = "state.json"

// Mark is what a command said of a ref.
type Mark string

// The marks, as git bisect run has them.
const (
	Good Mark = "good" // exit 0
	Bad  Mark = "bad"  // exit 1 to 124, 126, 127
	Skip Mark = "skip" // exit 125; no source; the series doesn't apply
)

// exitSkip is the exit code by which a command says that it can't tell.
const exitSkip = 125

// exitStop is the first exit code that ends a bisection: a shell gives such
// where a signal ended its command.
const exitStop = 128

// The exit codes by which a shell says that it can't run a command.
const (
	exitNoProgram = 126
	exitNoCommand = 127
)

// Outcome is how a bisection ended.
type Outcome string

// The outcomes.
const (
	FoundFirst Outcome = "found"       // FirstBad is the first bad ref
	FoundAmong Outcome = "found-among" // it's FirstBad or one of Skipped, which told nothing
	BadAtOld   Outcome = "bad-at-old"  // the oldest ref is bad already
	GoodAtNew  Outcome = "good-at-new" // the newest ref is good still
)

// Bisection is the state of one, and its report: payload.bisect/v1.
type Bisection struct {
	Schema    string        `json:"schema"`
	Component string        `json:"component"`
	Pinned    string        `json:"pinned"` // the ref that the series was made for
	Old       string        `json:"old"`
	New       string        `json:"new"`
	Command   []string      `json:"command"`
	Asked     []BisectProbe `json:"asked"`
	Outcome   Outcome       `json:"outcome,omitempty"` // empty while it isn't done
	LastGood  string        `json:"last_good,omitempty"`
	FirstBad  string        `json:"first_bad,omitempty"`
	Skipped   []string      `json:"skipped,omitempty"` // refs between the two that told nothing
	Commits   *CommitRange  `json:"commits,omitempty"`

	Refs   []string    `json:"refs"` // after Old, up to New
	Series []pin.Patch `json:"series"`
	Dir    string      `json:"dir"` // where the command runs
}

// CommitRange is what lies between the last good ref and the first bad one.
type CommitRange struct {
	From string          `json:"from,omitempty"` // excluded; empty where no source tells
	To   string          `json:"to,omitempty"`
	List []source.Commit `json:"list,omitempty"` // newest first; empty where upstream wasn't asked
}

// BisectProbe is one ref that was asked.
type BisectProbe struct {
	Ref     string  `json:"ref"`
	Mark    Mark    `json:"mark"`
	Told    bool    `json:"told"` // it was given beforehand; nothing was run
	Exit    int     `json:"exit"` // of the command; -1 where it wasn't run
	Seconds float64 `json:"seconds"`
	Why     string  `json:"why,omitempty"` // what it printed of an error, or last; or why it wasn't run
	Log     string  `json:"log,omitempty"` // relative to the root
}

// BisectOptions say what to ask.
type BisectOptions struct {
	Old, New string
	Command  []string
	Dir      string            // where the command runs; absolute
	Marks    map[string]Mark   // refs that needn't be asked
	Env      []string          // for the command, beside what Run sets
	Tell     func(BisectProbe) // after each ref that was asked
	Note     func(format string, args ...any)
}

// BisectOpenError is a bisection that is in the way of another one.
type BisectOpenError struct{ Component, What string }

func (e *BisectOpenError) Error() string {
	return fmt.Sprintf("bisecting %s: another bisection is open: %s", e.Component, e.What)
}

// NoBisectionError is one that was to be continued or ended and isn't there.
type NoBisectionError struct{ Component string }

func (e *NoBisectionError) Error() string { return "no bisection of " + e.Component + " is open" }

// BisectStopError is a command that asked for the end of the bisection.
type BisectStopError struct {
	Component, Ref, Log string
	Err                 error
}

func (e *BisectStopError) Error() string {
	return fmt.Sprintf("bisecting %s: at %s: %v; exit codes from %d on stop it", e.Component, e.Ref, e.Err, exitStop)
}
func (e *BisectStopError) Unwrap() error { return e.Err }

// BisectDir is where a component's bisection is kept.
func BisectDir(w *workspace.Workspace, component string) string {
	return filepath.Join(w.File.Root, "build", "bisect", component)
}

// BisectEndError is an end of the range that was skipped.
type BisectEndError struct{ Component, Ref, Why string }

func (e *BisectEndError) Error() string {
	return fmt.Sprintf("bisecting %s: %s is an end of the range and tells nothing: %s", e.Component, e.Ref, e.Why)
}

// bisector is a bisection at work.
type bisector struct {
	w     *workspace.Workspace
	p     workspace.Pinned
	dir   string
	opts  BisectOptions
	state Bisection
}

// Bisect finds the first ref of a range at which a command fails. The patches
// are carried to each ref by the three-way merge; where they don't apply, the ref
// is skipped. A bisection that is open with the same range and command is gone
// on with, any other one is a *BisectOpenError. With empty Old, the one that is
// open is continued.
func Bisect(ctx context.Context, w *workspace.Workspace, name string, opts BisectOptions) (Bisection, error) {
	b := &bisector{w: w, dir: BisectDir(w, name), opts: opts}
	var err error
	if b.p, err = w.Asked(name); err != nil {
		return Bisection{}, err
	}
	lock, err := lockBisection(ctx, b.dir, name)
	if err != nil {
		return Bisection{}, err
	}
	defer func() { _ = lock.Close() }() // it goes with the process at the latest
	if err := b.begin(ctx, name); err != nil {
		return b.state, err
	}
	if b.state.Outcome != "" {
		return b.state, nil
	}
	if err := b.search(ctx); err != nil {
		return b.state, err
	}
	if err := b.commits(ctx); err != nil {
		return b.state, err
	}
	return b.state, b.save()
}

// AbortBisection forgets an open bisection. Its logs go too.
func AbortBisection(ctx context.Context, w *workspace.Workspace, name string) error {
	if _, err := w.File.Component(name); err != nil {
		return err
	}
	dir := BisectDir(w, name)
	lock, err := lockBisection(ctx, dir, name)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // it goes with the process at the latest
	// The state first: a folder without it is no bisection.
	err = os.Remove(filepath.Join(dir, bisectState))
	if errors.Is(err, fs.ErrNotExist) {
		return &NoBisectionError{Component: name}
	}
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return fmt.Errorf("forgetting the bisection of %s: %w", name, err)
	}
	return nil
}

// dying is how long a killed process may take to let go of its lock.
const dying = 2 * time.Second

// lockBisection keeps a second process out.
func lockBisection(ctx context.Context, dir, name string) (*flock.Flock, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("bisecting %s: %w", name, err)
	}
	// Beside the folder, which an abort deletes.
	lock := flock.New(dir + ".lock")
	waiting, cancel := context.WithTimeout(ctx, dying)
	defer cancel()
	_, err := lock.TryLockContext(waiting, 50*time.Millisecond)
	switch {
	case err == nil:
		return lock, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("bisecting %s: %w", name, context.Cause(ctx))
	case waiting.Err() != nil:
		return nil, &BisectOpenError{Component: name, What: "another process is at it"}
	}
	return nil, fmt.Errorf("bisecting %s: locking %s.lock: %w", name, dir, err)
}

// begin reads the state that is there, or makes one.
func (b *bisector) begin(ctx context.Context, name string) error {
	there, err := b.load()
	if err != nil {
		return err
	}
	asksNothing := b.opts.Old == ""
	switch {
	case asksNothing && !there:
		return &NoBisectionError{Component: name}
	case there && (asksNothing || b.state.Outcome == "" && b.same()):
		if err := b.unchanged(); err != nil || b.state.Outcome != "" {
			return err
		}
		return b.told()
	case there && b.state.Outcome == "":
		s := b.state
		return &BisectOpenError{Component: name, What: fmt.Sprintf("%s..%s -- %s", s.Old, s.New, strings.Join(s.Command, " "))}
	}
	if _, err := run.LookPath(program(b.opts.Dir, b.opts.Command[0])); err != nil {
		return err
	}
	list, err := List(ctx, b.w, name, Options{History: true, Tell: b.opts.Note})
	if err != nil {
		return err
	}
	refs, err := list.Range(b.opts.Old, b.opts.New)
	if err != nil {
		return err
	}
	b.state = Bisection{
		Schema: "payload.bisect/v1", Component: name, Pinned: b.p.Ref, Old: b.opts.Old, New: b.opts.New,
		Command: b.opts.Command, Dir: b.opts.Dir, Refs: refs, Series: b.p.Series.Digests(), Asked: []BisectProbe{},
	}
	if err := b.told(); err != nil {
		return err
	}
	// Logs of one before would be taken for its own.
	if err := os.RemoveAll(b.logs()); err != nil {
		return fmt.Errorf("bisecting %s: %w", name, err)
	}
	return b.save()
}

// told takes in the marks that were given. They count for more than what the
// command said of a ref before.
func (b *bisector) told() error {
	s := &b.state
	for _, ref := range append([]string{s.Old}, s.Refs...) {
		mark, given := b.opts.Marks[ref]
		p := BisectProbe{Ref: ref, Mark: mark, Told: true, Exit: -1}
		asked := slices.IndexFunc(s.Asked, func(p BisectProbe) bool { return p.Ref == ref })
		switch {
		case !given:
		case asked < 0:
			s.Asked = append(s.Asked, p)
		case s.Asked[asked].Mark != mark:
			s.Asked[asked] = p
		}
	}
	for ref, mark := range b.opts.Marks {
		if ref != s.Old && !slices.Contains(s.Refs, ref) {
			return &NotListedError{Component: s.Component, Ref: ref, Why: fmt.Sprintf(" from %s to %s, so it can't be %s", s.Old, s.New, mark)}
		}
	}
	return nil
}

func (b *bisector) same() bool {
	s := b.state
	return s.Old == b.opts.Old && s.New == b.opts.New && slices.Equal(s.Command, b.opts.Command)
}

// unchanged refuses to mix what two series or pins gave.
func (b *bisector) unchanged() error {
	s := b.state
	if s.Outcome != "" || s.Pinned == b.p.Ref && slices.Equal(s.Series, b.p.Series.Digests()) {
		return nil
	}
	return &BisectOpenError{Component: s.Component, What: fmt.Sprintf("%s..%s, begun with another pin or other patches than there are now", s.Old, s.New)}
}

func (b *bisector) load() (bool, error) {
	data, err := os.ReadFile(filepath.Join(b.dir, bisectState))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &b.state)
	}
	if err != nil {
		return false, fmt.Errorf("reading the bisection in %s: %w", b.dir, err)
	}
	return true, nil
}

func (b *bisector) save() error {
	data, err := json.MarshalIndent(b.state, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the bisection: %w", err)
	}
	return atomicfile.Write(filepath.Join(b.dir, bisectState), append(data, '\n'), 0o644)
}

func (b *bisector) logs() string { return filepath.Join(b.dir, "logs") }

// search asks both ends and then halves the way between them. Where the first
// end decides, the second is not asked: a probe may be a build of an hour.
func (b *bisector) search(ctx context.Context) error {
	s := &b.state
	old, err := b.end(ctx, s.Old)
	if err != nil {
		return err
	}
	if old == Bad {
		s.Outcome, s.FirstBad = BadAtOld, s.Old
		return nil
	}
	new, err := b.end(ctx, s.New)
	if err != nil {
		return err
	}
	if new == Good {
		s.Outcome, s.LastGood = GoodAtNew, s.New
		return nil
	}
	a := newAsked(len(s.Refs), func(i int) (outcome, error) {
		mark, err := b.mark(ctx, s.Refs[i])
		return map[Mark]outcome{Good: good, Bad: bad, Skip: out}[mark], err
	})
	last, first, err := a.narrow(-1, len(s.Refs)-1)
	if err != nil {
		return err
	}
	s.Outcome, s.LastGood, s.FirstBad = FoundFirst, s.Old, s.Refs[first]
	if last >= 0 {
		s.LastGood = s.Refs[last]
	}
	if first-last > 1 {
		s.Outcome, s.Skipped = FoundAmong, s.Refs[last+1:first]
	}
	return nil
}

// end asks an end of the range, which has to tell something.
func (b *bisector) end(ctx context.Context, ref string) (Mark, error) {
	mark, err := b.mark(ctx, ref)
	if err != nil {
		return mark, err
	}
	for _, p := range b.state.Asked {
		// A shell says so of a command that isn't there: no word about the ref.
		missing := ref == b.state.Old && (p.Exit == exitNoCommand || p.Exit == exitNoProgram)
		if p.Ref == ref && (missing || mark == Skip) {
			return mark, &BisectEndError{Component: b.state.Component, Ref: ref, Why: p.Why}
		}
	}
	return mark, nil
}

// mark asks one ref, unless it was asked before.
func (b *bisector) mark(ctx context.Context, ref string) (Mark, error) {
	for _, p := range b.state.Asked {
		if p.Ref == ref {
			return p.Mark, nil
		}
	}
	started := time.Now()
	p, err := b.try(ctx, ref)
	if err != nil {
		return "", err
	}
	p.Seconds = time.Since(started).Seconds()
	b.state.Asked = append(b.state.Asked, p)
	if err := b.save(); err != nil {
		return "", err
	}
	if b.opts.Tell != nil {
		b.opts.Tell(p)
	}
	return p.Mark, nil
}

// try runs the command on the patched tree of a ref.
func (b *bisector) try(ctx context.Context, ref string) (BisectProbe, error) {
	p := BisectProbe{Ref: ref, Mark: Skip, Exit: -1}
	tree, err := b.w.Quiet().Tree(ctx, b.w.Carried(b.p, ref), false)
	var conflict *patch.ConflictError
	var missing *source.NoSourceError
	if errors.As(err, &conflict) || errors.As(err, &missing) && missing.Ref == ref && source.Passable(ctx, err) {
		p.Why = err.Error()
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("bisecting %s: at %s: %w", b.state.Component, ref, err)
	}
	defer func() { _ = tree.Close() }() // the lock goes with the process at the latest
	if err := os.MkdirAll(b.logs(), 0o755); err != nil {
		return p, fmt.Errorf("bisecting %s: %w", b.state.Component, err)
	}
	path := filepath.Join(b.logs(), strings.ReplaceAll(ref, "/", "_")+".log")
	p.Log = filepath.ToSlash(strings.TrimPrefix(path, b.w.File.Root+string(filepath.Separator)))
	if b.opts.Note != nil {
		b.opts.Note("%s %s: running the command; its output is in %s", b.state.Component, ref, p.Log)
	}
	log, err := os.Create(path)
	if err != nil {
		return p, fmt.Errorf("bisecting %s: %w", b.state.Component, err)
	}
	err = b.command(ctx, ref, tree.Path, log)
	err = errors.Join(err, log.Close())
	if ctx.Err() != nil {
		return p, fmt.Errorf("cancelled while bisecting %s, at %s: %w", b.state.Component, ref, context.Cause(ctx))
	}
	exit, exited := errors.AsType[*run.ExitError](err)
	switch {
	case err == nil:
		p.Mark, p.Exit = Good, 0
		return p, nil
	case !exited:
		return p, fmt.Errorf("bisecting %s: at %s: %w", b.state.Component, ref, err)
	case exit.Signal != "" || exit.Code >= exitStop:
		return p, &BisectStopError{Component: b.state.Component, Ref: ref, Log: p.Log, Err: err}
	}
	p.Exit, p.Why = exit.Code, cmp.Or(saidIn(path), exit.Error())
	if exit.Code != exitSkip {
		p.Mark = Bad
	}
	return p, nil
}

// program is a command as a process that runs in dir finds it.
func program(dir, name string) string {
	if strings.ContainsAny(name, `/\`) && !filepath.IsAbs(name) {
		return filepath.Join(dir, name)
	}
	return name
}

// command runs what the user gave, in their own environment: it is no tool of
// ours.
func (b *bisector) command(ctx context.Context, ref, tree string, log io.Writer) error {
	c := b.p.Component
	env := slices.Concat(os.Environ(), b.opts.Env, []string{
		"PAYLOAD_BISECT_REF=" + ref,
		"PAYLOAD_SOURCE_" + c.Var() + "=" + tree,
		// A payload below works at this ref, and knows its commit and number.
		workspace.RefVar(c) + "=" + ref,
	})
	args := append([]string{program(b.state.Dir, b.state.Command[0])}, b.state.Command[1:]...)
	_, err := run.Do(ctx, run.Cmd{Dir: b.state.Dir, Args: args, Env: env, OnlyEnv: true, Stdout: log, Stderr: log})
	return err
}

// saidIn is the line of a log that tells why the command failed.
func saidIn(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return run.Reason(string(data), 1)
}

// commits adds which commits lie between the last good ref and the first bad.
func (b *bisector) commits(ctx context.Context) error {
	s := &b.state
	if s.Outcome != FoundFirst && s.Outcome != FoundAmong {
		return nil
	}
	r := &CommitRange{}
	for ref, into := range map[string]*string{s.LastGood: &r.From, s.FirstBad: &r.To} {
		tree, err := b.w.Quiet().Pristine(ctx, b.w.At(b.p, ref))
		if err != nil {
			return err
		}
		*into = tree.Commit
	}
	s.Commits = r
	if r.From == "" || r.To == "" || !b.w.Asks(source.FromGit) {
		return nil
	}
	note := b.opts.Note
	if note == nil {
		note = func(string, ...any) {}
	}
	h, err := b.w.Store().Lineage(ctx, b.w.File.Location(b.p.Component), note)
	if err == nil {
		r.List, err = h.Between(ctx, r.From, r.To)
	}
	if err != nil && ctx.Err() == nil {
		note("note: %v", err) // the two commits stand without what lies between
		return nil
	}
	return err
}
