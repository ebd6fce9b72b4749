package patch

import (
	"strings"
	"testing"
)

// Binary data that was damaged on its way is told, and never applied.
func TestHarmedDelta(t *testing.T) {
	t.Parallel()
	old := "0123456789"
	sound := string([]byte{10, 6, 0x91, 2, 3, 3, 'a', 'b', 'c'}) // three bytes from 2, then abc
	if got, err := (&Binary{Delta: true, Data: []byte(sound)}).apply(old); err != nil || got != "234abc" {
		t.Fatalf("the sound delta gives %q, %v", got, err)
	}
	for name, data := range map[string]string{
		"of another file":     "\x09" + sound[1:],
		"empty":               "",
		"a size cut off":      "\x0a\x86",
		"result is longer":    "\x0a\x05" + sound[2:],
		"result is shorter":   "\x0a\x07" + sound[2:],
		"an instruction of 0": sound + "\x00",
		"insert cut off":      sound[:len(sound)-1],
		"copy cut off":        sound[:3],
		"copy beyond the end": "\x0a\x06\x91\x08\x03" + sound[5:],
		"copy of 64 KiB":      "\x0a\x06\x81\x00",
	} {
		if got, err := (&Binary{Delta: true, Data: []byte(data)}).apply(old); err == nil {
			t.Errorf("%s: gives %q", name, got)
		}
	}
}

func TestHarmedBinaryPatch(t *testing.T) {
	t.Parallel()
	texts := seriesOf(t, files{"a": "a"}, files{"a": "a", "b": "\x00" + strings.Repeat("binary\x01", 40)})
	sound := texts[0]
	at := strings.Index(sound, "literal ")
	line := strings.Index(sound[at:], "\n") + at + 1
	if p := Parse("1.patch", []byte(sound)); p.Malformed != "" || at < 0 {
		t.Fatalf("the sound patch: %s", p.Malformed)
	}
	for name, text := range map[string]string{
		"a character that is none of its": sound[:line+3] + "\"" + sound[line+4:],
		"a length that is none":           sound[:line] + "!" + sound[line+1:],
		"another length":                  sound[:line] + "A" + sound[line+1:],
		"another size":                    strings.Replace(sound, "literal 281", "literal 280", 1),
		"cut off":                         sound[:line+5],
		"digits too large":                sound[:line+1] + "~~~~~" + sound[line+6:],
		"other data":                      sound[:line+1] + "00000" + sound[line+6:],
	} {
		if text == sound {
			t.Fatalf("%s: nothing was harmed", name)
		}
		p := Parse("1.patch", []byte(text))
		if p.Malformed == "" {
			t.Errorf("%s: taken for sound", name)
		}
	}
}
