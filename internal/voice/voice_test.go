package voice

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestPlain(t *testing.T) {
	var out bytes.Buffer
	v := New(&out)
	err := v.Step("compile", func() error {
		v.Say("with %d jobs", 2)
		for i := range 100 {
			v.Progress(i+1, 100, "a.c")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	v.Say("done")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if lines[0] != "compile" || lines[1] != "  with 2 jobs" || lines[len(lines)-1] != "done" {
		t.Errorf("%q", lines)
	}
	// A log gets a line for each tenth part, not a hundred.
	if got := strings.Count(out.String(), "/100 ("); got != 10 {
		t.Errorf("%d progress lines:\n%s", got, out.String())
	}
	if strings.ContainsAny(out.String(), "\x1b\r") {
		t.Error("control characters outside a terminal")
	}
}

func TestStepGivesTheError(t *testing.T) {
	want := errors.New("no")
	if err := New(&bytes.Buffer{}).Step("x", func() error { return want }); !errors.Is(err, want) {
		t.Errorf("%v", err)
	}
}

func TestEstimate(t *testing.T) {
	var p progress
	now := time.Unix(0, 0)
	p.line(0, 100, now)
	text, due := p.line(25, 100, now.Add(10*time.Second))
	if !due || text != "25/100 (25 %), about 30s left" {
		t.Errorf("%q, %v", text, due)
	}
	if text, _ := (&progress{begun: now, last: now}).line(1, 1000, now.Add(40*time.Second)); text != "1/1000 (0 %)" {
		t.Errorf("an estimate from next to nothing: %q", text)
	}
	if text, due := p.line(26, 100, now.Add(11*time.Second)); due {
		t.Errorf("too soon: %q", text)
	}
	if _, due := p.line(27, 100, now.Add(45*time.Second)); !due {
		t.Error("nothing for half a minute")
	}
}

func TestWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		400 * time.Millisecond: "0.4s", 12 * time.Second: "12s", 185 * time.Second: "3m05s", 62 * time.Minute: "1h02m",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{999: "999 B", 1500: "1.5 kB", 23_400_000: "23.4 MB"} {
		if got := Size(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
	for most, want := range map[int]string{1: "a and 2 more", 2: "a, b and 1 more", 3: "a, b, c"} {
		if got := List([]string{"a", "b", "c"}, most); got != want {
			t.Errorf("%d of three are %q, want %q", most, got, want)
		}
	}
	if got := fit("abcdefgh", 5); got != "…efgh" {
		t.Errorf("%q", got)
	}
}

func TestBar(t *testing.T) {
	got := bar("  ", 50, 100, ", about 30s left", "src/deep/folder/file.cpp", 76)
	want := "  ██████████████░░░░░░░░░░░░░░ 50/100 50 %, about 30s left  …older/file.cpp"
	if got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
	if got := bar("", 0, 3, "", "file.cpp", 40); strings.Contains(got, "file") {
		t.Errorf("a narrow terminal has no room for the name: %q", got)
	}
}
