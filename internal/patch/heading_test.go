package patch

import "testing"

// Each language's hunk must stay below its own heading: the text is the same
// under both.
func TestHeadings(t *testing.T) {
	t.Parallel()
	body := "    a\n    b\n    c\n    d\n    e\n    f\n    g\n"
	for _, c := range []struct{ file, one, two string }{
		{"x.cpp", "void N::one(int a,\n            int b) {\n", "void N::two(int a,\n            int b) {\n"},
		{"x.cu", "__global__ void one() {\n", "__global__ void two() {\n"},
		{"x.metal", "kernel void one(\n", "kernel void two(\n"},
		{"x.m", "- (void)one {\n", "- (void)two {\n"},
		{"x.mm", "static int one(id x) {\n", "static int two(id x) {\n"},
		{"x.py", "class X:\n    def one(self):\n", "class Y:\n    def two(self):\n"},
		{"x.py", "class X:\n    def one(self):\n", "    async def two(self):\n"},
		{"x.go", "func one() {\n", "func (x *T) two() {\n"},
		{"x.rs", "pub fn one() {\n", "unsafe fn two() {\n"},
		{"x.other", "one:\n", "two:\n"},
	} {
		before := files{c.file: c.one + body + c.two + body}
		after := files{c.file: c.one + "    a\n    b\n    c\n    d\n    E\n    f\n    g\n" + c.two + body}
		patch := seriesOf(t, before, after)[0]
		lang := languageFor(c.file)
		h := Parse("1.patch", []byte(patch)).Diffs[0].Hunks[0]
		lines := splitLines(before[c.file])
		first := h.start()
		second := len(splitLines(c.one+body+c.two)) + 1
		if !lang.inSection(h.Section, lines, first) {
			t.Errorf("%s %q: not below %q at line %d", c.file, c.one, h.Section, first+1)
		}
		if lang.inSection(h.Section, lines, second) {
			t.Errorf("%s %q: below %q at line %d, which is in %q", c.file, c.one, h.Section, second+1, c.two)
		}
		to := mapLines(lines, lines)
		if lang.sameFunction(lines, first+3, lines, second+3, to) || !lang.sameFunction(lines, first+3, lines, first+3, to) {
			t.Errorf("%s %q: two functions taken for one, or one for two", c.file, c.one)
		}
	}
}
