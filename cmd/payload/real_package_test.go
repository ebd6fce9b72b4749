//go:build real && linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"payload/internal/archive"
	"payload/internal/verify/tinymodel"
)

// TestRealPackage packages the real payload twice on differently set machines,
// unpacks it where nothing is but the system's libraries that its inventory
// names, and asks the server there.
func TestRealPackage(t *testing.T) {
	if _, err := archive.ZstdVersion(t.Context()); err != nil {
		t.Skip("NOT RUN: zstd is not on PATH")
	}
	must(t, "build", "--preset", "cpu_ci")
	from, out, second := t.TempDir(), t.TempDir(), t.TempDir()
	// The group base takes the preset cpu; the folder is what it goes by.
	if err := os.Symlink(filepath.Join(root(t), "dist", "cpu_ci"), filepath.Join(from, "cpu")); err != nil {
		t.Fatal(err)
	}
	args := []string{"package", "linux", "--group", "base", "--from", from, "--allow-compressor", "--out"}
	first, _ := must(t, append(args, out)...)
	t.Setenv("TZ", "Asia/Tokyo")
	t.Setenv("LC_ALL", "tr_TR.UTF-8")
	t.Setenv("GOMAXPROCS", "1")
	old := syscall.Umask(0o077)
	again, _ := must(t, append(args, second)...)
	syscall.Umask(old)
	if first != again {
		t.Errorf("the same trees give\n%sand\n%s", first, again)
	}
	name := filepath.Join(out, "payload-linux-amd64-base")
	empty := t.TempDir()
	if text, err := exec.Command("tar", "-C", empty, "-xf", name+".tar.zst").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	systemLibraries(t, name+".cdx.json", empty)
	if err := os.WriteFile(filepath.Join(empty, "model.gguf"), tinymodel.GGUF, 0o644); err != nil {
		t.Fatal(err)
	}
	expected, err := tinymodel.Expected()
	if err != nil {
		t.Fatal(err)
	}
	c := expected.Completions[0]
	if got := askIn(t, empty, c.Prompt, c.NPredict); got != c.Text {
		t.Errorf("%q continues with %q, want %q", c.Prompt, got, c.Text)
	}
}

// systemLibraries copies into root what the inventory says that a system brings.
func systemLibraries(t *testing.T, inventory, root string) {
	t.Helper()
	data, err := os.ReadFile(inventory)
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		Components []struct {
			Ref string `json:"bom-ref"`
		}
	}
	if err := json.Unmarshal(data, &bom); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range bom.Components {
		library, ok := strings.CutPrefix(c.Ref, "system:")
		if !ok {
			continue
		}
		n++
		found := ""
		for _, dir := range []string{"/lib64", "/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/x86_64-linux-gnu"} {
			if _, err := os.Stat(filepath.Join(dir, library)); err == nil {
				found = filepath.Join(dir, library)
				break
			}
		}
		if found == "" {
			t.Fatalf("the inventory names %s, which this system does not have", library)
		}
		content, err := os.ReadFile(found)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(root, found) // where the loader looks for it differs by system
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if n == 0 {
		t.Fatal("the inventory names no library of the system")
	}
}

// askIn starts the server with root as its file system and asks it once. The
// program finds its own folder through /proc.
func askIn(t *testing.T, root, prompt string, n int) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().(*net.TCPAddr)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	server := exec.Command("unshare", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c",
		`mount -t proc proc "$1/proc" && exec chroot "$1" /lib/payload/llama-server -m /model.gguf --host 127.0.0.1 --port "$2" -t 1`, "sh", root, fmt.Sprint(address.Port))
	server.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		t.Skipf("NOT RUN: unshare: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	defer func() {
		_ = server.Process.Kill() // takes the namespace with it
		<-ended
	}()
	body := fmt.Sprintf(`{"prompt":%q,"n_predict":%d,"temperature":0}`, prompt, n)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		select {
		case err := <-ended:
			ended <- err
			if strings.Contains(log.String(), "unshare") {
				t.Skipf("NOT RUN: no namespaces here: %s", log.String())
			}
			t.Fatalf("the server ended: %v\n%s", err, log.String())
		default:
		}
		text, err := complete(fmt.Sprintf("http://%s/completion", address), body)
		if err == nil {
			return text
		}
	}
	_ = server.Process.Kill()
	<-ended
	ended <- nil
	t.Fatalf("the server did not answer:\n%s", log.String())
	return ""
}

func complete(url, body string) (string, error) {
	res, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }() // only read
	data, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return "", errors.Join(err, fmt.Errorf("status %d", res.StatusCode))
	}
	var answer struct{ Content string }
	err = json.Unmarshal(data, &answer)
	return answer.Content, err
}
