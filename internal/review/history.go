package review

import (
	"bufio"
	"bytes"
	"context"
	"slices"
	"strings"

	"payload/internal/report"
	"payload/internal/run"
)

// command is the line that shows a finding's change in the private repository.
func (r *reviewer) command(f report.Finding) string {
	var paths []string
	for _, p := range f.Where {
		if p.Ref == "" || slices.Contains(paths, p.Path) {
			continue
		}
		paths = append(paths, p.Path)
	}
	if len(paths) == 0 {
		return f.Command
	}
	const digits = 12 // enough for any one repository
	words := []string{"git", "--git-dir=" + r.in.Repo.Dir, "diff", r.in.Old.Tree[:digits], r.in.New.Tree[:digits], "--"}
	return run.Cmd{Args: append(words, paths[:min(len(paths), 4)]...)}.String()
}

// addCommits names for each finding the upstream commit that made the change,
// where the history between both refs is there: the last one that adds or
// removes a line with the finding's name in its file.
func addCommits(ctx context.Context, in Input, found []report.Finding) error {
	if in.History == nil || in.Old.Commit == "" || in.New.Commit == "" || len(found) == 0 {
		return nil
	}
	var paths []string
	for _, f := range found {
		for _, p := range f.Where {
			if p.Ref != "" && !slices.Contains(paths, p.Path) {
				paths = append(paths, p.Path)
			}
		}
	}
	if len(paths) == 0 {
		return nil
	}
	out, err := in.History.Changes(ctx, in.Old.Commit, in.New.Commit, paths)
	if err != nil {
		return ctx.Err() // files may have to be fetched, and a review is whole without
	}
	commit, path := "", ""
	touched := map[string][]string{} // path -> commits
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "\x00"):
			commit = line[1:]
		case strings.HasPrefix(line, "diff --git "):
			path = line[strings.LastIndex(line, " b/")+3:]
			touched[path] = append(touched[path], commit)
		case strings.HasPrefix(line, "+++") || strings.HasPrefix(line, "---"):
		case strings.HasPrefix(line, "+") || strings.HasPrefix(line, "-"):
			for i := range found {
				if found[i].Commit == "" && concerns(found[i], path, line) {
					found[i].Commit = commit
				}
			}
		}
	}
	for i := range found {
		if found[i].Commit == "" {
			found[i].Commit = only(found[i], touched)
		}
	}
	return lines.Err()
}

// only is the commit that alone touched a finding's files.
func only(f report.Finding, touched map[string][]string) string {
	var commits []string
	for _, p := range f.Where {
		if p.Ref != "" {
			commits = append(commits, touched[p.Path]...)
		}
	}
	slices.Sort(commits)
	if commits = slices.Compact(commits); len(commits) == 1 {
		return commits[0]
	}
	return ""
}

// concerns says whether a changed line of a file is what a finding is about.
func concerns(f report.Finding, path, line string) bool {
	if !slices.ContainsFunc(f.Where, func(p report.Place) bool { return p.Path == path && p.Ref != "" }) {
		return false
	}
	name := nameIn(f)
	for part := range strings.SplitSeq(name, ",") {
		words := strings.FieldsFunc(part, func(r rune) bool { return r == ' ' || r == ':' })
		if len(words) > 0 && strings.Contains(line, last(words[len(words)-1])) {
			return true
		}
	}
	return false
}
