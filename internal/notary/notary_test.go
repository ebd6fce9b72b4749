package notary

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func archiveFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "payload-darwin.zip")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAccepted(t *testing.T) {
	f := newFake(t, InProgress, "503", InProgress, Accepted)
	archive := archiveFile(t, "an archive")
	out, err := f.service().Notarise(t.Context(), archive)
	if err != nil || out.Status != Accepted || out.ID != "sub-1" {
		t.Fatalf("%+v, %v", out, err)
	}
	if sum, _ := digest(archive); f.sum != sum || f.uploaded != sum {
		t.Errorf("declared %s, uploaded %s, the archive is %s", f.sum, f.uploaded, sum)
	}
	if s, err := readState(archive); err != nil || s.Status != Accepted {
		t.Errorf("state %+v, %v", s, err)
	}
	if _, err := Open(filepath.Dir(archive)); !errors.As(err, new(*NothingError)) {
		t.Errorf("left open: %v", err)
	}
	// Once more costs a question, not a submission.
	if _, err := f.service().Notarise(t.Context(), archive); err != nil || f.submits != 1 {
		t.Errorf("%d submissions, %v", f.submits, err)
	}
	if err := os.WriteFile(archive, []byte("another"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := f.service().Notarise(t.Context(), archive); err != nil || f.submits != 2 {
		t.Errorf("an archive that changed: %d submissions, %v", f.submits, err)
	}
}

func TestIssues(t *testing.T) {
	f := newFake(t, Invalid)
	f.issues = []map[string]any{
		{"severity": "error", "path": "payload-darwin.zip/lib/payload/x/libx.dylib", "message": "The signature does not include a secure timestamp.", "architecture": "arm64", "docUrl": "https://example"},
		{"severity": "warning", "path": "payload-darwin.zip/lib/payload/tool", "message": "odd"},
	}
	archive := archiveFile(t, "an archive")
	out, err := f.service().Notarise(t.Context(), archive)
	if err != nil || out.Status != Invalid || !strings.Contains(out.Summary, "critical") {
		t.Fatalf("%+v, %v", out, err)
	}
	var paths []string
	for _, i := range out.Issues {
		paths = append(paths, i.Severity+" "+i.Path+" "+i.Arch)
	}
	if want := []string{"error lib/payload/x/libx.dylib arm64", "warning lib/payload/tool "}; !slices.Equal(paths, want) {
		t.Errorf("issues %q", paths)
	}
	if _, err := os.Stat(archive + ".notary-log.json"); err != nil {
		t.Error(err)
	}
}

func TestBound(t *testing.T) {
	f := newFake(t, InProgress)
	s := f.service()
	s.Bound = 30 * time.Millisecond
	archive := archiveFile(t, "an archive")
	var late *TimeoutError
	if _, err := s.Notarise(t.Context(), archive); !errors.As(err, &late) || late.ID != "sub-1" {
		t.Fatalf("got %v", err)
	}
	open, err := Open(filepath.Dir(archive))
	if err != nil || !slices.Equal(open, []string{archive}) {
		t.Errorf("open %v, %v", open, err)
	}
	f.answers = []string{Accepted}
	out, err := f.service().Notarise(t.Context(), archive)
	if err != nil || out.Status != Accepted || f.submits != 1 {
		t.Errorf("%+v, %v, %d submissions", out, err, f.submits)
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name string
		harm func(f *fake, s *Service)
		want string
	}{
		{"another key", func(f *fake, s *Service) { s.Key.ID = "K2" }, "the notary answers 401 Unauthorized: Provide a properly configured"},
		{"no key", func(_ *fake, s *Service) { s.Key = Key{} }, "no key of App Store Connect"},
		{"the store refuses", func(f *fake, _ *Service) {
			f.harm = func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }
		}, "uploading payload-darwin.zip: the store answers 403"},
		{"unknown to the notary", func(f *fake, _ *Service) { f.answers = []string{"404"} }, "the notary answers 404"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t, Accepted)
			s := f.service()
			c.harm(f, s)
			if _, err := s.Notarise(t.Context(), archiveFile(t, "an archive")); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// A submission whose archive never arrived is given up: its credentials are gone.
func TestUploadBroken(t *testing.T) {
	f := newFake(t, Accepted)
	f.harm = func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }
	archive := archiveFile(t, "an archive")
	if _, err := f.service().Notarise(t.Context(), archive); err == nil {
		t.Fatal("no error")
	}
	f.harm = nil
	if _, err := f.service().Notarise(t.Context(), archive); err != nil || f.submits != 2 {
		t.Errorf("%v, %d submissions", err, f.submits)
	}
}

func TestCancelled(t *testing.T) {
	f := newFake(t, InProgress)
	s := f.service()
	s.Every = time.Minute
	s.Bound = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	f.asked = func(int) { cancel() }
	if _, err := s.Notarise(ctx, archiveFile(t, "an archive")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// killedVar has what the process that is killed needs: archive, key, URL.
const killedVar = "NOTARY_TEST_KILLED"

// A kill while it waits loses nothing: the next run goes on by the id.
func TestKilled(t *testing.T) {
	if args := os.Getenv(killedVar); args != "" {
		part := strings.Split(args, "|")
		key, err := LoadKey(part[1], "K1", "issuer-1")
		if err != nil {
			t.Fatal(err)
		}
		s := &Service{URL: part[2], Upload: part[2] + "/store", Key: key, Every: 10 * time.Millisecond, Bound: time.Minute}
		_, err = s.Notarise(t.Context(), part[0])
		t.Fatalf("not killed: %v", err)
	}
	f := newFake(t, InProgress)
	archive := archiveFile(t, "an archive")
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), killedVar+"="+strings.Join([]string{archive, f.keyFile(), f.url}, "|"))
	waiting := make(chan bool)
	f.mu.Lock()
	f.asked = func(n int) {
		if n == 3 {
			close(waiting)
		}
	}
	f.mu.Unlock()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-waiting:
	case <-time.After(30 * time.Second):
		t.Error("it does not ask")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // killed
	f.mu.Lock()
	f.asked, f.answers = nil, []string{Accepted}
	f.mu.Unlock()
	open, err := Open(filepath.Dir(archive))
	if err != nil || !slices.Equal(open, []string{archive}) {
		t.Fatalf("open %v, %v", open, err)
	}
	out, err := f.service().Notarise(t.Context(), archive)
	f.mu.Lock() // the killed one's questions are behind it
	submits := f.submits
	f.mu.Unlock()
	if err != nil || out.ID != "sub-1" || submits != 1 {
		t.Errorf("%+v, %v, %d submissions", out, err, submits)
	}
	if again, err := f.service().Resume(t.Context(), archive, "sub-1"); err != nil || again.Status != Accepted {
		t.Errorf("by id: %+v, %v", again, err)
	}
}

func TestKeysRefused(t *testing.T) {
	for name, text := range map[string]string{"text": "hello", "empty": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		file := filepath.Join(t.TempDir(), "key.p8")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadKey(file, "a", "b"); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
