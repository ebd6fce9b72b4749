package cmakefile

import (
	"fmt"
	"slices"
	"testing"
)

func TestCommands(t *testing.T) {
	text := "# a (comment\n#[[ over\nlines ( ]] set(A \"b;\\\"c\\\nd\" [=[ ${raw} ]]]=] e\\ f(g) -Dx=\"y z\" \"\") # end\nIF(NOT (A AND B))\n"
	list, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range list {
		for _, a := range c.Args {
			got = append(got, fmt.Sprintf("%s:%d:%d:%s", c.Name, c.Line, a.Line, a.Text))
		}
	}
	want := []string{
		"set:3:3:A", "set:3:3:b;\"cd", "set:3:4: ${raw} ]]", "set:3:4:e f", "set:3:4:(", "set:3:4:g", "set:3:4:)", "set:3:4:-Dx=y z", "set:3:4:",
		"if:5:5:NOT", "if:5:5:(", "if:5:5:A", "if:5:5:AND", "if:5:5:B", "if:5:5:)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, broken := range []string{"set(A", "set(\"A)", "set", "(A)", "set(A \\"} {
		if _, err := Parse(broken); err == nil {
			t.Errorf("%q is read", broken)
		}
	}
}

// FuzzCommands holds that any text is read to an end.
func FuzzCommands(f *testing.F) {
	for _, text := range []string{"set(A [=[ b ]=])", "a(\"\\\n\" # c\n)", "#[[x\n", "a([[", "f(-D\"x", "a(\\"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := Parse(text)
		if err == nil && len(list) == 0 && len(text) > 0 && isName(text[0]) {
			t.Errorf("%q holds no command", text)
		}
	})
}
