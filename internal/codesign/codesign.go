// Package codesign signs Mach-O files, on any system: ad hoc, or with a
// certificate for Developer ID. What is signed is found by content, never by a
// file's name. A universal file is signed image by image. Every signature is
// checked, page by page, before the file is replaced; a file that can't be
// signed stays as it was. Bundles (.app, .framework) are refused: their
// resources would have to be sealed too. On a Mac the key may be in a keychain;
// then Apple's own tool signs (tool.go).
package codesign

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blacktop/go-macho/pkg/codesign"
	"github.com/blacktop/go-macho/pkg/codesign/types"
	machotypes "github.com/blacktop/go-macho/types"

	"payload/internal/atomicfile"
	"payload/internal/machofile"
)

// Options are what a payload is signed with.
type Options struct {
	Identity *Identity // nil: ad hoc
	Keychain string    // name of an identity in a keychain, for Apple's tool; with it Identity is nil
	// Runtime asks for the hardened runtime, which notarisation needs. With an
	// ad-hoc signature it keeps a program from loading its libraries.
	Runtime bool
	Prefix  string // begins each file's identifier: "org.example."
	// Entitlements of programs, by path in the payload.
	Entitlements map[string]Entitlements
	Timestamp    string // URL of a time-stamping authority (RFC 3161); empty: none
}

// Kind says in words what a signature is: developer-id is one that Apple issued
// the certificate for.
func (o Options) Kind() string {
	switch {
	case o.Keychain != "" || o.Identity != nil && o.Identity.DeveloperID():
		return "developer-id"
	case o.Identity != nil:
		return "certificate"
	}
	return "adhoc"
}

// Signed is one file that was signed.
type Signed struct {
	Path       string   `json:"path"`
	Identifier string   `json:"identifier"`
	Images     []string `json:"images"` // architectures
}

// Error is a file that can't be signed.
type Error struct {
	Path string
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("signing %s: %v", e.Path, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// found is a Mach-O file of a payload.
type found struct {
	path    string // slash, relative
	program bool
}

// Tree signs every Mach-O file below dir: libraries before the programs that
// load them, deeper ones first. An entitlement for a file that is no program
// there is an error, before anything is signed.
func Tree(ctx context.Context, dir string, o Options) ([]Signed, error) {
	files, err := find(dir)
	if err != nil {
		return nil, err
	}
	for _, p := range slices.Sorted(maps.Keys(o.Entitlements)) {
		if !slices.ContainsFunc(files, func(f found) bool { return f.path == p && f.program }) {
			return nil, &Error{p, fmt.Errorf("entitlements are declared for it, and it is no program of %s", dir)}
		}
	}
	slices.SortFunc(files, insideOut)
	var out []Signed
	for _, f := range files {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("signing %s: %w", dir, context.Cause(ctx))
		}
		signed, err := file(ctx, filepath.Join(dir, filepath.FromSlash(f.path)), f, o)
		if err != nil {
			return nil, &Error{f.path, err}
		}
		out = append(out, signed)
	}
	return out, nil
}

// insideOut puts libraries first, and what lies deeper.
func insideOut(a, b found) int {
	if a.program != b.program {
		if a.program {
			return 1
		}
		return -1
	}
	if d := strings.Count(b.path, "/") - strings.Count(a.path, "/"); d != 0 {
		return d
	}
	return strings.Compare(a.path, b.path)
}

// find looks into every regular file.
func find(dir string) ([]found, error) {
	var files []found
	err := filepath.WalkDir(dir, func(full string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, full)
		if err != nil {
			return err
		}
		f := found{path: filepath.ToSlash(rel)}
		if entry.IsDir() {
			if ext := path.Ext(f.path); ext == ".app" || ext == ".framework" || ext == ".bundle" {
				return &Error{f.path, fmt.Errorf("it is a bundle, whose resources have to be sealed; only plain files are signed here")}
			}
			return nil
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		kinds, err := imageTypes(full)
		if err != nil {
			return &Error{f.path, err}
		}
		for _, kind := range kinds {
			if kind == machofile.TypeProgram || kind == machofile.TypeDylib || kind == machofile.TypeBundle {
				f.program = f.program || kind == machofile.TypeProgram
				if len(files) == 0 || files[len(files)-1].path != f.path {
					files = append(files, f)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking for what is to be signed in %s: %w", dir, err)
	}
	return files, nil
}

// imageTypes are the kinds of the file's images; none for a file that isn't Mach-O.
func imageTypes(file string) ([]int, error) {
	f, err := machofile.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	var kinds []int
	for _, s := range f.Slices {
		head := make([]byte, 16)
		if _, err := f.ReadAt(head, s.Offset); err != nil {
			return nil, err
		}
		kinds = append(kinds, int(head[12]))
	}
	return kinds, nil
}

// Identifier is the name that a file's signature gives it.
func Identifier(prefix, file string) string {
	base := path.Base(filepath.ToSlash(file))
	return prefix + strings.TrimSuffix(base, path.Ext(base))
}

func file(ctx context.Context, full string, f found, o Options) (Signed, error) {
	signed := Signed{Path: f.path, Identifier: Identifier(o.Prefix, f.path)}
	var entitled Entitlements
	if f.program {
		entitled = o.Entitlements[f.path]
	}
	data, info, err := read(full)
	if err != nil {
		return signed, err
	}
	if o.Keychain != "" {
		if err := byTool(ctx, full, signed.Identifier, entitled, o); err != nil {
			return signed, err
		}
		if data, _, err = read(full); err != nil {
			return signed, err
		}
		signed.Images, err = Check(data, nil)
		return signed, err
	}
	out, err := Bytes(ctx, data, signed.Identifier, entitled, o)
	if err != nil {
		return signed, err
	}
	if signed.Images, err = Check(out, o.Identity); err != nil {
		return signed, fmt.Errorf("checking its new signature: %w", err)
	}
	return signed, atomicfile.Write(full, out, info.Mode().Perm())
}

func read(full string) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(full)
	if err != nil {
		return nil, nil, err
	}
	data, err := os.ReadFile(full)
	return data, info, err
}

// each calls do with every image of a file's content.
func each(data []byte, do func(s machofile.Slice, image []byte) error) error {
	list, err := machofile.Slices(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return fmt.Errorf("it is no Mach-O file")
	}
	for _, s := range list {
		if err := do(s, data[s.Offset:s.Offset+s.Size]); err != nil {
			if len(list) > 1 {
				return fmt.Errorf("its image for %s: %w", s.Arch(), err)
			}
			return err
		}
	}
	return nil
}

// Bytes signs the content of a Mach-O file, thin or universal, and gives the
// new content.
func Bytes(ctx context.Context, data []byte, identifier string, e Entitlements, o Options) ([]byte, error) {
	var images [][]byte
	err := each(data, func(_ machofile.Slice, image []byte) error {
		out, err := sign(ctx, bytes.Clone(image), identifier, e, o)
		images = append(images, out)
		return err
	})
	if err != nil {
		return nil, err
	}
	return machofile.JoinThin(images)
}

// sign signs one image.
func sign(ctx context.Context, data []byte, identifier string, e Entitlements, o Options) ([]byte, error) {
	m, err := machofile.Thin(data)
	if err != nil {
		return nil, err
	}
	config, err := configure(m, identifier, e, o)
	if err != nil {
		return nil, err
	}
	// The signed pages hold the signature's size, so it is found out first.
	limit, err := m.ReserveSignature(16)
	if err != nil {
		return nil, err
	}
	superBlob := func(cms func([]byte) ([]byte, error)) ([]byte, error) {
		c := config
		c.InitSlotHashes()
		c.CodeSize, c.SignerFunction = uint64(limit), cms
		return codesign.Sign(bytes.NewReader(m.Bytes()[:limit]), &c)
	}
	trial, err := superBlob(nil)
	if err != nil {
		return nil, err
	}
	size := len(trial)
	var cms func([]byte) ([]byte, error)
	if o.Identity != nil {
		size += o.Identity.room(o.Timestamp != "")
		cms = func(directory []byte) ([]byte, error) { return o.Identity.sign(ctx, directory, o.Timestamp) }
	}
	size = (size + 15) / 16 * 16
	if _, err := m.ReserveSignature(size); err != nil {
		return nil, err
	}
	blob, err := superBlob(cms)
	if err != nil {
		return nil, err
	}
	if len(blob) > size {
		return nil, fmt.Errorf("its signature has %d bytes, and room for %d was made", len(blob), size)
	}
	copy(m.Bytes()[limit:], blob)
	return m.Bytes(), nil
}

// configure says what the signature holds but for the pages.
func configure(m *machofile.Image, identifier string, e Entitlements, o Options) (codesign.Config, error) {
	c := codesign.Config{ID: identifier, IsMain: m.Type() == machofile.TypeProgram, RuntimeVersion: 0}
	if o.Identity == nil {
		c.Flags = types.ADHOC
	} else {
		c.TeamID = o.Identity.Team
		c.CertChain = o.Identity.rootFirst()
	}
	if o.Runtime {
		c.Flags |= types.RUNTIME
		c.RuntimeVersion = machotypes.Version(m.SDK())
	}
	for _, s := range m.Segments() {
		if s.Name == "__TEXT" {
			c.TextOffset, c.TextSize = s.Offset, s.Size
		}
	}
	c.InfoPlist = m.Section("__TEXT", "__info_plist")
	if len(e) > 0 {
		var err error
		if c.Entitlements, err = e.XML(); err != nil {
			return c, err
		}
		if c.EntitlementsDER, err = e.der(); err != nil {
			return c, err
		}
	}
	return c, nil
}
