package pack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"payload/internal/run"
)

// repository is the commit that packages, and the time of everything made.
type repository struct {
	commit  string // empty outside of git
	changed bool   // files differ from the commit
	time    time.Time
}

// lookAt reads the commit of the repository at root. The time is
// SOURCE_DATE_EPOCH, else the commit's, else the beginning of 1980, which every
// form of archive can tell.
func lookAt(ctx context.Context, root string) (repository, error) {
	r := repository{time: time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC)}
	res, err := run.Do(ctx, run.Cmd{Dir: root, Args: []string{"git", "log", "-1", "--format=%H %ct"}})
	var failed *run.ExitError
	switch {
	case err == nil:
		commit, seconds, _ := strings.Cut(strings.TrimSpace(string(res.Stdout)), " ")
		n, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil {
			return r, fmt.Errorf("reading the commit of %s: git says %q", root, res.Stdout)
		}
		r.commit, r.time = commit, time.Unix(n, 0).UTC()
		// A look must not write: git would refresh the index, and fail where the disk is full.
		res, err := run.Do(ctx, run.Cmd{Dir: root, Args: []string{"git", "--no-optional-locks", "status", "--porcelain", "--untracked-files=no"}})
		if err != nil {
			return r, fmt.Errorf("reading the state of %s: %w", root, err)
		}
		r.changed = len(res.Stdout) > 0
	case !errors.As(err, &failed):
		return r, fmt.Errorf("reading the commit of %s: %w", root, err)
	}
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		n, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil || n < 0 {
			return r, fmt.Errorf("reading SOURCE_DATE_EPOCH: %q is no number of seconds since 1970", epoch)
		}
		r.time = time.Unix(n, 0).UTC()
	}
	return r, nil
}
