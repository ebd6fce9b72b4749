package darwin

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"payload/internal/run"
)

// InPayload names a file that the notary spoke of as the payload does.
func InPayload(path, arch string) string {
	path = strings.TrimPrefix(path, "lib/payload/")
	if arch != "" {
		return fmt.Sprintf("%s (%s)", path, arch)
	}
	return path
}

// Staple puts the notary's ticket into a disk image, on a Mac. Archives have no
// place for one: a Mac fetches the ticket when a file of them is first opened.
func Staple(ctx context.Context, file string, say func(string, ...any)) error {
	name := filepath.Base(file)
	if filepath.Ext(file) != ".dmg" {
		say("%s carries no ticket, as no archive can: Macs ask for it when they first open a file", name)
		return nil
	}
	if _, err := run.Do(ctx, run.Cmd{Args: []string{"xcrun", "stapler", "staple", file}}); err != nil {
		return fmt.Errorf("putting the ticket into %s: %w", name, err)
	}
	return nil
}
