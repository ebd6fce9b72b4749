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
	"unicode/utf8"

	"golang.org/x/term"
)

// Voice writes what is going on. It is safe for several goroutines.
type Voice struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	indent   string
	progress progress
	drawn    bool // the cursor stands behind a bar
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
	v.clear()
	v.progress = progress{}
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
	now := time.Now()
	switch {
	case v.terminal && v.progress.redraw(now):
		fmt.Fprint(v.w, "\r\x1b[K"+bar(v.indent, done, total, v.progress.left(done, total, now), what, v.width()))
		v.drawn = true
	case !v.terminal:
		if text, due := v.progress.line(done, total, now); due {
			v.line(v.indent + text)
		}
	}
}

// bar is one line of at most width cells.
func bar(indent string, done, total int, left, what string, width int) string {
	const cells = 28
	full := cells * done / total
	text := fmt.Sprintf("%s%s%s %d/%d %d %%%s", indent, strings.Repeat("█", full), strings.Repeat("░", cells-full), done, total, done*100/total, left)
	if room := width - 3 - utf8.RuneCountInString(text); room > 8 {
		text += "  " + fit(what, room)
	}
	return text
}

func (v *Voice) width() int {
	if f, ok := v.w.(*os.File); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			return w
		}
	}
	return 80
}

func (v *Voice) line(text string) {
	v.clear()
	fmt.Fprintln(v.w, text)
}

func (v *Voice) clear() {
	if v.drawn {
		fmt.Fprint(v.w, "\r\x1b[K")
		v.drawn = false
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

// progress decides when it is time to tell about progress again.
type progress struct {
	begun, last time.Time
	part        int
}

// redraw is for a terminal: ten times a second at most.
func (p *progress) redraw(now time.Time) bool {
	if p.begun.IsZero() {
		p.begun = now
	}
	if now.Sub(p.last) < 100*time.Millisecond {
		return false
	}
	p.last = now
	return true
}

// line is for a log: at every tenth part or every half minute, whichever comes
// first.
func (p *progress) line(done, total int, now time.Time) (string, bool) {
	if p.begun.IsZero() {
		p.begun, p.last = now, now
	}
	part := done * 10 / total
	if done != total && part == p.part && now.Sub(p.last) < 30*time.Second {
		return "", false
	}
	p.part, p.last = part, now
	return fmt.Sprintf("%d/%d (%d %%)", done, total, done*100/total) + p.left(done, total, now), true
}

// left is how long the rest may take, if it goes on as it did; empty while
// there is too little to go by.
func (p *progress) left(done, total int, now time.Time) string {
	elapsed := now.Sub(p.begun)
	if done == 0 || done < total/100 || done >= total || elapsed < 5*time.Second {
		return ""
	}
	rest := time.Duration(float64(elapsed) / float64(done) * float64(total-done))
	return ", about " + rest.Round(time.Second).String() + " left"
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

// List is the first of some names, for a sentence, and how many more there are.
func List(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
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

// fit cuts s to n characters, keeping its end, where file names differ.
func fit(s string, n int) string {
	r := []rune(s)
	if len(r) > n {
		return "…" + string(r[len(r)-n+1:])
	}
	return s
}
