package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// voice tells the person what is going on, on stderr: a line that is written
// over on a terminal, nothing of progress elsewhere.
type voice struct {
	w        io.Writer
	terminal bool
	shown    bool
}

func newVoice(w io.Writer) *voice {
	f, ok := w.(*os.File)
	return &voice{w: w, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

func (v *voice) say(format string, args ...any) {
	v.clear()
	fmt.Fprintf(v.w, format+"\n", args...)
}

func (v *voice) progress(what string, done, total int64) {
	if v.terminal && total > 0 {
		fmt.Fprintf(v.w, "\r\x1b[K%s %d%%", what, done*100/total)
		v.shown = true
	}
}

func (v *voice) clear() {
	if v.shown {
		fmt.Fprint(v.w, "\r\x1b[K")
		v.shown = false
	}
}

// aside tells a person, dimmed, what is no part of the output.
func (v *voice) aside(text string) {
	if v.terminal {
		v.clear()
		fmt.Fprintf(v.w, "\x1b[2m%s\x1b[22m", text)
	}
}
