// Package voice is how the tool talks to the person in front of it: steps,
// lines and a progress bar, on stderr. Data never passes through it.
package voice

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Voice writes what is going on. It is safe for several goroutines.
type Voice struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	indent   string
	bar      *progressbar.ProgressBar
	plain    plainProgress
}

// New speaks on w; a terminal gets a bar, everything else plain lines.
func New(w io.Writer) *Voice {
	f, ok := w.(*os.File)
	return &Voice{w: w, terminal: ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"}
}

// Say writes one line, below the current step if there is one.
func (v *Voice) Say(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.line(v.indent + fmt.Sprintf(format, args...))
}

// Write lets other writers (-x, a tool's stderr) share the place without
// tearing the bar. It implements io.Writer.
func (v *Voice) Write(b []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.clear()
	return v.w.Write(b)
}

// Step runs one named step of a list: its name, what it says, and its time
// where that is worth telling.
func (v *Voice) Step(name string, step func() error) error {
	v.mu.Lock()
	v.indent = ""
	v.line(v.bold(name))
	v.indent = "  "
	v.mu.Unlock()
	begun := time.Now()
	err := step()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.endProgress()
	if took := time.Since(begun); err == nil && took >= time.Second {
		v.line(v.indent + v.faint(name+" took "+Duration(took)))
	}
	v.indent = ""
	return err
}

// Progress shows that done of total are ready, and what is being worked on.
func (v *Voice) Progress(done, total int, what string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if total <= 0 {
		return
	}
	if !v.terminal {
		if text, due := v.plain.next(done, total, time.Now()); due {
			v.line(v.indent + text)
		}
		return
	}
	if v.bar == nil || v.bar.GetMax() != total {
		v.endProgress()
		v.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(v.w),
			progressbar.OptionSetWidth(28),
			progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionSetElapsedTime(true),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionUseANSICodes(true),
			progressbar.OptionSetTheme(progressbar.Theme{Saucer: "█", SaucerPadding: "░", BarStart: "", BarEnd: ""}),
		)
	}
	v.bar.Describe(v.indent + fit(what, 32))
	_ = v.bar.Set(done) // only a terminal that went away can fail here
}

func (v *Voice) endProgress() {
	if v.bar != nil {
		v.clear()
		v.bar = nil
	}
	v.plain = plainProgress{}
}

func (v *Voice) line(text string) {
	v.clear()
	fmt.Fprintln(v.w, text)
}

func (v *Voice) clear() {
	if v.bar != nil {
		_ = v.bar.Clear() // only a terminal that went away can fail here
	}
}

func (v *Voice) bold(s string) string  { return v.styled("1", s) }
func (v *Voice) faint(s string) string { return v.styled("2", s) }

func (v *Voice) styled(code, s string) string {
	if !v.terminal || os.Getenv("NO_COLOR") != "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// plainProgress decides when a log that isn't a terminal gets a line: at every
// tenth part or every half minute, whichever comes first.
type plainProgress struct {
	begun, last time.Time
	part        int
}

func (p *plainProgress) next(done, total int, now time.Time) (string, bool) {
	if p.begun.IsZero() {
		p.begun, p.last = now, now
	}
	part := done * 10 / total
	if done != total && part == p.part && now.Sub(p.last) < 30*time.Second {
		return "", false
	}
	p.part, p.last = part, now
	text := fmt.Sprintf("%d/%d (%d %%)", done, total, done*100/total)
	if elapsed := now.Sub(p.begun); done > 0 && done < total && elapsed > 5*time.Second {
		left := time.Duration(float64(elapsed) / float64(done) * float64(total-done))
		text += ", about " + Duration(left) + " left"
	}
	return text, true
}

// Duration is a time as people say it: 0.4s, 12s, 3m05s, 1h02m.
func Duration(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}

// Size is a number of bytes as people say it.
func Size(bytes int64) string {
	const unit = 1000
	value, units := float64(bytes), []string{"B", "kB", "MB", "GB", "TB"}
	for value >= unit && len(units) > 1 {
		value /= unit
		units = units[1:]
	}
	if units[0] == "B" {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", value, units[0])
}

// fit cuts or pads s to n characters, keeping its end, where file names differ.
func fit(s string, n int) string {
	r := []rune(s)
	if len(r) > n {
		return "…" + string(r[len(r)-n+1:])
	}
	return s + strings.Repeat(" ", n-len(r))
}
