package verify

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"payload/internal/archive"
	"payload/internal/manifest"
	"payload/internal/report"
)

// within is an error without the folder that its files lie in.
func within(dir string, err error) string {
	return strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), "")
}

// static runs the half that starts nothing. It gives the files that it saw.
func static(res *Result, o Options) ([]manifest.File, error) {
	got, err := manifest.Describe(o.Dir)
	if err != nil {
		return nil, &FolderError{Dir: o.Dir, Err: err}
	}
	for _, f := range got {
		res.Static.Files++
		res.Static.Bytes += f.Size
		res.Static.Floor.Raise(f.Floor)
	}
	d, err := readManifests(o.Dir)
	if err != nil {
		res.static("manifest.unreadable", manifest.Name, manifest.Name+" can't be read", within(o.Dir, err), manifest.Name)
	} else {
		compareWithManifest(res, d, got)
	}
	t := targetOf(d, o)
	checkNames(res, got)
	checkLinks(res, got)
	objects := readObjects(res, o.Dir, got)
	images := readImages(res, o.Dir, got)
	dlls := readDLLs(res, o.Dir, got)
	res.Static.ELF, res.Static.MachO, res.Static.PE = len(objects), len(images), len(dlls)
	checkArch(res, got, o.Program, d)
	relies := d.relies()
	if o.Over {
		relies = nil
	}
	checkClosure(res, o.Dir, got, objects, relies)
	checkFloors(res, objects, images, t)
	checkImages(res, o.Dir, images, got, t)
	checkDLLs(res, got, dlls)
	checkHeaders(res, got, objects)
	checkVariants(res, kinds[o.Kind], o.Variants, got)
	checkBudgets(res, got, o.Budgets)
	checkOwnBudgets(res, d, got)
	checkDebug(res, o.Dir, d)
	res.Static.System = systemNeeds(objects, images, dlls)
	if o.Against != nil {
		compare(res, o.Against, got, o.Growth)
	}
	res.Findings = unique(res.Findings)
	if len(res.Findings) == 0 {
		o.Tell("%d files as in %s, %s", res.Static.Files, manifest.Name, complete(res.Static))
	}
	return got, nil
}

// complete says in words which libraries have all that they need.
func complete(s Static) string {
	if s.MachO > 0 && s.ELF == 0 {
		return fmt.Sprintf("%d Mach-O files complete and signed, for macOS %s", s.MachO, s.Floor.MacOS)
	}
	if s.PE > 0 && s.ELF == 0 {
		return fmt.Sprintf("%d PE files complete", s.PE)
	}
	text := fmt.Sprintf("%d ELF files complete", s.ELF)
	for _, n := range s.Floors {
		text += ", " + n.String()
	}
	return text
}

// unique leaves one finding of several with the same key and words: a universal
// file has most of its faults once for each architecture.
func unique(findings []report.Finding) []report.Finding {
	kept := []report.Finding{}
	for _, f := range findings {
		if !slices.ContainsFunc(kept, func(k report.Finding) bool { return k.Key == f.Key && k.Title == f.Title }) {
			kept = append(kept, f)
		}
	}
	return kept
}

func (r *Result) static(id, what, title, detail string, paths ...string) {
	r.Findings = append(r.Findings, fault(categoryStatic, id, what, title, detail, paths...))
}

// has says whether a file has a finding of some kind already.
func (r *Result) has(id, path string) bool {
	return slices.ContainsFunc(r.Findings, func(f report.Finding) bool { return f.ID == id && len(f.Where) > 0 && f.Where[0].Path == path })
}

func compareWithManifest(res *Result, d described, got []manifest.File) {
	here := map[string]manifest.File{}
	for _, f := range got {
		here[f.Path] = f
	}
	listed := d.files()
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		want := listed[name]
		f, ok := here[want.Path]
		switch {
		case !ok:
			res.static("files.missing", want.Path, want.Path+" is missing", "listed in "+manifest.Name, want.Path)
		case f.Link != want.Link:
			res.static("links.changed", want.Path, want.Path+" is not the link that was staged",
				fmt.Sprintf("points to %q, %s says %q", f.Link, manifest.Name, want.Link), want.Path)
		case f.SHA256 != want.SHA256 || f.Size != want.Size:
			res.static("digest.changed", want.Path, want.Path+" is not the file that was staged",
				fmt.Sprintf("SHA-256 %s, %d bytes; %s says %s, %d bytes", f.SHA256, f.Size, manifest.Name, want.SHA256, want.Size), want.Path)
		case f.Executable != want.Executable && runtime.GOOS != "windows":
			res.static("files.mode", want.Path, want.Path+" lost or gained its executable bit",
				fmt.Sprintf("executable %t, %s says %t", f.Executable, manifest.Name, want.Executable), want.Path)
		case want.Arch == "" && want.Floor == nil && isPE(f): // was not written always
		case f.Arch != want.Arch || floorOf(f) != floorOf(want):
			res.static("manifest.untrue", want.Path, fmt.Sprintf("%s says of %s what it is not", manifest.Name, want.Path),
				fmt.Sprintf("it is for %s and needs %s; %s says %s, %s", orNothing(f.Arch), floorOf(f), manifest.Name, orNothing(want.Arch), floorOf(want)), want.Path)
		}
	}
	for _, f := range got {
		if _, ok := listed[f.Path]; !ok {
			res.static("files.extra", f.Path, f.Path+" is not in "+manifest.Name, "", f.Path)
		}
	}
}

func isPE(f manifest.File) bool {
	return slices.Contains([]string{".dll", ".exe"}, strings.ToLower(path.Ext(f.Path)))
}

func floorOf(f manifest.File) string {
	floor := manifest.Floor{}
	floor.Raise(f.Floor)
	var parts []string
	for _, p := range []struct{ what, version string }{{"glibc", floor.Glibc}, {"GLIBCXX", floor.Glibcxx}, {"macOS", floor.MacOS}} {
		if p.version != "" {
			parts = append(parts, p.what+" "+p.version)
		}
	}
	return orNothing(strings.Join(parts, ", "))
}

func orNothing(text string) string {
	if text == "" {
		return "nothing"
	}
	return text
}

// checkNames reports names that some system can't have, or that a release
// should not have.
func checkNames(res *Result, got []manifest.File) {
	folded := map[string]string{} // files and their folders
	for _, f := range got {
		if bad := archive.CheckName(f.Path); bad != nil {
			res.static(bad.ID, f.Path, bad.Title, bad.Detail, f.Path)
		}
		for p := f.Path; p != "."; p = path.Dir(p) {
			other, ok := folded[archive.Fold(p)]
			if ok && other != p {
				res.static("names.case-clash", p, fmt.Sprintf("%s and %s are one file where case does not count", other, p), "on macOS and Windows one of them overwrites the other", other, p)
			}
			folded[archive.Fold(p)] = p
		}
	}
}

// checkLinks reports links that lead out of the payload or nowhere.
func checkLinks(res *Result, got []manifest.File) {
	tree := manifest.NewTree(got)
	for _, f := range got {
		if f.Link == "" {
			continue
		}
		_, err := tree.Follow(f.Path)
		for _, bad := range badLinks {
			if errors.Is(err, bad.err) {
				res.static(bad.id, f.Path, f.Path+bad.words, "points to "+f.Link, f.Path)
			}
		}
	}
}

var badLinks = []struct {
	err       error
	id, words string
}{
	{manifest.ErrAbsolute, "links.absolute", " is a link to an absolute path"},
	{manifest.ErrOutside, "links.outside", " is a link out of the payload"},
	{manifest.ErrCycle, "links.cycle", " is a link that leads back to itself"},
	{manifest.ErrNothing, "links.broken", " is a link to nothing"},
}

// checkVariants holds the variants that were built against the modules that are
// there. A program is quiet about a module that it doesn't find, and runs
// slower.
func checkVariants(res *Result, k kind, built []string, got []manifest.File) {
	if len(built) == 0 || k.variant == nil {
		return
	}
	modules := k.modules(got)
	for _, name := range built {
		if modules[name] == "" {
			res.static("variant.missing", name, "the variant "+name+" is not in the payload", "it was built")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		if !slices.Contains(built, name) {
			res.static("variant.extra", name, "the variant "+name+" is in the payload, and was not built", "", modules[name])
		}
	}
}

// layout gives the payload's files by path, and a function that follows links
// to a file or folder inside the payload; it gives "" where there is none.
func layout(got []manifest.File) (map[string]manifest.File, func(string) string) {
	files := map[string]manifest.File{}
	for _, f := range got {
		files[f.Path] = f
	}
	tree := manifest.NewTree(got)
	return files, func(p string) string {
		found, err := tree.Follow(p)
		if err != nil {
			return ""
		}
		return found
	}
}

// exists says whether a file is on this machine.
func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
