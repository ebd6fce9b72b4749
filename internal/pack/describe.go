package pack

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/hashicorp/go-version"

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
	budget, tooLarge, err := j.tooLarge(files)
	if err != nil {
		return err
	}
	if err := j.refuse(slices.Concat(j.tooNew(files), tooLarge)); err != nil {
		return err
	}
	for _, glob := range j.Group.Expects {
		if !slices.ContainsFunc(files, func(f manifest.File) bool { return doublestar.MatchUnvalidated(glob, f.Path) }) {
			j.result.Missing = append(j.result.Missing, glob)
			j.Say("made without %s: no staged tree has it", glob)
		}
	}
	packed, err := j.compressor(ctx)
	if err != nil {
		return err
	}
	m := &manifest.Package{
		Group: j.Group.Name, OS: j.Group.System, Arch: j.Group.Arch, Over: j.Group.Over, Relies: j.relies(), Compressor: packed, Budget: budget,
		Time: j.Time.UTC().Format(time.RFC3339), Commit: j.repo.commit, Changed: j.repo.changed,
		Allowed: j.result.Allowed, Missing: j.result.Missing,
	}
	if floor := (manifest.Floor{Glibc: j.Options.Glibc, MacOS: j.Options.MacOS}); floor != (manifest.Floor{}) {
		m.Floor = &floor
	}
	if len(j.debug) > 0 {
		m.Debug = j.Name() + debugEnding
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
		stripped := slices.ContainsFunc(j.debug, func(d debugFile) bool { return d.of == f.Path })
		if f.Link == "" && !stripped && staged[f.Path] != "" && staged[f.Path] != f.SHA256 {
			return fmt.Errorf("%s changed while it was packaged", f.Path)
		}
	}
	return nil
}

// variant says whether only trees for a newer macOS than was asked for hold the
// file, and another tree of the group is for that one: a program takes what is
// for its system.
func (j *Job) variant(path string) bool {
	served := false
	for _, t := range j.Trees {
		newer := t.Manifest.Target != nil && newer(t.Manifest.Target.MacOS, j.Options.MacOS)
		served = served || !newer
		if !newer && slices.ContainsFunc(t.Manifest.Files, func(f manifest.File) bool { return f.Path == path }) {
			return false
		}
	}
	return served
}

// tooNew are files that need a newer system than the package is for.
func (j *Job) tooNew(files []manifest.File) (reasons []manifest.Allowed) {
	o := j.Options
	for _, f := range files {
		if f.Floor == nil {
			continue
		}
		if newer(f.Floor.Glibc, o.Glibc) {
			reasons = append(reasons, manifest.Allowed{What: AllowFloor, Why: fmt.Sprintf("%s needs glibc %s%s, the package is for %s", f.Path, f.Floor.Glibc, asking(j.at(f.Path), "GLIBC_"+f.Floor.Glibc), o.Glibc)})
		}
		if newer(f.Floor.MacOS, o.MacOS) && !j.variant(f.Path) {
			reasons = append(reasons, manifest.Allowed{What: AllowFloor, Why: fmt.Sprintf("%s needs macOS %s, the package is for %s", f.Path, f.Floor.MacOS, o.MacOS)})
		}
	}
	return reasons
}

// tooLarge reads the group's budget, and says what is over it.
func (j *Job) tooLarge(files []manifest.File) (budget map[string]int64, reasons []manifest.Allowed, err error) {
	for name, text := range j.Group.Budget {
		if budget == nil {
			budget = map[string]int64{}
		}
		if budget[name], err = config.ParseSize(text); err != nil {
			return nil, nil, err
		}
	}
	for _, f := range verify.OverBudget(files, verify.BudgetsOf(budget)) {
		why := f.Title
		if f.Detail != "" {
			why += ": " + f.Detail
		}
		reasons = append(reasons, manifest.Allowed{What: AllowBudget, Why: why})
	}
	return budget, reasons, nil
}

// asking names a symbol of an ELF file that has a version, and its library, in
// brackets; empty where none can be told.
func asking(file, version string) string {
	f, err := elf.Open(file)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // only read
	symbols, err := f.ImportedSymbols()
	if err != nil {
		return ""
	}
	for _, s := range symbols {
		if s.Version == version {
			return fmt.Sprintf(" (%s of %s)", s.Name, s.Library)
		}
	}
	return ""
}

// newer says whether version a is above b; where one is no version it isn't.
func newer(a, b string) bool {
	x, err := version.NewVersion(a)
	if err != nil {
		return false
	}
	y, err := version.NewVersion(b)
	return err == nil && x.GreaterThan(y)
}

// compressor is what packs the group's archive. zstd must be of payload.yaml's
// version: another one gives other bytes.
func (j *Job) compressor(ctx context.Context) (*manifest.Compressor, error) {
	if j.Group.System != "linux" {
		return &manifest.Compressor{Name: "deflate", Version: moduleVersion("github.com/klauspost/compress"), Options: "level 9"}, nil
	}
	have, err := archive.ZstdVersion(ctx)
	if err != nil {
		return nil, err
	}
	if want := j.w.File.Packages.Zstd; have != want {
		why := fmt.Sprintf("zstd is %s here, %s has %s: other bytes would come out", have, config.FileName, want)
		if err := j.refuse([]manifest.Allowed{{What: AllowCompressor, Why: why}}); err != nil {
			return nil, err
		}
	}
	return &manifest.Compressor{Name: "zstd", Version: have, Options: archive.Best.String()}, nil
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

// pack writes the archives: what is for users, then the debug information.
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
	how := archive.Writing{Time: j.Time, MaxPart: j.Options.MaxPart, Threads: threads()}
	how.Progress = func(done, total int64) { j.Progress(done, total, j.Name()) }
	for _, form := range forms[j.Group.System] {
		if err := j.write(ctx, form, "archive", items, how); err != nil {
			return err
		}
	}
	if len(j.debug) == 0 {
		return nil
	}
	items, err = archive.Items(j.debugRoot())
	if err != nil {
		return err
	}
	return j.write(ctx, form{debugEnding, tarZstd}, "debug", items, how)
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

func (j *Job) write(ctx context.Context, f form, kind string, items []archive.Item, how archive.Writing) error {
	w, err := f.write(ctx, filepath.Join(j.New, j.Name()+f.ending), items, how)
	if err != nil {
		return err
	}
	j.written = append(j.written, w)
	file := File{Name: w.Name, Kind: kind, SHA256: w.SHA256, Size: w.Size}
	for _, p := range w.Parts {
		file.Parts = append(file.Parts, p.Name)
	}
	j.result.Files = append(j.result.Files, file)
	for _, p := range w.Parts {
		j.result.Files = append(j.result.Files, File{Name: p.Name, Kind: "part", SHA256: p.SHA256, Size: p.Size})
	}
	j.Say("%s: %d entries, %s", w.Name, len(items), sizes(w))
	return nil
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
