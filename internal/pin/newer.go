package pin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"payload/internal/git"
)

// Newer lists upstream's tags of ref's family that come after it, oldest
// first. An upstream that doesn't answer is an *UnreachableError.
func Newer(ctx context.Context, location, ref string, timeout time.Duration) ([]string, error) {
	asking, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	tags, err := git.RemoteTags(asking, location)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("asking %s for its tags: %w", location, context.Cause(ctx))
	}
	if err != nil {
		return nil, &UnreachableError{Location: location, Err: err}
	}
	tags = slices.DeleteFunc(tags, func(tag string) bool {
		order, ok := Compare(tag, ref)
		return !ok || order <= 0
	})
	slices.SortFunc(tags, func(a, b string) int {
		order, _ := Compare(a, b) // one family: always comparable
		return order
	})
	return tags, nil
}
