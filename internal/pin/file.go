package pin

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"payload/internal/atomicfile"
	"payload/internal/config"
	"payload/internal/voice"
)

// LockName is the lock's file name, beside payload.yaml.
const LockName = "payload.lock"

const lockHeader = "# What the pins resolved to. Written by \"payload lock\": don't edit, review.\n"

// document is the file's form.
type document struct {
	Version int     `yaml:"version"`
	Entries []Entry `yaml:"entries"`
}

// LoadLock reads root's payload.lock. A missing file is an empty lock.
func LoadLock(root string) (*Lock, error) {
	path := filepath.Join(root, LockName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Lock{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", LockName, err)
	}
	lock, err := parseLock(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return lock, nil
}

func parseLock(data []byte) (*Lock, error) {
	tree, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, errors.New(yaml.FormatError(err, false, true))
	}
	var doc document
	if err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(&doc); err != nil {
		return nil, errors.New(yaml.FormatError(err, false, true))
	}
	if doc.Version != 1 {
		return nil, config.At(tree, "$.version", "version %d is not known; this payload reads version 1", doc.Version)
	}
	seen := map[[2]string]bool{}
	for i, e := range doc.Entries {
		where := fmt.Sprintf("$.entries[%d]", i)
		if seen[[2]string{e.Component, e.Ref}] {
			return nil, config.At(tree, where, "%s %s is listed twice", e.Component, e.Ref)
		}
		seen[[2]string{e.Component, e.Ref}] = true
		if err := e.check(tree, where); err != nil {
			return nil, err
		}
	}
	return &Lock{Entries: doc.Entries}, nil
}

func (e Entry) check(tree *ast.File, where string) error {
	switch {
	case e.Component == "":
		return config.At(tree, where, "an entry without component")
	case e.Ref == "":
		return config.At(tree, where, "the entry of %s has no ref", e.Component)
	case e.Commit != "" && !config.IsObjectID(e.Commit):
		return config.At(tree, where+".commit", "commit %q of %s %s is not a full commit id", e.Commit, e.Component, e.Ref)
	case len(e.Sources) == 0:
		return config.At(tree, where, "%s %s has no source", e.Component, e.Ref)
	}
	for i, p := range e.Patches {
		if p.File == "" || !config.IsSHA256(p.SHA256) {
			return config.At(tree, fmt.Sprintf("%s.patches[%d]", where, i), "patch %d of %s %s needs a file and 64 hexadecimal digits of sha256", i+1, e.Component, e.Ref)
		}
	}
	for i, b := range e.Prebuilt {
		if b.From == "" || b.SHA256 != "" && !config.IsSHA256(b.SHA256) {
			return config.At(tree, fmt.Sprintf("%s.prebuilt[%d]", where, i), "prebuilt %d of %s %s needs where it is from and 64 hexadecimal digits of sha256", i+1, e.Component, e.Ref)
		}
	}
	from := map[string]bool{}
	for i, s := range e.Sources {
		here := fmt.Sprintf("%s.sources[%d]", where, i)
		switch {
		case s.From == "":
			return config.At(tree, here, "source %d of %s %s does not say where it is from", i+1, e.Component, e.Ref)
		case from[s.From]:
			return config.At(tree, here, "%s is listed twice for %s %s", s.From, e.Component, e.Ref)
		case !config.IsObjectID(s.Pristine):
			return config.At(tree, here, "pristine %q is not a tree id", s.Pristine)
		case !config.IsObjectID(s.Patched):
			return config.At(tree, here, "patched %q is not a tree id", s.Patched)
		}
		from[s.From] = true
	}
	return nil
}

// Save writes root's payload.lock in the order that l has; see Sort.
func (l *Lock) Save(root string) error {
	data, err := l.Encode()
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(root, LockName), data, 0o644)
}

// Encode is the text of a payload.lock.
func (l *Lock) Encode() ([]byte, error) {
	doc := document{Version: 1, Entries: slices.Clone(l.Entries)}
	if doc.Entries == nil {
		doc.Entries = []Entry{}
	}
	for i := range doc.Entries {
		if doc.Entries[i].Patches == nil { // "[]", not "null"
			doc.Entries[i].Patches = []Patch{}
		}
	}
	body, err := yaml.MarshalWithOptions(doc, yaml.IndentSequence(true))
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", LockName, err)
	}
	return append([]byte(lockHeader), body...), nil
}

// Sort puts the entries in the order of components, those of one component by
// ref, oldest first. Components that the list lacks come last, by name.
func (l *Lock) Sort(components []string) {
	place := func(name string) int {
		if i := slices.Index(components, name); i >= 0 {
			return i
		}
		return len(components)
	}
	slices.SortStableFunc(l.Entries, func(a, b Entry) int {
		if d := place(a.Component) - place(b.Component); d != 0 {
			return d
		}
		if d := strings.Compare(a.Component, b.Component); d != 0 {
			return d
		}
		// Families apart first: an order that holds for some pairs only sorts
		// differently from run to run.
		if d := strings.Compare(family(a.Ref), family(b.Ref)); d != 0 {
			return d
		}
		if order, ok := Compare(a.Ref, b.Ref); ok && order != 0 {
			return order
		}
		return strings.Compare(a.Ref, b.Ref)
	})
}

// Entry finds the entry of a component at a ref.
func (l *Lock) Entry(component, ref string) (Entry, bool) {
	for _, e := range l.Entries {
		if e.Component == component && e.Ref == ref {
			return e, true
		}
	}
	return Entry{}, false
}

// Put adds an entry, in place of one for the same component and ref.
func (l *Lock) Put(e Entry) {
	for i := range l.Entries {
		if l.Entries[i].Component == e.Component && l.Entries[i].Ref == e.Ref {
			l.Entries[i] = e
			return
		}
	}
	l.Entries = append(l.Entries, e)
}

// Source finds the row of one place, "git" or a mirror's ID.
func (e Entry) Source(from string) (Source, bool) {
	for _, s := range e.Sources {
		if s.From == from {
			return s, true
		}
	}
	return Source{}, false
}

// Disagreement is a lock that says something else than the pin or the series.
type Disagreement struct {
	Component, Ref string
	Locked         []string // the refs the lock has instead; empty when patches differ
	Patches        []string // the files that differ, with how
	Prebuilt       []string // the same of compiled files
}

func (e *Disagreement) Error() string {
	if len(e.Patches) > 0 {
		return fmt.Sprintf("%s disagrees with the patches of %s %s: %s", LockName, e.Component, e.Ref, voice.List(e.Patches, 8))
	}
	if len(e.Prebuilt) > 0 {
		return fmt.Sprintf("%s disagrees with the prebuilt files of %s %s: %s", LockName, e.Component, e.Ref, voice.List(e.Prebuilt, 8))
	}
	return fmt.Sprintf("%s disagrees with the pin of %s: pinned is %s, locked %s", LockName, e.Component, e.Ref, strings.Join(e.Locked, ", "))
}

// For returns the entry that a component pinned at ref with this series uses.
// It is nil where the lock knows nothing of the component, and the error is a
// *Disagreement where it knows something else.
func (l *Lock) For(component, ref string, patches []Patch) (*Entry, error) {
	e, ok := l.Entry(component, ref)
	if !ok {
		var others []string
		for _, other := range l.Entries {
			if other.Component == component {
				others = append(others, other.Ref)
			}
		}
		if len(others) > 0 {
			return nil, &Disagreement{Component: component, Ref: ref, Locked: others}
		}
		return nil, nil
	}
	if differ := differing(e.Patches, patches, "not on disk"); len(differ) > 0 {
		return nil, &Disagreement{Component: component, Ref: ref, Patches: differ}
	}
	return &e, nil
}

// HoldPrebuilt compares e's prebuilt files with those that payload.yaml has for
// the same ref. The error is a *Disagreement.
func (e Entry) HoldPrebuilt(wanted []Prebuilt) error {
	patches := func(list []Prebuilt) (as []Patch) {
		for _, p := range list {
			as = append(as, Patch{File: p.From, SHA256: p.SHA256})
		}
		return as
	}
	if differ := differing(patches(e.Prebuilt), patches(wanted), "not in "+config.FileName); len(differ) > 0 {
		return &Disagreement{Component: e.Component, Ref: e.Ref, Prebuilt: differ}
	}
	return nil
}

// differing names the files that are not the same in both lists; gone says where
// one of the lock's alone is not.
func differing(locked, wanted []Patch, gone string) []string {
	if slices.Equal(locked, wanted) {
		return nil
	}
	digests := map[string]string{}
	for _, p := range locked {
		digests[p.File] = p.SHA256
	}
	var names []string
	for _, p := range wanted {
		switch digest, ok := digests[p.File]; {
		case !ok:
			names = append(names, p.File+" (not in the lock)")
		case digest != p.SHA256:
			names = append(names, p.File+" (changed)")
		}
		delete(digests, p.File)
	}
	for _, p := range locked {
		if _, left := digests[p.File]; left {
			names = append(names, p.File+" ("+gone+")")
		}
	}
	if len(names) == 0 {
		names = append(names, "their order")
	}
	return names
}
