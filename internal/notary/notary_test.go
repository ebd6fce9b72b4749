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

	"payload/internal/manifest"
	"payload/internal/notary/notarytest"
)

// ask is what asks the service.
func ask(t *testing.T, f *notarytest.Service) *Service {
	t.Helper()
	key, err := LoadKey(f.KeyFile(), notarytest.KeyID, notarytest.Issuer)
	if err != nil {
		t.Fatal(err)
	}
	return &Service{URL: f.URL, Upload: f.Upload, Key: key, Every: time.Millisecond, Bound: 5 * time.Second, Say: t.Logf}
}

func archiveFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "payload-darwin.zip")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAccepted(t *testing.T) {
	f := notarytest.New(t, InProgress, "503", InProgress, Accepted)
	archive := archiveFile(t, "an archive")
	out, err := ask(t, f).Notarise(t.Context(), archive)
	if err != nil || out.Status != Accepted || out.ID != "sub-1" {
		t.Fatalf("%+v, %v", out, err)
	}
	if sum, _ := manifest.Digest(archive); f.Declared != sum || f.Uploaded != sum {
		t.Errorf("declared %s, uploaded %s, the archive is %s", f.Declared, f.Uploaded, sum)
	}
	if s, err := readState(archive); err != nil || s.Status != Accepted {
		t.Errorf("state %+v, %v", s, err)
	}
	if _, err := Open(filepath.Dir(archive)); !errors.As(err, new(*NothingError)) {
		t.Errorf("left open: %v", err)
	}
	// Once more costs a question, not a submission.
	if _, err := ask(t, f).Notarise(t.Context(), archive); err != nil || f.Submits != 1 {
		t.Errorf("%d submissions, %v", f.Submits, err)
	}
	if err := os.WriteFile(archive, []byte("another"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t, f).Notarise(t.Context(), archive); err != nil || f.Submits != 2 {
		t.Errorf("an archive that changed: %d submissions, %v", f.Submits, err)
	}
}

func TestIssues(t *testing.T) {
	f := notarytest.New(t, Invalid)
	f.Issues = []map[string]any{
		{"severity": "error", "path": "payload-darwin.zip/lib/payload/x/libx.dylib", "message": "The signature does not include a secure timestamp.", "architecture": "arm64", "docUrl": "https://example"},
		{"severity": "warning", "path": "payload-darwin.zip/lib/payload/tool", "message": "odd"},
	}
	archive := archiveFile(t, "an archive")
	out, err := ask(t, f).Notarise(t.Context(), archive)
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
	f := notarytest.New(t, InProgress)
	s := ask(t, f)
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
	f.Answers = []string{Accepted}
	out, err := ask(t, f).Notarise(t.Context(), archive)
	if err != nil || out.Status != Accepted || f.Submits != 1 {
		t.Errorf("%+v, %v, %d submissions", out, err, f.Submits)
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name string
		harm func(f *notarytest.Service, s *Service)
		want string
	}{
		{"another key", func(f *notarytest.Service, s *Service) { s.Key.ID = "K2" }, "the notary answers 401 Unauthorized: Provide a properly configured"},
		{"no key", func(_ *notarytest.Service, s *Service) { s.Key = Key{} }, "no key of App Store Connect"},
		{"the store refuses", func(f *notarytest.Service, _ *Service) {
			f.Harm = func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }
		}, "uploading payload-darwin.zip: the store answers 403"},
		{"unknown to the notary", func(f *notarytest.Service, _ *Service) { f.Answers = []string{"404"} }, "the notary answers 404"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := notarytest.New(t, Accepted)
			s := ask(t, f)
			c.harm(f, s)
			if _, err := s.Notarise(t.Context(), archiveFile(t, "an archive")); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// A submission whose archive never arrived is given up: its credentials are gone.
func TestUploadBroken(t *testing.T) {
	f := notarytest.New(t, Accepted)
	f.Harm = func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }
	archive := archiveFile(t, "an archive")
	if _, err := ask(t, f).Notarise(t.Context(), archive); err == nil {
		t.Fatal("no error")
	}
	f.Harm = nil
	if _, err := ask(t, f).Notarise(t.Context(), archive); err != nil || f.Submits != 2 {
		t.Errorf("%v, %d submissions", err, f.Submits)
	}
}

func TestCancelled(t *testing.T) {
	f := notarytest.New(t, InProgress)
	s := ask(t, f)
	s.Every = time.Minute
	s.Bound = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	f.Asked = func(int) { cancel() }
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
		key, err := LoadKey(part[1], notarytest.KeyID, notarytest.Issuer)
		if err != nil {
			t.Fatal(err)
		}
		s := &Service{URL: part[2], Upload: part[2] + "/store", Key: key, Every: 10 * time.Millisecond, Bound: time.Minute}
		_, err = s.Notarise(t.Context(), part[0])
		t.Fatalf("not killed: %v", err)
	}
	f := notarytest.New(t, InProgress)
	archive := archiveFile(t, "an archive")
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), killedVar+"="+strings.Join([]string{archive, f.KeyFile(), f.URL}, "|"))
	waiting := make(chan bool)
	f.Lock()
	f.Asked = func(n int) {
		if n == 3 {
			close(waiting)
		}
	}
	f.Unlock()
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
	f.Lock()
	f.Asked, f.Answers = nil, []string{Accepted}
	f.Unlock()
	open, err := Open(filepath.Dir(archive))
	if err != nil || !slices.Equal(open, []string{archive}) {
		t.Fatalf("open %v, %v", open, err)
	}
	out, err := ask(t, f).Notarise(t.Context(), archive)
	f.Lock() // the killed one's questions are behind it
	submits := f.Submits
	f.Unlock()
	if err != nil || out.ID != "sub-1" || submits != 1 {
		t.Errorf("%+v, %v, %d submissions", out, err, submits)
	}
	if again, err := ask(t, f).Resume(t.Context(), archive, "sub-1"); err != nil || again.Status != Accepted {
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
