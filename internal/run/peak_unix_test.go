//go:build unix

package run

import (
	"context"
	"testing"
)

// The most memory of a child is told: a shell takes some, and not a gigabyte.
func TestPeak(t *testing.T) {
	res, err := Do(context.Background(), Cmd{Args: []string{"sh", "-c", ":"}})
	if err != nil {
		t.Fatal(err)
	}
	if res.Peak < 100<<10 || res.Peak > 1<<30 {
		t.Errorf("the peak is %d bytes", res.Peak)
	}
}
