package archive

import (
	"context"
	"fmt"
	"io"
	"math/bits"
	"os"
	"regexp"
	"strconv"
	"strings"

	"payload/internal/run"
)

// Zstd is the program that packs: its output depends on its version and on
// these settings, and not on the number of threads.
type Zstd struct {
	Level  int
	Window int   // log2 of the most bytes of history; 27 is what zstd unpacks without being told to
	Job    int64 // the fewest bytes that a thread packs at a time
}

// Best packs as small as zstd's level 19 in less of its time. What lies far
// apart is found over the whole window, and jobs are half of it, so that a
// payload of a few megabytes is packed by several threads.
var Best = Zstd{Level: 19, Window: 27, Job: 8 << 20}

// String is what a manifest says.
func (z Zstd) String() string {
	return fmt.Sprintf("level %d, window of at most 2^%d bytes, jobs of half of it, overlaps of at most 2^%d bytes", z.Level, z.Window, packOverlap)
}

// packOverlap is log2 of how many bytes of the job before a job reads again to find
// repetitions in. On 30 MB of libraries twice as much saved 0.02 % and took half
// as long again.
const packOverlap = 24

// windowFor is the window for so many bytes: one that holds them all packs as
// small as a larger one, in less memory and time.
func (z Zstd) windowFor(size int64) int {
	const least = 20
	return min(z.Window, max(least, bits.Len64(uint64(max(0, size-1)))))
}

// args is the command line for so many bytes. -T of any number above 0 gives
// the same bytes.
func (z Zstd) args(size int64, threads int) []string {
	window := z.windowFor(size)
	args := []string{"zstd", "--quiet", "--stdout", "--no-progress", "--check", fmt.Sprintf("-%d", z.Level)}
	if z.Level > 19 {
		args = append(args, "--ultra")
	}
	// zstd's overlapLog: 9 is the whole window, each less half of that.
	const whole = 9
	job := max(z.Job, 1<<(window-1))
	return append(args, fmt.Sprintf("--long=%d", window), fmt.Sprintf("-B%d", job),
		fmt.Sprintf("--zstd=overlapLog=%d", min(whole, whole+packOverlap-window)), fmt.Sprintf("-T%d", max(1, threads)))
}

// ZstdVersion asks the program zstd which one it is: "1.5.7".
func ZstdVersion(ctx context.Context) (string, error) {
	res, err := run.Do(ctx, run.Cmd{Args: []string{"zstd", "--version"}})
	if err != nil {
		return "", err
	}
	found := zstdVersion.FindString(string(res.Stdout))
	if found == "" {
		return "", fmt.Errorf("asking zstd for its version: it says %q", strings.TrimSpace(string(res.Stdout)))
	}
	return strings.TrimPrefix(found, "v"), nil
}

var zstdVersion = regexp.MustCompile(`\bv\d+\.\d+\.\d+`)

// WriteTarZstd writes path, or its parts, as a tar file packed by the program
// zstd. The folder exists; nothing is left of it after an error.
func WriteTarZstd(ctx context.Context, path string, items []Item, z Zstd, o Writing) (Written, error) {
	return write(path, o, func(w io.Writer) error {
		ctx, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		read, feed := io.Pipe()
		fed := make(chan error, 1)
		go func() {
			err := tarOf(ctx, feed, items, o)
			_ = feed.CloseWithError(err) // always nil
			if err != nil {
				stop(err) // zstd must not finish an archive that lacks something
			}
			fed <- err
		}()
		threads := min(o.Threads, threadsFor(z))
		// ZSTD_* variables would set another level or number of threads; Environ leaves them out.
		_, err := run.Do(ctx, run.Cmd{Args: z.args(tarSize(items), threads), Stdin: read, Stdout: w, Expendable: true})
		_ = read.CloseWithError(io.ErrClosedPipe) // frees the feeder where zstd ended early
		if ferr := <-fed; err == nil {
			err = ferr
		}
		return err
	})
}

// tarSize is about how large the items are as a tar file.
func tarSize(items []Item) int64 {
	const block = 512
	size := int64(2 * block)
	for _, item := range items {
		size += block + (item.Size+block-1)/block*block
	}
	return size
}

// threadsFor is how many threads the machine's free memory allows: each holds a
// window's part of history and the tables of the level.
func threadsFor(z Zstd) int {
	free := freeMemory()
	if free <= 0 {
		return 1 << 10 // not known: as many as asked for
	}
	const tables = 512 << 20 // of level 19 over a job and its history
	shared := int64(4) << z.Window
	return int(max(1, (free/2-shared)/tables))
}

// freeMemory is how many bytes the system could give, as Linux tells; 0 elsewhere.
func freeMemory() int64 {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}
