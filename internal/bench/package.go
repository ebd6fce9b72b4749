package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// release compares `payload package` of a staged tree, all of it (what it checks
// and proves too), with tar and zstd -19 of the same tree, taking turns. An
// archive that is larger, or a longer time, is an error.
func (b bench) release(ctx context.Context, runs int) error {
	dir, err := os.MkdirTemp("", "bench-package-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder
	staged := filepath.Join("dist", "cpu")
	if _, err := os.Stat(staged); err != nil {
		staged = filepath.Join("dist", b.preset)
	}
	// The group base takes the preset cpu; the folder is what it goes by.
	if _, err := b.do(ctx, "cp", "-a", staged, filepath.Join(dir, "cpu")); err != nil {
		return err
	}
	out, packed := filepath.Join(dir, "out"), filepath.Join(dir, "peer.tar.zst")
	var ours, peers, ourCPU, peerCPU []time.Duration
	var size, peer, whole int64
	for range runs {
		o, err := b.do(ctx, b.exe, "package", "linux", "--group", "base", "--from", dir, "--out", out, "--json", "--allow-compressor")
		if err != nil {
			return err
		}
		p, err := b.do(ctx, "sh", "-c", `tar --sort=name -C "$1" -cf - lib | zstd -q -f -19 -T2 -o "$2"`, "sh", filepath.Join(dir, "cpu"), packed)
		if err != nil {
			return err
		}
		ours, peers = append(ours, o.Took), append(peers, p.Took)
		ourCPU, peerCPU = append(ourCPU, o.CPU), append(peerCPU, p.CPU)
		if size, whole, err = packageSize(o.Stdout); err != nil {
			return err
		}
		info, err := os.Stat(packed)
		if err != nil {
			return err
		}
		peer = info.Size()
	}
	o, p, oc, pc := median(ours), median(peers), median(ourCPU), median(peerCPU)
	fmt.Printf("payload package of %s (%d bytes), median of %d: %d bytes in %.1f s (%.1f s of processors); tar | zstd -19 -T2: %d bytes in %.1f s (%.1f s); ratios of size %.4f, time %.2f\n", //nolint:forbidigo // a command's output
		staged, whole, runs, size, o.Seconds(), oc.Seconds(), peer, p.Seconds(), pc.Seconds(), float64(size)/float64(peer), o.Seconds()/p.Seconds())
	switch {
	case size > peer:
		return fmt.Errorf("packaging %s: %d bytes, and at most %d are wanted", staged, size, peer)
	case o > p && oc > pc: // one of them alone is what other work on the machine does
		return fmt.Errorf("packaging %s: %s, and at most %s are wanted", staged, o, p)
	}
	return nil
}

// packageSize reads what `payload package --json` says of its one archive.
func packageSize(stdout []byte) (size, whole int64, err error) {
	var report struct {
		Packages []struct {
			Bytes int64
			Files []struct {
				Kind string
				Size int64
			}
		}
	}
	if err := json.Unmarshal(stdout, &report); err != nil {
		return 0, 0, err
	}
	for _, p := range report.Packages {
		for _, f := range p.Files {
			if f.Kind == "archive" {
				return f.Size, p.Bytes, nil
			}
		}
	}
	return 0, 0, errors.New("no archive was made")
}
