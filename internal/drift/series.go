package drift

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"payload/internal/git"
	"payload/internal/patch"
	"payload/internal/report"
	"payload/internal/run"
)

func checkSeries(ctx context.Context, r *repo) ([]report.Finding, error) {
	var found []report.Finding
	for _, c := range r.file.Components {
		if c.Patches == "" {
			continue
		}
		t, err := r.trees[c.Name](ctx)
		if err != nil {
			return nil, err
		}
		s := t.pinned.Series
		found = append(found, numbers(c.Patches, s)...)
		for _, p := range s.Patches {
			at := place(path.Join(c.Patches, p.File), 1)
			if p.Malformed != "" {
				id := "series.malformed"
				if strings.HasPrefix(p.Malformed, "duplicate number") {
					id = "series.duplicate"
				}
				found = append(found, finding(id, p.File, report.Error, at, fmt.Sprintf("%s can't be used: %s", p.File, p.Malformed), "", ""))
				continue
			}
			for _, fault := range p.MetadataFaults() {
				found = append(found, finding("series.metadata", fault, report.Error, at, fmt.Sprintf("%s: %s", p.File, fault), "", "payload patch edit "+c.Name))
			}
		}
		for _, v := range t.judged.Patches {
			if v.Verdict == patch.Clean || v.Verdict == patch.Malformed {
				continue
			}
			severity, fix := report.Error, "payload patch edit "+c.Name
			if t.patched != "" {
				severity, fix = report.Warning, "payload drift --fix"
			}
			found = append(found, finding("series."+string(v.Verdict), v.File, severity, place(path.Join(c.Patches, v.File), 1),
				fmt.Sprintf("%s on %s %s: %s", v.File, c.Name, t.pinned.Ref, v.Verdict), v.Detail, fix))
		}
		if t.patched != "" {
			changes, err := exported(ctx, r, t)
			if err != nil {
				return nil, err
			}
			for _, change := range changes {
				file := change.File
				if change.From != "" {
					file = change.From
				}
				found = append(found, finding("series.export", file, report.Warning, place(path.Join(c.Patches, file), 1),
					fmt.Sprintf("%s does not export to itself", file), "An export would have "+change.String()+".", "payload drift --fix"))
			}
		}
		strays, err := strays(ctx, r, c.Patches)
		if err != nil {
			return nil, err
		}
		found = append(found, strays...)
	}
	return found, nil
}

// numbers looks for patches without a number and for gaps, where one may have
// been lost. Numbers given twice make a patch malformed.
func numbers(dir string, s patch.Series) []report.Finding {
	var found []report.Finding
	next := 1
	for _, p := range s.Patches {
		at := place(path.Join(dir, p.File), 1)
		switch {
		case p.Number < 0:
			found = append(found, finding("series.unnumbered", p.File, report.Error, at, p.File+" has no number, so nothing says when it applies", "", "payload drift --fix"))
		case p.Number > next:
			what := fmt.Sprintf("%04d is missing", next)
			if p.Number > next+1 {
				what = fmt.Sprintf("%04d to %04d are missing", next, p.Number-1)
			}
			found = append(found, finding("series.gap", p.File, report.Warning, at, "before "+p.File+" "+what, "", "payload drift --fix"))
		}
		next = max(next, p.Number+1)
	}
	return found
}

// strays finds files that look like patches and aren't in the series, and patches
// whose line ends git may change.
func strays(ctx context.Context, r *repo, dir string) ([]report.Finding, error) {
	var found []report.Finding
	var patches []string
	for _, file := range r.files {
		if path.Dir(file) != path.Clean(dir) {
			continue
		}
		base := path.Base(file)
		switch {
		case path.Ext(base) == ".patch":
			patches = append(patches, file)
		case path.Ext(base) == ".diff" || numbered.MatchString(base):
			found = append(found, finding("series.stray", base, report.Error, place(file, 1), base+" is never applied: it is not named *.patch", "", "name it NNNN-words.patch, or move it away"))
		}
	}
	if len(patches) == 0 {
		return found, nil
	}
	res, err := run.Do(ctx, run.Cmd{Dir: r.file.Root, Args: append([]string{"git", "check-attr", "-z", "text", "--"}, patches...)})
	var exit *run.ExitError
	if errors.As(err, &exit) {
		return found, nil // no repository of git, which converts nothing
	}
	if err != nil {
		return nil, err
	}
	fields := git.SplitZ(res.Stdout)
	for i := 0; i+2 < len(fields); i += 3 {
		if fields[i+2] != "unset" {
			found = append(found, finding("series.attributes", fields[i], report.Warning, place(fields[i], 1),
				fields[i]+" may be checked out with other line ends, and then applies nowhere", "", "add a line to .gitattributes: *.patch -text"))
		}
	}
	return found, nil
}

var numbered = regexp.MustCompile(`^[0-9]{3,}[-_]`)

// exported is what an export of the series would change, written to a scratch
// copy of it.
func exported(ctx context.Context, r *repo, t trees) (changes []patch.Change, err error) {
	if len(t.pinned.Series.Patches) == 0 {
		return nil, nil
	}
	tmp, err := os.MkdirTemp("", "payload-drift-")
	if err != nil {
		return nil, fmt.Errorf("exporting a series: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	s := t.pinned.Series
	for _, p := range s.Patches {
		if err := os.WriteFile(filepath.Join(tmp, p.File), p.Data, 0o644); err != nil {
			return nil, fmt.Errorf("exporting a series: %w", err)
		}
	}
	s.Dir = tmp
	changes, _, err = patch.Refresh(ctx, r.w.Store().Repo(), "", t.pristine, s)
	return changes, err
}

// fixSeries numbers the patches anew, without gaps, and writes those that are
// not what an export makes. A series that doesn't apply is left alone.
func fixSeries(ctx context.Context, r *repo) ([]string, error) {
	var did []string
	for _, c := range r.file.Components {
		if c.Patches == "" {
			continue
		}
		t, err := r.trees[c.Name](ctx)
		if err != nil {
			return did, err
		}
		if t.patched == "" {
			continue
		}
		changes, _, err := patch.Refresh(ctx, r.w.Store().Repo(), "", t.pristine, t.pinned.Series)
		if err != nil {
			return did, err
		}
		for _, change := range changes {
			did = append(did, change.String())
		}
		renamed, err := renumber(r.file.Abs(c.Patches))
		did = append(did, renamed...)
		if err != nil {
			return did, err
		}
	}
	return did, nil
}

// renumber gives the patches of a folder the numbers from 1 on. Their order
// stays as it is, so each new name is free by the time it is taken.
func renumber(dir string) ([]string, error) {
	s, err := patch.Load(dir)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(s.Patches, func(p patch.Patch) bool { return p.Malformed != "" }) {
		return nil, nil // with a number given twice, the order is a person's to say
	}
	var did []string
	for i, p := range s.Patches {
		digits := leadingDigits.FindString(p.File)
		width := max(4, len(digits))
		rest := strings.TrimLeft(strings.TrimPrefix(p.File, digits), "-_. ")
		if p.Number == i+1 {
			continue
		}
		name := strings.Repeat("0", max(0, width-len(strconv.Itoa(i+1)))) + strconv.Itoa(i+1) + "-" + rest
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return did, fmt.Errorf("numbering %s: %s is there already", p.File, name)
		}
		if err := os.Rename(filepath.Join(dir, p.File), filepath.Join(dir, name)); err != nil {
			return did, fmt.Errorf("numbering %s: %w", p.File, err)
		}
		did = append(did, fmt.Sprintf("renamed %s to %s", p.File, name))
	}
	return did, nil
}

var leadingDigits = regexp.MustCompile(`^[0-9]+`)
