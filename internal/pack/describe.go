package pack

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"payload/internal/archive"
	"payload/internal/atomicfile"
	"payload/internal/config"
	"payload/internal/doctor"
	"payload/internal/manifest"
	"payload/internal/verify"
)

// describe writes the archive's payload.json, and holds the finished files
// against what was asked for.
func describe(ctx context.Context, j *Job) error {
	files, err := manifest.Describe(j.Payload)
	if err != nil {
		return err
	}
	j.Manifest.Files = files
	j.Manifest.Components = heldHere(j.Manifest.Components, files)
	for i := range j.Manifest.Builds {
		j.Manifest.Builds[i].Components = heldHere(j.Manifest.Builds[i].Components, files)
	}
	if err := j.unchanged(); err != nil {
		return err
	}
	// Signatures of a certificate are larger than those that were there.
	if !slices.ContainsFunc(j.result.Allowed, func(a manifest.Allowed) bool { return a.What == AllowBudget }) {
		if err := j.refuse(j.tooLarge(files)); err != nil {
			return err
		}
	}
	for _, glob := range j.Group.Expects {
		if !slices.ContainsFunc(files, func(f manifest.File) bool { return doublestar.MatchUnvalidated(glob, f.Path) }) {
			j.result.Missing = append(j.result.Missing, glob)
			j.Say("made without %s: no staged tree has it", glob)
		}
	}
	if err := packDebug(ctx, j); err != nil {
		return err
	}
	m := &manifest.Package{
		Group: j.Group.Name, OS: j.Group.System, Arch: j.Group.Arch, Over: j.Group.Over, Relies: j.relies(), Single: j.Group.Single, Compressor: j.compressor, Budget: j.budget,
		Time: j.Time.UTC().Format(time.RFC3339), Commit: j.repo.commit, Changed: j.repo.changed,
		Allowed: j.result.Allowed, Missing: j.result.Missing, Debug: j.debug,
	}
	if floor := (manifest.Floor{Glibc: j.Options.Glibc, MacOS: j.Options.MacOS}); floor != (manifest.Floor{}) {
		m.Floor = &floor
	}
	j.Manifest.Package, j.Manifest.Schema = m, manifest.Schema
	data, err := manifest.Encode(j.Manifest)
	if err != nil {
		return err
	}
	j.result.Manifest = payloadDir + "/" + j.ManifestName()
	return atomicfile.Write(filepath.Join(j.Payload, j.ManifestName()), data, 0o644)
}

// heldHere leaves out the variants whose modules the group does not take: they
// are another group's.
func heldHere(components []manifest.Component, files []manifest.File) []manifest.Component {
	var names []string
	for _, f := range files {
		names = append(names, path.Base(f.Path))
	}
	here := slices.Clone(components)
	for i, c := range here {
		there := verify.Variants(c.Verify, names)
		here[i].Variants = slices.DeleteFunc(slices.Clone(c.Variants), func(v string) bool { return !slices.Contains(there, v) })
	}
	return here
}

// unchanged holds what no step changes against the staged manifests: what was
// checked when it was collected must be what is packaged.
func (j *Job) unchanged() error {
	if j.Group.System == "darwin" || slices.Contains(j.Options.Allow, AllowChanged) {
		return nil // merged and signed: every file is another
	}
	staged := map[string]string{}
	for _, t := range j.Trees {
		for _, f := range t.Manifest.Files {
			staged[f.Path] = f.SHA256
		}
	}
	for _, f := range j.Manifest.Files {
		stripped := j.debug != nil && slices.ContainsFunc(j.debug.Files, func(d manifest.Debugged) bool { return d.Path == f.Path })
		if f.Link == "" && !stripped && staged[f.Path] != "" && staged[f.Path] != f.SHA256 {
			return fmt.Errorf("%s changed while it was packaged", f.Path)
		}
	}
	return nil
}

// judge refuses what is too new or too large, before anything is signed or packed.
func judge(_ context.Context, j *Job) error {
	files, err := manifest.Describe(j.Payload)
	if err != nil {
		return err
	}
	for name, text := range j.Group.Budget {
		if j.budget == nil {
			j.budget = map[string]int64{}
		}
		if j.budget[name], err = config.ParseSize(text); err != nil {
			return err
		}
	}
	var reasons []manifest.Allowed
	if o := j.Options; o.Glibc != "" || o.MacOS != "" {
		for _, f := range verify.TooNew(j.Payload, j.Manifest, files, verify.Options{Glibc: o.Glibc, MacOS: o.MacOS}) {
			reasons = append(reasons, manifest.Allowed{What: AllowFloor, Why: f.Title})
		}
	}
	return j.refuse(append(reasons, j.tooLarge(files)...))
}

// tooLarge says what is over the group's budget.
func (j *Job) tooLarge(files []manifest.File) (reasons []manifest.Allowed) {
	for _, f := range verify.OverBudget(files, verify.BudgetsOf(j.budget)) {
		why := f.Title
		if f.Detail != "" {
			why += ": " + f.Detail
		}
		reasons = append(reasons, manifest.Allowed{What: AllowBudget, Why: why})
	}
	return reasons
}

// chooseCompressor notes what packs the group's archive. zstd must be of
// payload.yaml's version: another one gives other bytes.
func (j *Job) chooseCompressor(ctx context.Context) (reasons []manifest.Allowed, err error) {
	if j.Group.System != "linux" {
		j.compressor = &manifest.Compressor{Name: "deflate", Version: moduleVersion("github.com/klauspost/compress"), Options: "level 9"}
		return nil, nil
	}
	have, err := archive.ZstdVersion(ctx)
	if err != nil {
		return nil, err
	}
	j.compressor = &manifest.Compressor{Name: "zstd", Version: have, Options: archive.Best.String()}
	if want := j.w.File.Packages.Zstd; have != want {
		why := fmt.Sprintf("zstd is %s here, %s has %s: other bytes would come out", have, config.FileName, want)
		reasons = append(reasons, manifest.Allowed{What: AllowCompressor, Why: why})
	}
	return reasons, nil
}

// moduleVersion is which version of a module this program holds.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, d := range info.Deps {
		if d.Path == path {
			return d.Version
		}
	}
	return "unknown"
}

// Needs are the tools that packaging for a system asks for.
func Needs(system string) []doctor.Need {
	if system != "linux" {
		return nil
	}
	return []doctor.Need{
		{Name: "zstd", For: "packages for Linux"},
		{Name: "objcopy", For: "debug information apart", Optional: true},
	}
}

// pack writes the archives for users, which come before that of debug information.
func pack(ctx context.Context, j *Job) error {
	items, err := archive.Items(j.Root)
	if err != nil {
		return err
	}
	j.items = items
	j.result.Entries = len(items)
	for _, item := range items {
		j.result.Bytes += item.Size
	}
	before := j.result.Files
	j.result.Files = nil
	for i, form := range forms[j.Group.System] {
		w, err := j.write(ctx, form, "archive", items)
		if err != nil {
			return err
		}
		if i == 0 {
			j.archive = w
		}
	}
	j.result.Files = append(j.result.Files, before...)
	return nil
}

// form is one kind of archive, by the ending of its name.
type form struct {
	ending string
	write  func(ctx context.Context, path string, items []archive.Item, o archive.Writing) (archive.Written, error)
}

// forms are the archives of each system.
var forms = map[string][]form{
	"linux":   {{".tar.zst", tarZstd}},
	"darwin":  {{".tgz", archive.WriteTarGzip}, {".zip", archive.WriteZip}},
	"windows": {{".zip", archive.WriteZip}},
}

func tarZstd(ctx context.Context, path string, items []archive.Item, o archive.Writing) (archive.Written, error) {
	return archive.WriteTarZstd(ctx, path, items, archive.Best, o)
}

func (j *Job) write(ctx context.Context, f form, kind string, items []archive.Item) (archive.Written, error) {
	how := archive.Writing{Time: j.Time, MaxPart: j.Options.MaxPart, Threads: threads()}
	how.Progress = func(done, total int64) { j.Progress(done, total, j.Name()+f.ending) }
	w, err := f.write(ctx, filepath.Join(j.New, j.Name()+f.ending), items, how)
	if err != nil {
		return w, err
	}
	file := File{Name: w.Name, Kind: kind, SHA256: w.SHA256, Size: w.Size}
	for _, p := range w.Parts {
		file.Parts = append(file.Parts, p.Name)
	}
	j.result.Files = append(j.result.Files, file)
	for _, p := range w.Parts {
		j.result.Files = append(j.result.Files, File{Name: p.Name, Kind: "part", SHA256: p.SHA256, Size: p.Size})
	}
	j.Say("%s: %d entries, %s", w.Name, len(items), sizes(w))
	return w, nil
}

// Add puts a file that a step made into j.New among the release's files, with
// its checksum and its place in the provenance.
func (j *Job) Add(name, kind string) error {
	sum, err := manifest.Digest(filepath.Join(j.New, name))
	if err != nil {
		return err
	}
	info, err := os.Stat(filepath.Join(j.New, name))
	if err != nil {
		return err
	}
	j.result.Files = append(j.result.Files, File{Name: name, Kind: kind, SHA256: sum, Size: info.Size()})
	return nil
}
