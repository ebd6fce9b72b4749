package patch

import (
	"fmt"
	"mime"
	"net/mail"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// Message is what a patch says about itself. A plain diff has only a subject,
// made from its file's name, and whatever text stands above the diff as body.
type Message struct {
	Name, Email string // the author; empty when the patch is silent
	Date        time.Time
	Subject     string // one line
	Body        string // without the subject; trailers are its last paragraph
	Trailers    []Trailer
	Plain       bool // no mail header at all
}

// Trailer is one "Key: value" line of the last paragraph.
type Trailer struct{ Key, Value string }

// Text is the message as a commit holds it.
func (m Message) Text() string {
	if m.Body == "" {
		return m.Subject + "\n"
	}
	return m.Subject + "\n\n" + m.Body + "\n"
}

// signed is the message with what a commit needs where the patch is silent.
func (m Message) signed() Message {
	if m.Name == "" && m.Email == "" {
		m.Name, m.Email = ownName, ownEmail
	}
	if m.Date.IsZero() {
		m.Date = ownDate
	}
	return m
}

// same says whether two messages make the same commit.
func (m Message) same(o Message) bool {
	a, b := m.signed(), o.signed()
	return a.Text() == b.Text() && a.Name == b.Name && a.Email == b.Email && a.Date.Equal(b.Date)
}

// Trailer is the value of the last trailer with that key, in any case.
func (m Message) Trailer(key string) (string, bool) {
	for i := len(m.Trailers) - 1; i >= 0; i-- {
		if strings.EqualFold(m.Trailers[i].Key, key) {
			return m.Trailers[i].Value, true
		}
	}
	return "", false
}

var (
	headerLine  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]*:`)
	patchTag    = regexp.MustCompile(`^\s*\[[^\]]*PATCH[^\]]*\]\s*`)
	trailerLine = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9-]*):\s+(\S.*)$`)
	slugSplit   = regexp.MustCompile(`[-_ ]+`)
)

// parseMessage reads what stands above the first diff.
func parseMessage(file, head string) Message {
	m := Message{Plain: true}
	lines := strings.Split(strings.ReplaceAll(head, "\r\n", "\n"), "\n")
	if len(lines) > 0 && mailStart.MatchString(lines[0]) {
		lines = lines[1:]
		m.Plain = false
	}
	headers := map[string]string{}
	if !m.Plain || len(lines) > 0 && (strings.HasPrefix(lines[0], "From:") || strings.HasPrefix(lines[0], "Subject:")) {
		m.Plain = false
		last := ""
		for len(lines) > 0 {
			line := lines[0]
			switch {
			case (strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")) && last != "":
				headers[last] = join(headers[last], strings.TrimSpace(line))
			case headerLine.MatchString(line):
				key, value, _ := strings.Cut(line, ":")
				last = strings.ToLower(key)
				headers[last] = strings.TrimSpace(value)
			default:
				last = ""
			}
			if line == "" || last == "" {
				break
			}
			lines = lines[1:]
		}
	}
	m.Subject = patchTag.ReplaceAllString(decodeWords(headers["subject"]), "")
	m.setAuthor(headers["from"])
	m.setDate(headers["date"])

	// The text ends where the diffstat or the diff begins.
	for i, line := range lines {
		if line == "---" {
			lines = lines[:i]
			break
		}
	}
	body := strings.TrimSpace(strings.Join(lines, "\n"))
	// Where sender and author differ, the author stands in the text.
	for !m.Plain {
		line, rest, _ := strings.Cut(body, "\n")
		if from, ok := strings.CutPrefix(line, "From: "); ok {
			m.setAuthor(from)
		} else if date, ok := strings.CutPrefix(line, "Date: "); ok {
			m.setDate(date)
		} else {
			break
		}
		body = strings.TrimSpace(rest)
	}
	m.Body = body
	if m.Subject == "" {
		name := strings.TrimSuffix(file, ".patch")
		name = strings.TrimLeft(strings.TrimPrefix(name, leadingDigits.FindString(name)), "-_. ")
		m.Subject = strings.Join(slugSplit.Split(name, -1), " ")
		if m.Subject == "" {
			m.Subject = file
		}
	}
	m.Trailers = parseTrailers(body)
	return m
}

func join(a, b string) string {
	// Two encoded words belong together without a space.
	if strings.HasSuffix(a, "?=") && strings.HasPrefix(b, "=?") {
		return a + b
	}
	return a + " " + b
}

// encodedPair is the seam of two encoded words, which is no part of the text.
var encodedPair = regexp.MustCompile(`\?=(=\?[^?]+\?[bBqQ]\?)`)

func decodeWords(s string) string {
	dec := mime.WordDecoder{}
	if text, err := dec.DecodeHeader(encodedPair.ReplaceAllString(s, "?= $1")); err == nil {
		return text
	}
	return s
}

func (m *Message) setAuthor(from string) {
	if from == "" {
		return
	}
	from = decodeWords(from)
	if a, err := mail.ParseAddress(from); err == nil {
		m.Name, m.Email = a.Name, a.Address
	} else if name, rest, ok := strings.Cut(from, "<"); ok {
		// git itself takes names that the mail standard would have quoted.
		m.Name = strings.Trim(strings.TrimSpace(name), `"`)
		m.Email = strings.TrimSuffix(strings.TrimSpace(rest), ">")
	}
	if m.Name == "" {
		m.Name = m.Email
	}
}

func (m *Message) setDate(date string) {
	if t, err := mail.ParseDate(date); err == nil {
		m.Date = t
	}
}

// parseTrailers reads the last paragraph when every line of it is a trailer or
// continues one.
func parseTrailers(body string) []Trailer {
	paragraphs := strings.Split(strings.TrimSpace(body), "\n\n")
	var list []Trailer
	for _, line := range strings.Split(paragraphs[len(paragraphs)-1], "\n") {
		if m := trailerLine.FindStringSubmatch(line); m != nil {
			list = append(list, Trailer{Key: m[1], Value: strings.TrimSpace(m[2])})
		} else if strings.HasPrefix(line, " ") && len(list) > 0 {
			list[len(list)-1].Value += " " + strings.TrimSpace(line)
		} else {
			return nil
		}
	}
	return list
}

// The trailers that every carried patch should have.
const (
	UpstreamStatus = "Upstream-Status"
	DropWhen       = "Drop-When"
)

// Status is an Upstream-Status trailer.
type Status struct {
	Kind string // Pending, Submitted, Backport or Inappropriate
	Note string // the URL of Submitted; a free remark otherwise
}

// ParseStatus reads the value of an Upstream-Status trailer.
func ParseStatus(value string) (Status, error) {
	kind, note, _ := strings.Cut(strings.TrimSpace(value), " ")
	note = strings.TrimSpace(note)
	switch kind {
	case "Pending", "Backport":
		return Status{Kind: kind, Note: note}, nil
	case "Submitted":
		if u, err := url.Parse(note); err != nil || u.Scheme == "" || u.Host == "" {
			return Status{}, fmt.Errorf("%s: Submitted needs the URL where it was submitted, not %q", UpstreamStatus, note)
		}
		return Status{Kind: kind, Note: note}, nil
	case "Inappropriate":
		why, ok := strings.CutPrefix(note, "[")
		why, closed := strings.CutSuffix(why, "]")
		if !ok || !closed || strings.TrimSpace(why) == "" {
			return Status{}, fmt.Errorf("%s: Inappropriate needs its reason in brackets, as in Inappropriate [only for our build]", UpstreamStatus)
		}
		return Status{Kind: kind, Note: strings.TrimSpace(why)}, nil
	}
	return Status{}, fmt.Errorf("%s: %q is none of Pending, Submitted URL, Backport, Inappropriate [why]", UpstreamStatus, value)
}

// Condition is a Drop-When trailer: when the patch is no longer needed.
type Condition struct {
	Kind   string // never, ref, commit or contains
	Ref    string // ref: from this ref on
	Commit string // commit: once upstream holds it; full or abbreviated
	Path   string // contains: once this file ...
	Text   string // ... holds this text
}

var (
	refCondition    = regexp.MustCompile(`^ref\s*>=\s*(\S+)$`)
	commitCondition = regexp.MustCompile(`^commit\s+([0-9a-f]{7,64})$`)
)

// ParseCondition reads the value of a Drop-When trailer.
func ParseCondition(value string) (Condition, error) {
	value = strings.TrimSpace(value)
	if value == "never" {
		return Condition{Kind: "never"}, nil
	}
	if m := refCondition.FindStringSubmatch(value); m != nil {
		return Condition{Kind: "ref", Ref: m[1]}, nil
	}
	if m := commitCondition.FindStringSubmatch(value); m != nil {
		return Condition{Kind: "commit", Commit: m[1]}, nil
	}
	if rest, ok := strings.CutPrefix(value, "contains "); ok {
		path, text, _ := strings.Cut(strings.TrimSpace(rest), " ")
		if text = strings.TrimSpace(text); safePath(path) && text != "" {
			return Condition{Kind: "contains", Path: path, Text: text}, nil
		}
	}
	return Condition{}, fmt.Errorf("%s: %q is none of never, ref>=X, commit H, contains PATH TEXT", DropWhen, value)
}

// MetadataFaults lists what is missing from or wrong with the patch's header,
// in words; empty for a patch that says who made it, why, and until when.
func (p Patch) MetadataFaults() []string {
	var faults []string
	if p.Message.Plain {
		return []string{"no header: a plain diff without author, date, subject and trailers"}
	}
	if p.Message.Email == "" {
		faults = append(faults, "no author")
	}
	if p.Message.Date.IsZero() {
		faults = append(faults, "no date")
	}
	for _, key := range []string{UpstreamStatus, DropWhen} {
		value, ok := p.Message.Trailer(key)
		if !ok {
			faults = append(faults, "no "+key+" trailer")
			continue
		}
		var err error
		if key == UpstreamStatus {
			_, err = ParseStatus(value)
		} else {
			_, err = ParseCondition(value)
		}
		if err != nil {
			faults = append(faults, err.Error())
		}
	}
	return faults
}
