package verify

import (
	"bufio"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadEvents(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []event
		err        error
	}{
		{"nothing", "", nil, nil},
		{"two", "data: a\n\ndata: b\n\n", []event{{data: "a"}, {data: "b"}}, nil},
		{"CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", []event{{data: "a"}, {data: "b"}}, nil},
		{"CR", "data: a\r\rdata: b\r\r", []event{{data: "a"}, {data: "b"}}, nil},
		{"mixed ends", "data: a\r\n\ndata: b\n\r\n", []event{{data: "a"}, {data: "b"}}, nil},
		{"comments", ": hello\n\n:\ndata: a\n: ping\n\n:\n", []event{{data: "a"}}, nil},
		{"several data lines", "data: a\ndata: b\ndata\n\n", []event{{data: "a\nb\n"}}, nil},
		{"no space", "data:a\n\n", []event{{data: "a"}}, nil},
		{"one space of two", "data:  a\n\n", []event{{data: " a"}}, nil},
		{"colons in the data", "data: {\"a\":1}\n\n", []event{{data: `{"a":1}`}}, nil},
		{"named", "event: error\nid: 7\nretry: 1\ndata: a\n\n", []event{{name: "error", data: "a"}}, nil},
		{"stray field", "error: no\n\n", []event{{stray: []string{"error: no"}}}, nil},
		{"blank lines", "\n\n\ndata: a\n\n\n\n", []event{{data: "a"}}, nil},
		{"cut in the data", "data: a\n\ndata: b", []event{{data: "a"}}, io.ErrUnexpectedEOF},
		{"cut before the blank line", "data: a\n\ndata: b\n", []event{{data: "a"}}, io.ErrUnexpectedEOF},
		{"too long", "data: " + strings.Repeat("x", maxEvent) + "\n\n", nil, errEventTooLong},
		{"too many lines", strings.Repeat("data: x\n", maxEvent/4) + "\n", nil, errEventTooLong},
	} {
		for how, reader := range map[string]func(io.Reader) io.Reader{
			"whole":       func(r io.Reader) io.Reader { return r },
			"byte a read": iotest.OneByteReader,
			"with EOF":    iotest.DataErrReader,
		} {
			t.Run(tt.name+", "+how, func(t *testing.T) {
				var got []event
				err := readEvents(reader(strings.NewReader(tt.text)), func(e event) error {
					got = append(got, e)
					return nil
				})
				if !reflect.DeepEqual(got, tt.want) || !errors.Is(err, tt.err) {
					t.Errorf("got %+v, %v", got, err)
				}
			})
		}
	}
}

func TestReadEventsStops(t *testing.T) {
	stop := errors.New("enough")
	n := 0
	err := readEvents(strings.NewReader("data: a\n\ndata: b\n\n"), func(event) error { n++; return stop })
	if !errors.Is(err, stop) || n != 1 {
		t.Errorf("%d events, %v", n, err)
	}
	broken := iotest.ErrReader(io.ErrClosedPipe)
	if err := readEvents(broken, nil); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a broken reader gives %v", err)
	}
}

func FuzzReadEvents(f *testing.F) {
	f.Add("data: a\r\n\r\n: c\rdata\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		// However the bytes arrive, the events are the same.
		var whole, single []event
		err1 := readEvents(strings.NewReader(text), func(e event) error { whole = append(whole, e); return nil })
		err2 := readEvents(iotest.OneByteReader(bufio.NewReader(strings.NewReader(text))), func(e event) error { single = append(single, e); return nil })
		if !reflect.DeepEqual(whole, single) || !errors.Is(err1, err2) {
			t.Errorf("%q: %+v, %v; byte by byte %+v, %v", text, whole, err1, single, err2)
		}
	})
}
