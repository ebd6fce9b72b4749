package verify

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// A program that was just copied starts, though others are started meanwhile: none
// of them may have got the copy while it was open for writing.
func TestCopyStarts(t *testing.T) {
	program, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	for range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command(program).Run()
				}
			}
		}()
	}
	dir := t.TempDir()
	for i := range 400 {
		file := filepath.Join(dir, strconv.Itoa(i))
		if err := copyFile(program, file); err != nil {
			t.Fatal(err)
		}
		if err := exec.Command(file).Run(); err != nil {
			t.Errorf("copy %d: %v", i, err)
			break
		}
	}
	close(stop)
	for range 4 {
		<-done
	}
}
