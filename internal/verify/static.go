package verify

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"

	"payload/internal/manifest"
	"payload/internal/report"
)

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
	compareWithManifest(res, o.Dir, got)
	checkLinks(res, got)
	objects := readObjects(res, o.Dir, got)
	images := readImages(res, o.Dir, got)
	res.Static.ELF, res.Static.MachO = len(objects), len(images)
	checkArch(res, got, o.Program)
	checkClosure(res, o.Dir, got, objects)
	checkImages(res, o.Dir, images, got, target(o.Dir))
	checkVariants(res, kinds[o.Kind], o.Variants, got)
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
	return fmt.Sprintf("%d ELF files complete", s.ELF)
}

// target is what the payload was built for; nothing where the manifest can't
// tell, which is reported by itself.
func target(dir string) manifest.Target {
	m, err := manifest.Read(dir)
	if err != nil || m.Target == nil {
		return manifest.Target{}
	}
	return *m.Target
}

func (r *Result) static(id, what, title, detail string, paths ...string) {
	r.Findings = append(r.Findings, fault(categoryStatic, id, what, title, detail, paths...))
}

// has says whether a file has a finding of some kind already.
func (r *Result) has(id, path string) bool {
	return slices.ContainsFunc(r.Findings, func(f report.Finding) bool { return f.ID == id && len(f.Where) > 0 && f.Where[0].Path == path })
}

func compareWithManifest(res *Result, dir string, got []manifest.File) {
	m, err := manifest.Read(dir)
	if err != nil {
		res.static("manifest.unreadable", manifest.Name, manifest.Name+" can't be read", err.Error(), manifest.Name)
		return
	}
	here := map[string]manifest.File{}
	for _, f := range got {
		here[f.Path] = f
	}
	listed := map[string]bool{}
	for _, want := range m.Files {
		listed[want.Path] = true
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
		}
	}
	for _, f := range got {
		if !listed[f.Path] {
			res.static("files.extra", f.Path, f.Path+" is not in "+manifest.Name, "", f.Path)
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
