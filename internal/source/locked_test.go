package source

import (
	"errors"
	"strings"
	"testing"

	"payload/internal/config"
	"payload/internal/pin"
)

// What a kind of source gave before must not come back by way of the store when
// that kind isn't wanted.
func TestKindsRestrictTheStoreForALockedRef(t *testing.T) {
	up, s := upstreamRepo(t), openStore(t)
	path, sum := archive(t)
	up.Commit(map[string]string{"only-in-git": "x"})
	up.Run("tag", "-f", "b7")
	mirror := config.Mirror{Ref: "b7", Archive: path, Path: "vendor/x", SHA256: sum}
	req, _ := request(t, up.Dir, mirror)
	req.Kinds = []Kind{FromMirror}
	fromMirror := get(t, s, req)
	req.Kinds = []Kind{FromGit}
	fromGit := get(t, openStore(t), req) // in another store: this one has the mirror's alone
	req.Entry = locked(req, fromGit)
	req.Entry.Sources = append(req.Entry.Sources, pin.Source{From: mirror.ID(), Pristine: fromMirror.Pristine, Patched: fromMirror.Patched})

	for _, tt := range []struct {
		kinds []Kind
		want  *Tree
	}{
		{[]Kind{FromStore}, fromMirror}, // whatever it has
		{[]Kind{FromStore, FromMirror}, fromMirror},
		{[]Kind{FromStore, FromGit}, fromGit},
		{[]Kind{FromStore, FromMirror}, fromMirror},
	} {
		req.Kinds = tt.kinds
		if got := get(t, s, req); got.Pristine != tt.want.Pristine || got.From != tt.want.From {
			t.Errorf("%v: got %s of %s, want that of %s", tt.kinds, got.Pristine, got.From, tt.want.From)
		}
	}
}

// Of a locked ref nothing is taken that can't be told to be the right tree.
func TestLockedRefTakesNothingUnjudged(t *testing.T) {
	up := upstreamRepo(t)
	path, sum := archive(t)
	mirror := config.Mirror{Ref: "b7", Archive: path, Path: "vendor/x", SHA256: sum}
	req, voice := request(t, up.Dir, mirror)
	req.Kinds = []Kind{FromGit}
	fromGit := get(t, openStore(t), req)

	// Neither a commit nor a row of git's: upstream may answer anything.
	req.Kinds = nil
	req.Entry = locked(req, fromGit)
	req.Entry.Commit, req.Entry.Sources[0].From = "", mirror.ID()
	up.Commit(map[string]string{"mixed.c": "not what was locked\n"})
	up.Run("tag", "-f", "b7")
	if got := get(t, openStore(t), req); got.From != mirror.ID() || got.Pristine != fromGit.Pristine {
		t.Errorf("got %+v; want the mirror's", got)
	}
	voice.has(t, `comp b7: git passed over: payload.lock does not say which tree it has; "payload lock" writes that`)
	req.Kinds = []Kind{FromGit}
	_, err := openStore(t).Tree(t.Context(), req)
	var none *NoSourceError
	if !errors.As(err, &none) || !strings.Contains(err.Error(), "payload lock") {
		t.Errorf("git alone: %v", err)
	}

	// A mirror without a row, even where the commit is known.
	req.Kinds = []Kind{FromMirror}
	req.Entry = locked(req, fromGit)
	_, err = openStore(t).Tree(t.Context(), req)
	if !errors.As(err, &none) || !strings.Contains(err.Error(), mirror.ID()+": payload.lock does not say which tree it has") {
		t.Errorf("a mirror without a row: %v", err)
	}

	// The commit itself says what git must give.
	req.Kinds = []Kind{FromGit}
	req.Entry.Sources[0].From = mirror.ID()
	req.Ref = fromGit.Commit
	if got := get(t, openStore(t), req); got.From != "git" || got.Pristine != fromGit.Pristine {
		t.Errorf("git at the locked commit: %+v", got)
	}
}

// A pin by commit uses the mirrors that hold this commit.
func TestMirrorOfACommit(t *testing.T) {
	path, sum := archive(t)
	commit := strings.Repeat("c", 40)
	req, _ := request(t, t.TempDir(), config.Mirror{Ref: "b7", Commit: commit, Archive: path, Path: "vendor/x", SHA256: sum})
	req.Ref, req.Kinds = commit, []Kind{FromMirror}
	if got := get(t, openStore(t), req); got.Commit != commit {
		t.Errorf("got %+v", got)
	}
	req.Ref = strings.Repeat("d", 40)
	if _, err := openStore(t).Tree(t.Context(), req); !errors.As(err, new(*NoSourceError)) {
		t.Errorf("another commit: %v", err)
	}
}
