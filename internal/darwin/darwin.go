// Package darwin is what a release for macOS has beyond others: trees of both
// processors become one, Mach-O files are signed, debug information is kept
// apart, and a disk image can be made. Its functions are steps of internal/pack.
// What only a Mac's own tools can do is refused elsewhere, or said.
package darwin

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"payload/internal/codesign"
	"payload/internal/config"
	"payload/internal/machofile"
	"payload/internal/manifest"
	"payload/internal/pack"
	"payload/internal/run"
	"payload/internal/universal"
	"payload/internal/voice"
)

// Options are choices for one release.
type Options struct {
	Sign codesign.Options // without entitlements, which each group has
	// DiskImage makes a .dmg too, by hdiutil of macOS.
	DiskImage bool
	// Notarise has the notary look at a disk image; nil: nobody does. A ticket is
	// put into the image, so it comes before the checksums; a run that is ended
	// while it waits has to make the image again.
	Notarise func(ctx context.Context, file string) error
}

// Steps puts what is done on macOS into a release's options.
func Steps(p *pack.Options, o Options) {
	p.Merge = merge
	p.Debug = debugInformation
	p.Sign = o.sign
	if o.DiskImage {
		p.Extra = o.diskImage
	}
}

// processors are those of Macs, in Go's words.
var processors = []string{"amd64", "arm64"}

func merge(ctx context.Context, j *pack.Job) error {
	archs := processors
	if j.Group.Arch != config.Universal {
		archs = []string{j.Group.Arch}
	}
	var trees []universal.Tree
	for _, t := range j.Trees {
		arch, err := archOf(t.Manifest.Files)
		if err != nil {
			return fmt.Errorf("%s: %w", t.Preset, err)
		}
		trees = append(trees, universal.Tree{Arch: arch, Dir: t.Dir, Takes: j.Group.Takes})
	}
	res, err := universal.Merge(ctx, j.Payload, trees, archs, j.Group.Single)
	if err != nil {
		return err
	}
	for _, file := range res.Joined {
		var from []string
		for _, i := range file.Images {
			from = append(from, i.Arch+" "+i.SHA256[:12])
		}
		j.Say("%s is made of %s", file.Path, strings.Join(from, ", "))
	}
	j.Say("%d files; %d joined, %d not for every processor, as declared", res.Files, len(res.Joined), len(res.Single))
	return nil
}

// archOf is the processor that a tree is for; of one for both, either will do.
func archOf(files []manifest.File) (string, error) {
	if archs := pack.Archs(files); len(archs) > 0 {
		return archs[0], nil
	}
	var of []string // one file of each
	for _, f := range files {
		if f.Arch != "" && f.Link == "" && !slices.ContainsFunc(of, func(a string) bool { return strings.HasSuffix(a, " is for "+f.Arch) }) {
			of = append(of, f.Path+" is for "+f.Arch)
		}
	}
	return "", fmt.Errorf("its files have no processor in common, and a tree is for one: %s", strings.Join(of, ", "))
}

func (o Options) sign(ctx context.Context, j *pack.Job) error {
	how := o.Sign
	how.Entitlements = map[string]codesign.Entitlements{}
	for file, keys := range j.Group.Entitlements {
		how.Entitlements[file] = keys
	}
	signed, err := codesign.Tree(ctx, j.Payload, how)
	if err != nil {
		return err
	}
	j.Manifest.Signing = &manifest.Signing{Kind: how.Kind(), Runtime: how.Runtime, Timestamp: how.Timestamp}
	if how.Identity != nil {
		j.Manifest.Signing.Team = how.Identity.Team
	}
	images := 0
	for _, s := range signed {
		images += len(s.Images)
	}
	j.Say("%d files with %d images signed (%s), every page checked", len(signed), images, how.Kind())
	return nil
}

// debugInformation moves DWARF into .dSYM bundles and an archive of their own.
// That takes dsymutil, lipo and strip of a Mac; elsewhere it is said what is left in.
func debugInformation(ctx context.Context, j *pack.Job) error {
	holds, err := withDebugInformation(j.Payload)
	if err != nil || len(holds) == 0 {
		return err
	}
	strip := "strip"
	if runtime.GOOS != "darwin" {
		strip = "llvm-strip" // GNU's knows nothing of Mach-O
	}
	for _, tool := range []string{"dsymutil", "lipo", strip} { // dsymutil starts lipo for universal files
		if _, err := run.LookPath(tool); err != nil {
			j.Say("debug information stays in %s: taking it out needs macOS's tools, and %v", voice.List(holds, 8), err)
			return nil
		}
	}
	root := filepath.Join(j.Work, "dsym")
	var split []manifest.Debugged
	for _, file := range holds {
		full := filepath.Join(j.Payload, filepath.FromSlash(file))
		bundle := filepath.Join(root, filepath.FromSlash(file)+".dSYM")
		if err := os.MkdirAll(filepath.Dir(bundle), 0o755); err != nil {
			return err
		}
		for _, args := range [][]string{{"dsymutil", full, "-o", bundle}, {strip, "-S", full}} {
			if _, err := run.Do(ctx, run.Cmd{Args: args}); err != nil {
				return fmt.Errorf("taking debug information out of %s: %w", file, err)
			}
		}
		split = append(split, manifest.Debugged{Path: file, In: path.Join(file+".dSYM/Contents/Resources/DWARF", path.Base(file))})
	}
	return j.KeepDebug(root, split)
}

// withDebugInformation lists the Mach-O files that hold DWARF.
func withDebugInformation(dir string) ([]string, error) {
	files, err := manifest.Describe(dir)
	if err != nil {
		return nil, err
	}
	var holds []string
	for _, f := range files {
		if f.Arch == "" || f.Link != "" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(f.Path)))
		if err != nil {
			return nil, err
		}
		list, err := machofile.Slices(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", f.Path, err)
		}
		for _, s := range list {
			if m, err := machofile.Thin(data[s.Offset : s.Offset+s.Size]); err == nil && m.DebugInfo() > 0 {
				holds = append(holds, f.Path)
				break
			}
		}
	}
	return holds, nil
}

// imageArgs makes a compressed disk image of a folder.
func imageArgs(volume, folder, out string) []string {
	return []string{"hdiutil", "create", "-volname", volume, "-srcfolder", folder, "-fs", "HFS+", "-format", "UDZO", "-ov", out}
}

func (o Options) diskImage(ctx context.Context, j *pack.Job) error {
	name := j.Name() + ".dmg"
	out := filepath.Join(j.Work, name)
	if _, err := run.Do(ctx, run.Cmd{Args: imageArgs(j.Name(), j.Root, out)}); err != nil {
		return fmt.Errorf("making %s: %w", name, err)
	}
	if o.Sign.Keychain != "" {
		args := []string{"codesign", "--sign", o.Sign.Keychain, "--force", out}
		if _, err := run.Do(ctx, run.Cmd{Args: args}); err != nil {
			return fmt.Errorf("signing %s: %w", name, err)
		}
	}
	if o.Notarise != nil {
		if err := o.Notarise(ctx, out); err != nil {
			return err
		}
		if _, err := run.Do(ctx, run.Cmd{Args: []string{"xcrun", "stapler", "staple", out}}); err != nil {
			return fmt.Errorf("putting the notary's ticket into %s: %w", name, err)
		}
	}
	if err := os.Rename(out, filepath.Join(j.New, name)); err != nil {
		return err
	}
	return j.Add(name, "image")
}

// InPayload names a file that the notary spoke of as the payload does.
func InPayload(path, arch string) string {
	path = strings.TrimPrefix(path, "lib/payload/")
	if arch != "" {
		return fmt.Sprintf("%s (%s)", path, arch)
	}
	return path
}
