package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// CheckSums holds files against the list in their folder. Without a list there
// is nothing to hold them against.
func CheckSums(ctx context.Context, files []string) ([]Problem, error) {
	if len(files) == 0 {
		return nil, nil
	}
	list := filepath.Join(filepath.Dir(files[0]), SumsName)
	data, err := os.ReadFile(list)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the checksums: %w", err)
	}
	sums, err := DecodeSums(data)
	if err != nil {
		return []Problem{{ID: "archive.checksums", Title: SumsName + " beside the archive can't be read", Detail: err.Error()}}, nil
	}
	want := map[string]string{}
	for _, s := range sums {
		want[s.Name] = s.SHA256
	}
	problems := missingParts(sums, files)
	for _, file := range files {
		name := filepath.Base(file)
		sum, listed := want[name]
		if !listed {
			problems = append(problems, Problem{ID: "archive.unlisted", Title: fmt.Sprintf("%s is not in %s beside it", name, SumsName), Detail: "users who check it are told that nothing is known of it"})
			continue
		}
		got, err := digest(ctx, file)
		if err != nil {
			return nil, fmt.Errorf("hashing %s: %w", file, err)
		}
		if got != sum {
			problems = append(problems, Problem{ID: "archive.digest", Title: fmt.Sprintf("%s is not the file that %s lists", name, SumsName), Detail: fmt.Sprintf("SHA-256 %s, listed is %s", got, sum)})
		}
	}
	return problems, nil
}

// missingParts are those that the list has of an archive of which files are a
// part. The last ones are missed by the list alone: no number is left out.
func missingParts(sums []Sum, files []string) (problems []Problem) {
	have := map[string]bool{}
	for _, file := range files {
		have[filepath.Base(file)] = true
	}
	isThere := func(name string) bool { return have[name] }
	for _, s := range sums {
		if !slices.ContainsFunc(s.Parts, isThere) {
			continue
		}
		for i, name := range s.Parts {
			if !isThere(name) {
				problems = append(problems, Problem{ID: "archive.part", Title: fmt.Sprintf("part %d of %s is not there", i+1, s.Name), Detail: fmt.Sprintf("%s lists %d parts", SumsName, len(s.Parts))})
			}
		}
	}
	return problems
}

func digest(ctx context.Context, file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // only read
	h := sha256.New()
	if _, err := io.CopyBuffer(h, &stoppable{ctx, f}, make([]byte, 1<<20)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// stoppable is a reader that ends with a context.
type stoppable struct {
	ctx  context.Context
	from io.Reader
}

func (s *stoppable) Read(b []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	return s.from.Read(b)
}
