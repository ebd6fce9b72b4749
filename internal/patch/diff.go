package patch

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// FileDiff is what a patch does to one file. Paths are relative to the root of
// the tree, with forward slashes, and may hold any bytes.
type FileDiff struct {
	Old, New         string // empty: the file is not there before, or after
	OldMode, NewMode string // git's octal modes; empty where the patch is silent
	OldID, NewID     string // blob ids, perhaps abbreviated; empty where the patch is silent
	Rename, Copy     bool
	Hunks            []Hunk
	Binary           *Binary

	isGit bool // begins with "diff --git"
	// For a diff without a/ and b/, the paths with nothing taken off; which of
	// the two is meant depends on the tree.
	rawOld, rawNew string
}

// Path is the name that a person would use for the file.
func (d FileDiff) Path() string {
	if d.New != "" {
		return d.New
	}
	return d.Old
}

// Hunk is one place of change. Lines count from 1, as in the patch.
type Hunk struct {
	OldStart, OldLines int
	NewStart, NewLines int
	Section            string // the heading after the second @@
	Lines              []Line
}

// Line is one line of a hunk: ' ', '-' or '+', and its text with its line
// ending, which is missing where the file has none.
type Line struct {
	Op   byte
	Text string
}

const (
	symlink   = "120000"
	submodule = "160000"
)

var (
	hunkHeader = regexp.MustCompile(`^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(?: (.*))?$`)
	indexLine  = regexp.MustCompile(`^index ([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: (\d{6}))?$`)
	mailStart  = regexp.MustCompile(`^From [0-9a-f]{40,64} `)
	statTotal  = regexp.MustCompile(`^ (\d+) files? changed(?:, (\d+) insertions?\(\+\))?(?:, (\d+) deletions?\(-\))?$`)
)

// errEndings is the whole file having been converted, which also spoils its
// content: not one line of it can be trusted.
var errEndings = errors.New("line endings: the patch file was converted to CRLF; keep it with `*.patch -text` in .gitattributes")

type reader struct {
	lines []string // with their line endings
	at    int
}

func (r *reader) more() bool { return r.at < len(r.lines) }

// peek is the current line without its line feed; empty at the end.
func (r *reader) peek() string {
	if !r.more() {
		return ""
	}
	return strings.TrimSuffix(r.lines[r.at], "\n")
}

func (r *reader) fault(kind, format string, args ...any) error {
	return fmt.Errorf("%s: line %d: %s", kind, r.at+1, fmt.Sprintf(format, args...))
}

const (
	truncated = "truncated"
	notPatch  = "not a patch"
)

// startsDiff says whether a diff of one file begins at the current line.
func (r *reader) startsDiff() bool {
	line := r.peek()
	if strings.HasPrefix(line, "diff --git ") {
		return true
	}
	return strings.HasPrefix(line, "--- ") && r.at+1 < len(r.lines) && strings.HasPrefix(r.lines[r.at+1], "+++ ")
}

// parseDiffs splits a patch file into what stands above the first diff and its
// diffs. Unlike git and patch it accounts for every line: what they drop as
// garbage (the rest of a hunk whose header counts too few lines) is an error.
func parseDiffs(text string) (head string, diffs []FileDiff, err error) {
	r := &reader{lines: splitLines(text)}
	for r.more() && !r.startsDiff() {
		r.at++
	}
	head = strings.Join(r.lines[:r.at], "")
	if !r.more() {
		if strings.TrimSpace(text) == "" {
			return head, nil, errors.New(notPatch + ": the file is empty")
		}
		return head, nil, errors.New(notPatch + ": no diff in it")
	}
	for r.more() {
		line := r.peek()
		switch {
		case r.startsDiff():
			d, err := r.fileDiff()
			if err != nil {
				return head, diffs, err
			}
			diffs = append(diffs, d)
		case line == "-- ": // the signature of a mail: nothing after it is a diff
			for r.at++; r.more(); r.at++ {
				if r.startsDiff() || strings.HasPrefix(r.peek(), "@@ ") {
					return head, diffs, r.fault(notPatch, "a diff after the mail's signature")
				}
			}
		case strings.TrimSpace(line) == "", strings.HasPrefix(line, "Index: "), strings.HasPrefix(line, "====="),
			strings.HasPrefix(line, "diff "), strings.HasPrefix(line, "Only in "):
			r.at++
		case mailStart.MatchString(line):
			return head, diffs, r.fault(notPatch, "a second patch begins in the same file")
		case strings.HasSuffix(line, "\r"):
			return head, diffs, errEndings
		case strings.HasPrefix(line, "--- "):
			return head, diffs, r.fault(truncated, "no +++ line after %q", clip(line))
		default:
			return head, diffs, r.fault(notPatch, "%q belongs to no hunk", clip(line))
		}
	}
	return head, diffs, checkStat(head, diffs)
}

// checkStat compares the diffs with the totals of the diffstat: a patch cut
// off between two hunks or files looks whole otherwise. More than the totals is
// a stale diffstat, which does no harm.
func checkStat(head string, diffs []FileDiff) error {
	var m []string
	for _, line := range strings.Split(head, "\n") {
		if found := statTotal.FindStringSubmatch(line); found != nil {
			m = found
		}
	}
	if m == nil {
		return nil
	}
	paths := map[string]bool{}
	added, removed := 0, 0
	for _, d := range diffs {
		paths[d.Path()] = true
		for _, h := range d.Hunks {
			for _, l := range h.Lines {
				switch l.Op {
				case '+':
					added++
				case '-':
					removed++
				}
			}
		}
	}
	for _, c := range []struct {
		stated string
		held   int
		what   string
	}{{m[1], len(paths), "changed files"}, {m[2], added, "insertions"}, {m[3], removed, "deletions"}} {
		if n, _ := strconv.Atoi(c.stated); n > c.held {
			return fmt.Errorf("%s: its diffstat counts %d %s, its diffs hold %d", truncated, n, c.what, c.held)
		}
	}
	return nil
}

// fileDiff reads the diff of one file.
func (r *reader) fileDiff() (FileDiff, error) {
	var d FileDiff
	first := r.peek()
	start := r.at
	var named [2]string // names without any prefix, from rename and copy lines
	if strings.HasPrefix(first, "diff --git ") {
		if strings.HasSuffix(first, "\r") {
			return d, errEndings
		}
		d.isGit = true
		r.at++
		if err := r.extended(&d, &named); err != nil {
			return d, err
		}
	}
	var err error
	switch line := r.peek(); {
	case strings.HasPrefix(line, "--- ") && r.more():
		err = r.textDiff(&d)
	case line == "GIT binary patch":
		r.at++
		d.Binary, err = r.binary()
	case strings.HasPrefix(line, "Binary files ") && strings.HasSuffix(line, " differ"):
		return d, r.fault(truncated, "a binary change without its data; export it with --binary")
	}
	if err != nil {
		return d, err
	}
	if d.isGit {
		if err := d.gitNames(strings.TrimPrefix(first, "diff --git "), named); err != nil {
			r.at = start
			return d, r.fault(notPatch, "%v", err)
		}
	}
	return d, r.sound(d, start)
}

// extended reads the lines between "diff --git" and the content.
func (r *reader) extended(d *FileDiff, named *[2]string) error {
	for ; r.more(); r.at++ {
		line := r.peek()
		if strings.HasSuffix(line, "\r") && !strings.HasPrefix(line, "--- ") {
			return errEndings
		}
		key, value := line, ""
		for _, k := range []string{"old mode ", "new mode ", "deleted file mode ", "new file mode ", "copy from ", "copy to ", "rename from ", "rename to ", "similarity index ", "dissimilarity index ", "index "} {
			if v, ok := strings.CutPrefix(line, k); ok {
				key, value = k, v
			}
		}
		var err error
		switch key {
		case "old mode ":
			d.OldMode = value
		case "new mode ":
			d.NewMode = value
		case "deleted file mode ":
			d.OldMode, d.New, d.rawNew = value, "", ""
			named[1] = devNull
		case "new file mode ":
			d.NewMode = value
			named[0] = devNull
		case "copy from ", "rename from ":
			named[0], err = unquote(value)
			d.Copy = key == "copy from "
			d.Rename = !d.Copy
		case "copy to ", "rename to ":
			named[1], err = unquote(value)
		case "similarity index ", "dissimilarity index ":
		case "index ":
			m := indexLine.FindStringSubmatch(line)
			if m == nil {
				return r.fault(notPatch, "not an index line: %q", clip(line))
			}
			d.OldID, d.NewID = m[1], m[2]
			if m[3] != "" {
				d.OldMode, d.NewMode = m[3], m[3]
			}
		default:
			return nil
		}
		if err != nil {
			return r.fault(notPatch, "%v", err)
		}
	}
	return nil
}

const devNull = "/dev/null"

// textDiff reads the --- and +++ lines and the hunks.
func (r *reader) textDiff(d *FileDiff) error {
	var raw, stamp [2]string
	for i, mark := range []string{"--- ", "+++ "} {
		line := r.peek()
		if strings.HasSuffix(line, "\r") {
			return errEndings
		}
		name, ok := strings.CutPrefix(line, mark)
		if !ok {
			return r.fault(truncated, "a %sline is missing", mark)
		}
		var err error
		// A time stamp follows a tab; git ends names with spaces by a tab.
		if !strings.HasPrefix(name, `"`) {
			name, stamp[i], _ = strings.Cut(name, "\t")
		}
		if raw[i], err = unquote(name); err != nil {
			return r.fault(notPatch, "%v", err)
		}
		r.at++
	}
	if err := d.setNames(raw); err != nil {
		return r.fault(notPatch, "%v", err)
	}
	for strings.HasPrefix(r.peek(), "@@ ") {
		h, err := r.hunk(len(d.Hunks) + 1)
		if err != nil {
			return err
		}
		d.Hunks = append(d.Hunks, h)
	}
	if len(d.Hunks) == 0 {
		return r.fault(truncated, "no hunk for %s", d.Path())
	}
	// A plain diff names a missing file by its time, the epoch.
	if h := d.Hunks[0]; !d.isGit && len(d.Hunks) == 1 {
		if h.OldStart == 0 && h.OldLines == 0 && epoch(stamp[0]) {
			d.Old, d.rawOld = "", ""
		}
		if h.NewStart == 0 && h.NewLines == 0 && epoch(stamp[1]) {
			d.New, d.rawNew = "", ""
		}
	}
	return nil
}

func epoch(stamp string) bool {
	return strings.HasPrefix(stamp, "1970-01-01 ") || strings.HasPrefix(stamp, "1969-12-31 ")
}

// setNames takes the a/ and b/ off two names; either may be /dev/null.
func (d *FileDiff) setNames(raw [2]string) error {
	if raw[0] == devNull && raw[1] == devNull {
		return errors.New("both sides are /dev/null")
	}
	strip := func(name string) string {
		if name == devNull {
			return ""
		}
		_, rest, ok := strings.Cut(name, "/")
		if !ok {
			return name
		}
		return rest
	}
	d.Old, d.New = strip(raw[0]), strip(raw[1])
	if raw[0] != devNull && d.Old == "" || raw[1] != devNull && d.New == "" {
		return errors.New("a file without a name")
	}
	if prefixed(raw) {
		return nil
	}
	if d.rawOld = raw[0]; raw[0] == devNull {
		d.rawOld = ""
	}
	if d.rawNew = raw[1]; raw[1] == devNull {
		d.rawNew = ""
	}
	return nil
}

// prefixed says whether names begin with two of git's prefixes.
func prefixed(raw [2]string) bool {
	known := func(name, letters string) bool {
		return name == devNull || len(name) > 2 && name[1] == '/' && strings.ContainsRune(letters, rune(name[0]))
	}
	if known(raw[0], "a") && known(raw[1], "b") {
		return true
	}
	return known(raw[0], "cio1") && known(raw[1], "iwo2") && raw[0][0] != raw[1][0]
}

// gitNames settles the paths of a git diff from all the places that name them,
// which must agree.
func (d *FileDiff) gitNames(header string, named [2]string) error {
	if d.Rename || d.Copy {
		if named[0] == "" || named[1] == "" || named[0] == devNull || named[1] == devNull {
			return errors.New("a rename or copy that names one side only")
		}
		if len(d.Hunks) > 0 && d.rawOld == "" && (d.Old != named[0] || d.New != named[1]) {
			return fmt.Errorf("its --- and +++ lines don't name %s and %s", named[0], named[1])
		}
		d.Old, d.New, d.rawOld, d.rawNew = named[0], named[1], "", ""
		return nil
	}
	if len(d.Hunks) > 0 {
		switch {
		case named[0] == devNull && d.Old != "", named[1] == devNull && d.New != "":
			return errors.New("its header and its --- and +++ lines disagree")
		case d.Old != "" && d.New != "" && d.Old != d.New:
			return fmt.Errorf("%s becomes %s without a rename line", d.Old, d.New)
		case d.Old == "" && named[0] != devNull && !strings.HasSuffix(header, d.New):
			return errors.New("its header and its +++ line disagree")
		}
		return nil
	}
	raw, err := splitHeader(header)
	if err != nil {
		return err
	}
	if err := d.setNames(raw); err != nil {
		return err
	}
	if named[0] == devNull {
		d.Old, d.rawOld = "", ""
	}
	if named[1] == devNull {
		d.New, d.rawNew = "", ""
	}
	return nil
}

// splitHeader parts the two names of a "diff --git" line without a rename:
// unquoted names may hold spaces, but both are the same but for a prefix.
func splitHeader(s string) ([2]string, error) {
	if strings.HasPrefix(s, `"`) || strings.HasSuffix(s, `"`) {
		var names [2]string
		first, rest, err := quotedWord(s)
		if err != nil {
			return names, err
		}
		second, err := unquote(strings.TrimPrefix(rest, " "))
		return [2]string{first, second}, err
	}
	for i := range len(s) {
		if s[i] != ' ' {
			continue
		}
		a, b := s[:i], s[i+1:]
		_, x, okA := strings.Cut(a, "/")
		_, y, okB := strings.Cut(b, "/")
		if a == b || okA && okB && x == y {
			return [2]string{a, b}, nil
		}
	}
	return [2]string{}, fmt.Errorf("no two names in %q", clip("diff --git "+s))
}

// hunk reads one hunk by the counts of its header.
func (r *reader) hunk(n int) (Hunk, error) {
	line := r.peek()
	if strings.HasSuffix(line, "\r") {
		return Hunk{}, errEndings
	}
	m := hunkHeader.FindStringSubmatch(line)
	if m == nil {
		return Hunk{}, r.fault(notPatch, "not a hunk header: %q", clip(line))
	}
	var nums [4]int
	for i := range nums {
		nums[i] = 1
		if m[i+1] == "" {
			continue
		}
		v, err := strconv.Atoi(m[i+1])
		if err != nil || v > 1<<30 {
			return Hunk{}, r.fault(notPatch, "not a hunk header: %q", clip(line))
		}
		nums[i] = v
	}
	h := Hunk{OldStart: nums[0], OldLines: nums[1], NewStart: nums[2], NewLines: nums[3], Section: strings.TrimSpace(m[5])}
	if h.OldLines > 0 && h.OldStart == 0 || h.NewLines > 0 && h.NewStart == 0 {
		return h, r.fault(notPatch, "not a hunk header: %q", clip(line))
	}
	r.at++
	changed := false
	for oldLeft, newLeft := h.OldLines, h.NewLines; oldLeft > 0 || newLeft > 0; r.at++ {
		if !r.more() {
			return h, r.fault(truncated, "hunk %d ends %d lines early", n, max(oldLeft, newLeft))
		}
		raw := r.lines[r.at]
		l := Line{Op: raw[0], Text: raw[1:]}
		if raw == "\n" { // an editor took off the space of an empty context line
			l = Line{Op: ' ', Text: raw}
		}
		switch l.Op {
		case ' ':
			oldLeft, newLeft = oldLeft-1, newLeft-1
		case '-':
			oldLeft, changed = oldLeft-1, true
		case '+':
			newLeft, changed = newLeft-1, true
		case '\\':
			if err := h.unterminated(); err != nil {
				return h, r.fault(notPatch, "%v", err)
			}
			continue
		default:
			return h, r.fault(truncated, "hunk %d goes on for %d lines, but here stands %q", n, max(oldLeft, newLeft), clip(raw))
		}
		if oldLeft < 0 || newLeft < 0 {
			return h, r.fault(notPatch, "hunk %d does not hold the lines that its header counts", n)
		}
		h.Lines = append(h.Lines, l)
	}
	if strings.HasPrefix(r.peek(), `\`) {
		if err := h.unterminated(); err != nil {
			return h, r.fault(notPatch, "%v", err)
		}
		r.at++
	}
	if !changed {
		return h, r.fault(notPatch, "hunk %d changes nothing", n)
	}
	if last := h.Lines[len(h.Lines)-1]; !r.more() && !strings.HasSuffix(last.Text, "\n") && !strings.HasSuffix(r.lines[len(r.lines)-1], "\n") && !strings.HasPrefix(r.lines[len(r.lines)-1], `\`) {
		// The file itself lacks its last line feed: the cut may lie anywhere
		// in this line.
		return h, r.fault(truncated, "the last line has no line feed")
	}
	return h, nil
}

// unterminated takes the line feed off the last line read.
func (h *Hunk) unterminated() error {
	if len(h.Lines) == 0 {
		return errors.New("a mark for a missing line feed, but no line before it")
	}
	last := &h.Lines[len(h.Lines)-1]
	if !strings.HasSuffix(last.Text, "\n") {
		return errors.New("two marks for one missing line feed")
	}
	last.Text = strings.TrimSuffix(last.Text, "\n")
	return nil
}

// sound checks a diff as a whole.
func (r *reader) sound(d FileDiff, start int) error {
	at := *r
	at.at = start
	for _, p := range []string{d.Old, d.New, d.rawOld, d.rawNew} {
		if p != "" && !safePath(p) {
			return at.fault(notPatch, "the path %q leaves the tree", p)
		}
	}
	for _, mode := range []string{d.OldMode, d.NewMode} {
		switch mode {
		case "", "100644", "100755", symlink:
		case submodule:
			return at.fault(notPatch, "%s is a submodule, which a patch can't carry", d.Path())
		default:
			return at.fault(notPatch, "unknown file mode %s", mode)
		}
	}
	whole := len(d.Hunks) > 0 || d.Binary != nil
	modeOnly := d.OldMode != "" && d.NewMode != "" && d.OldMode != d.NewMode
	added, gone := d.Old == "", d.New == ""
	switch {
	case whole, d.Rename && d.OldID == "", d.Copy && d.OldID == "", modeOnly && d.OldID == "":
	case added && emptyBlob(d.NewID), gone && emptyBlob(d.OldID):
	case added && d.NewID == "" && d.NewMode != "", gone && d.OldID != "":
		// An empty file without an index line; a deletion that only names the blob.
	default:
		return at.fault(truncated, "nothing follows the header of %s", d.Path())
	}
	if added && len(d.Hunks) > 0 && (len(d.Hunks) != 1 || d.Hunks[0].OldLines != 0) || gone && len(d.Hunks) > 0 && (len(d.Hunks) != 1 || d.Hunks[0].NewLines != 0) {
		return at.fault(notPatch, "%s is added or deleted, yet its hunks show another side", d.Path())
	}
	end := 0
	for i, h := range d.Hunks {
		if h.start() < end {
			return at.fault(notPatch, "hunk %d of %s overlaps the one before it", i+1, d.Path())
		}
		end = h.start() + h.OldLines
	}
	return nil
}

// emptyBlob says whether id, perhaps abbreviated, is that of an empty file.
func emptyBlob(id string) bool {
	return id != "" && (strings.HasPrefix(blobID(""), id) || strings.HasPrefix(blobID256(""), id))
}

// safePath says whether a path stays below the root and outside a .git.
func safePath(p string) bool {
	if p == "" || strings.HasPrefix(p, "/") || strings.ContainsRune(p, 0) || path.Clean(p) != p {
		return false
	}
	for _, part := range strings.Split(p, "/") {
		if part == ".." || part == "." || strings.EqualFold(part, ".git") {
			return false
		}
	}
	return true
}

// clip shortens text for a message and shows it without its line ending.
func clip(s string) string {
	s = strings.TrimRight(s, "\r\n")
	if r := []rune(s); len(r) > 72 {
		return string(r[:72]) + "…"
	}
	return s
}

// unquote is a path as git writes it: as it is, or in C quotes.
func unquote(s string) (string, error) {
	if !strings.HasPrefix(s, `"`) {
		return s, nil
	}
	word, rest, err := quotedWord(s)
	if err == nil && strings.TrimRight(rest, "\t") != "" {
		err = fmt.Errorf("text after the quoted path %q", clip(s))
	}
	return word, err
}

// quotedWord reads one name, quoted or ended by a space, and what follows it.
func quotedWord(s string) (word, rest string, err error) {
	if !strings.HasPrefix(s, `"`) {
		// A quoted second name begins at the last space before its quote.
		if i := strings.Index(s, ` "`); i >= 0 {
			return s[:i], s[i:], nil
		}
		return s, "", nil
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			return b.String(), s[i+1:], nil
		case '\\':
			i++
			if i >= len(s) {
				return "", "", fmt.Errorf("the quoted path %q does not end", clip(s))
			}
			if k := strings.IndexByte(`abtnvfr"\`, s[i]); k >= 0 {
				b.WriteByte("\a\b\t\n\v\f\r\"\\"[k])
				continue
			}
			if i+3 > len(s) {
				return "", "", fmt.Errorf("the quoted path %q does not end", clip(s))
			}
			v, err := strconv.ParseUint(s[i:i+3], 8, 8)
			if err != nil {
				return "", "", fmt.Errorf("the quoted path %q has an unknown escape", clip(s))
			}
			b.WriteByte(byte(v))
			i += 2
		default:
			b.WriteByte(c)
		}
	}
	return "", "", fmt.Errorf("the quoted path %q does not end", clip(s))
}

// quote writes a path so that git reads back the same bytes.
func quote(p string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(p) {
		switch c := p[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
