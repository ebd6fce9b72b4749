package pack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"aead.dev/minisign"

	"payload/internal/archive"
	"payload/internal/atomicfile"
	"payload/internal/voice"
)

// prove writes what is told of the archives beside them.
func prove(_ context.Context, j *Job) error {
	for _, p := range []struct {
		ending, kind string
		make         func() ([]byte, error)
	}{
		{sbomEnding, "sbom", j.sbom},
		{provenanceEnding, "provenance", j.provenance}, // after all that it is about
	} {
		data, err := p.make()
		if err != nil {
			return err
		}
		name := j.Name() + p.ending
		if err := atomicfile.Write(filepath.Join(j.New, name), data, 0o644); err != nil {
			return err
		}
		if err := j.Add(name, p.kind); err != nil {
			return err
		}
	}
	return nil
}

// sizes says how large an archive is, in parts where it is in parts.
func sizes(w archive.Written) string {
	if len(w.Parts) > 0 {
		return fmt.Sprintf("%s in %d parts", voice.Size(w.Size), len(w.Parts))
	}
	return voice.Size(w.Size)
}

// KeyError is a key that can't sign.
type KeyError struct {
	Path     string
	Password bool // it is encrypted, and the password is not given or not right
	Err      error
}

func (e *KeyError) Error() string { return fmt.Sprintf("reading the key %s: %v", e.Path, e.Err) }
func (e *KeyError) Unwrap() error { return e.Err }

// PasswordVar holds the password of an encrypted key.
const PasswordVar = "PAYLOAD_SIGN_PASSWORD"

// readKey reads a secret key of minisign; nil without a path.
func readKey(path string) (*minisign.PrivateKey, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, &KeyError{Path: path, Err: err}
	}
	var key minisign.PrivateKey
	if !minisign.IsEncrypted(data) {
		if err := key.UnmarshalText(data); err != nil {
			return nil, &KeyError{Path: path, Err: err}
		}
		return &key, nil
	}
	password := os.Getenv(PasswordVar)
	if password == "" {
		return nil, &KeyError{Path: path, Password: true, Err: errors.New("it is encrypted")}
	}
	if key, err = minisign.DecryptKey(password, data); err != nil {
		return nil, &KeyError{Path: path, Password: true, Err: err}
	}
	return &key, nil
}

// signatureEnding is the end of a signature's name, as minisign looks for it.
const signatureEnding = ".minisig"

// sign signs a file in its hashed form, as minisign does. The comment that is
// signed too names the file, and no time.
func sign(dir, name string, key *minisign.PrivateKey) error {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	r := minisign.NewReader(bytes.NewReader(data))
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	signature := r.SignWithComments(*key, "file:"+name+" hashed", "signature of "+name)
	return atomicfile.Write(filepath.Join(dir, name+signatureEnding), signature, 0o644)
}

// hand moves the finished files to out. The checksums there go first and come
// last: at no moment do they speak of other files than those that are there.
func hand(fresh, out string, packages []Package, key *minisign.PrivateKey) error {
	sums, err := keptSums(out)
	if err != nil {
		return err
	}
	replace := func(s archive.Sum) {
		sums = slices.DeleteFunc(sums, func(old archive.Sum) bool { return old.Name == s.Name })
		sums = append(sums, s)
	}
	for _, p := range packages {
		sums = slices.DeleteFunc(sums, func(s archive.Sum) bool { return madeBy(p, s.Name) })
		for _, f := range p.Files {
			replace(archive.Sum{Name: f.Name, SHA256: f.SHA256, Parts: f.Parts})
			if key != nil && f.Kind == "provenance" {
				if err := sign(fresh, f.Name, key); err != nil {
					return err
				}
			}
		}
	}
	if err := atomicfile.Write(filepath.Join(fresh, archive.SumsName), archive.EncodeSums(sums), 0o644); err != nil {
		return err
	}
	if key != nil {
		if err := sign(fresh, archive.SumsName, key); err != nil {
			return err
		}
	}
	for _, name := range []string{archive.SumsName + signatureEnding, archive.SumsName} {
		if err := os.Remove(filepath.Join(out, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	entries, err := os.ReadDir(fresh)
	if err != nil {
		return err
	}
	placed := map[string]bool{}
	for _, e := range entries {
		if e.Name() != archive.SumsName {
			if err := os.Rename(filepath.Join(fresh, e.Name()), filepath.Join(out, e.Name())); err != nil {
				return err
			}
			placed[e.Name()] = true
		}
	}
	// Only now: until it was replaced, the old archive is the only one.
	if err := clearOld(out, packages, placed); err != nil {
		return err
	}
	if err := atomicfile.SyncDir(out); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(fresh, archive.SumsName), filepath.Join(out, archive.SumsName)); err != nil {
		return err
	}
	return atomicfile.SyncDir(out)
}

// madeBy says whether a file's name is one that packaging p gives, now or with
// other options: in parts, with debug information, signed.
func madeBy(p Package, name string) bool {
	rest, ok := strings.CutPrefix(name, p.name)
	return ok && endings.MatchString(rest)
}

var endings = regexp.MustCompile(`^(-debug|-dSYM)?\.(tar\.zst|tgz|zip|dmg)(\.part\d+)?$|^\.(cdx|provenance)\.json(\.minisig)?$`)

// clearOld deletes the files of earlier packaging that no new one was placed over.
func clearOld(out string, packages []Package, placed map[string]bool) error {
	entries, err := os.ReadDir(out)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !placed[e.Name()] && slices.ContainsFunc(packages, func(p Package) bool { return madeBy(p, e.Name()) }) {
			if err := os.Remove(filepath.Join(out, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// keptSums are the checksums of files that are in out already: other systems'
// packages may be put into one folder, one after the other.
func keptSums(out string) ([]archive.Sum, error) {
	data, err := os.ReadFile(filepath.Join(out, archive.SumsName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	sums, err := archive.DecodeSums(data)
	if err != nil {
		return nil, fmt.Errorf("reading the checksums that are in %s: %w", out, err)
	}
	return slices.DeleteFunc(sums, func(s archive.Sum) bool {
		return len(s.Parts) == 0 && !exists(filepath.Join(out, s.Name)) || len(s.Parts) > 0 && !exists(filepath.Join(out, s.Parts[0]))
	}), nil
}
