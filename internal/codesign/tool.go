package codesign

import (
	"context"
	"fmt"
	"os"

	"payload/internal/run"
)

// toolArgs is the command line of Apple's tool. entitlements is a file; empty
// where there are none.
func toolArgs(file, identifier, entitlements string, o Options) []string {
	args := []string{"codesign", "--sign", o.Keychain, "--force", "--identifier", identifier}
	if o.Runtime {
		args = append(args, "--options", "runtime")
	}
	if entitlements != "" {
		args = append(args, "--entitlements", entitlements)
	}
	stamp := "--timestamp=none"
	if o.Timestamp != "" {
		stamp = "--timestamp=" + o.Timestamp
	}
	return append(args, stamp, file)
}

// byTool signs a file with a key in a keychain.
func byTool(ctx context.Context, file, identifier string, e Entitlements, o Options) (err error) {
	entitlements := ""
	if len(e) > 0 {
		text, err := e.XML()
		if err != nil {
			return err
		}
		f, err := os.CreateTemp("", "entitlements-*.plist")
		if err != nil {
			return err
		}
		entitlements = f.Name()
		defer func() { _ = os.Remove(entitlements) }()
		_, err = f.Write(text)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
	}
	if _, err := run.Do(ctx, run.Cmd{Args: toolArgs(file, identifier, entitlements, o)}); err != nil {
		return fmt.Errorf("with the keychain's %q: %w", o.Keychain, err)
	}
	return nil
}
