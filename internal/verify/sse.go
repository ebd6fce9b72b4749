package verify

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// event is one server-sent event.
type event struct {
	name string // of the event field; empty when there was none
	data string
	// stray holds lines of a field that the format does not know. Servers have
	// sent errors that way ("error: {…}").
	stray []string
}

// maxEvent bounds what one event may hold, in bytes.
const maxEvent = 4 << 20

var errEventTooLong = fmt.Errorf("an event is longer than %d bytes", maxEvent)

// readEvents calls each for every event of the stream, until it ends or each
// gives an error. Lines end in LF, CR or CRLF, comments are skipped, and it
// makes no difference how the bytes are split into reads. What follows the
// last blank line is no event, by the format's rules: it gives
// io.ErrUnexpectedEOF.
func readEvents(r io.Reader, each func(event) error) error {
	br := bufio.NewReader(r)
	var e event
	var data []string
	any, size := false, 0
	for {
		line, err := readLine(br)
		if size += len(line); size > maxEvent {
			return errEventTooLong
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err != nil { // the end
			if any || line != "" {
				return io.ErrUnexpectedEOF
			}
			return nil
		}
		if line == "" {
			if any {
				e.data = strings.Join(data, "\n")
				if err := each(e); err != nil {
					return err
				}
			}
			e, data, any, size = event{}, nil, false, 0
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "": // a comment, often a sign of life
			size = 0
			continue
		case "data":
			data = append(data, value)
		case "event":
			e.name = value
		case "id", "retry":
		default:
			e.stray = append(e.stray, line)
		}
		any = true
	}
}

// readLine gives a line without its end. A line that the stream cuts off comes
// together with io.EOF.
func readLine(br *bufio.Reader) (string, error) {
	var line []byte
	for {
		c, err := br.ReadByte()
		if err != nil {
			return string(line), err
		}
		switch c {
		case '\n':
			return string(line), nil
		case '\r':
			return string(line), skipLF(br)
		}
		if line = append(line, c); len(line) > maxEvent {
			return "", errEventTooLong
		}
	}
}

// skipLF takes the LF that may follow a CR. After a lone CR it waits for the
// next byte, so such a line is handed on late, never wrongly.
func skipLF(br *bufio.Reader) error {
	next, err := br.Peek(1)
	if err == nil && next[0] == '\n' {
		_, err = br.Discard(1)
	}
	if errors.Is(err, io.EOF) {
		return nil // the next read finds the end
	}
	return err
}
