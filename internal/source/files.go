package source

import (
	"context"
	"slices"

	"payload/internal/config"
)

// Files gives what somebody compiled, as the one place m has it: laid out,
// checked and held like a source, under a name for messages. The digest in m
// settles what is in it, so neither git nor the lock is asked. What req says of
// a component, of its series and of sources other than the store and mirrors is
// passed over.
func (s *Store) Files(ctx context.Context, req Request, name string, m config.Mirror) (*Tree, error) {
	kinds := slices.DeleteFunc(slices.Clone(req.kinds()), func(k Kind) bool { return k == FromGit })
	if len(kinds) == 0 { // git alone was allowed
		return nil, &NoSourceError{Component: name, Ref: m.Ref}
	}
	return s.Tree(ctx, Request{
		File: req.File, Component: config.Component{Name: name, Mirrors: []config.Mirror{m}}, Ref: m.Ref,
		Kinds: kinds, Repair: req.Repair, Tell: req.Tell, compiled: true,
	})
}
