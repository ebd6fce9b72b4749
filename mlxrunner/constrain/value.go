package constrain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxNesting bounds how deep a schema's text is nested.
const maxNesting = 200

// A value is JSON as it stands in a schema, with the order of its properties.
type value struct {
	kind    kind
	text    string // of a string, of a number as it is written; "true" or "false"
	list    []*value
	keys    []string
	fields  map[string]*value
	pointer string
}

type kind string

const (
	null    kind = "null"
	boolean kind = "boolean"
	number  kind = "number"
	text    kind = "string"
	array   kind = "array"
	object  kind = "object"
)

func parse(source []byte) (*value, error) {
	if !utf8.Valid(source) {
		return nil, errors.New("it is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(source))
	d.UseNumber()
	v, err := readValue(d, "", 0)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more follows behind it")
	}
	return v, nil
}

func readValue(d *json.Decoder, pointer string, depth int) (*value, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	if depth > maxNesting {
		return nil, fmt.Errorf("it is nested deeper than %d", maxNesting)
	}
	v := &value{pointer: pointer}
	switch t := token.(type) {
	case nil:
		v.kind = null
	case bool:
		v.kind, v.text = boolean, strconv.FormatBool(t)
	case json.Number:
		v.kind, v.text = number, t.String()
	case string:
		v.kind, v.text = text, t
	case json.Delim:
		if t == '[' {
			v.kind = array
			err = v.readList(d, depth)
		} else {
			v.kind = object
			err = v.readFields(d, depth)
		}
	}
	return v, err
}

func (v *value) readList(d *json.Decoder, depth int) error {
	for d.More() {
		sub, err := readValue(d, v.pointer+"/"+strconv.Itoa(len(v.list)), depth+1)
		if err != nil {
			return err
		}
		v.list = append(v.list, sub)
	}
	_, err := d.Token()
	return err
}

var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1")

func (v *value) readFields(d *json.Decoder, depth int) error {
	v.fields = map[string]*value{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return err
		}
		name := token.(string) // nothing else passes the decoder
		if _, ok := v.fields[name]; ok {
			return fmt.Errorf("%s has %q twice", place(v.pointer), name)
		}
		if v.fields[name], err = readValue(d, v.pointer+"/"+pointerEscape.Replace(name), depth+1); err != nil {
			return err
		}
		v.keys = append(v.keys, name)
	}
	_, err := d.Token()
	return err
}

func place(pointer string) string {
	if pointer == "" {
		return "the schema"
	}
	return pointer
}

// write gives JSON as texts have it: strings and numbers in their one way. sign
// is called for each comma and colon.
func (v *value) write(out func(string), sign func(byte)) {
	switch v.kind {
	case null:
		out("null")
	case boolean:
		out(v.text)
	case number:
		out(canonical(v.text))
	case text:
		out(quote(v.text))
	case array:
		out("[")
		for i, sub := range v.list {
			if i > 0 {
				sign(',')
			}
			sub.write(out, sign)
		}
		out("]")
	case object:
		out("{")
		for i, name := range v.keys {
			if i > 0 {
				sign(',')
			}
			out(quote(name))
			sign(':')
			v.fields[name].write(out, sign)
		}
		out("}")
	}
}

// key tells values apart, however they are written.
func (v *value) key() string {
	var out strings.Builder
	switch v.kind {
	case array:
		for _, sub := range v.list {
			out.WriteString("[" + sub.key())
		}
		return out.String() + "]"
	case object:
		for _, name := range slices.Sorted(slices.Values(v.keys)) {
			out.WriteString("{" + quote(name) + v.fields[name].key())
		}
		return out.String() + "}"
	}
	v.write(func(text string) { out.WriteString(text) }, nil)
	return out.String()
}

func quote(s string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, r := range s {
		out.WriteString(escape(r))
	}
	out.WriteByte('"')
	return out.String()
}

// canonical writes a number without exponent, a whole one without fraction; as
// it stands where that would be longer than a text may have it.
func canonical(number string) string {
	d, ok := readDecimal(number)
	if !ok || len(d.whole) > maxDigits || len(d.part) > maxDigits {
		return number
	}
	return d.String()
}

// A decimal is a number in digits, without zeros that say nothing.
type decimal struct {
	negative    bool
	whole, part string // before and behind the point; whole is "0" at least
}

func (d decimal) String() string {
	out := d.whole
	if d.part != "" {
		out += "." + d.part
	}
	if d.negative {
		out = "-" + out
	}
	return out
}

// maxExponent bounds what is written out of a schema's numbers.
const maxExponent = 400

// readDecimal reads a JSON number, unless its exponent is out of bounds.
func readDecimal(number string) (decimal, bool) {
	rest, negative := strings.CutPrefix(number, "-")
	mantissa, power := rest, 0
	if i := strings.IndexAny(rest, "eE"); i >= 0 {
		var err error
		mantissa = rest[:i]
		if power, err = strconv.Atoi(rest[i+1:]); err != nil || power > maxExponent || power < -maxExponent {
			return decimal{}, false
		}
	}
	whole, part, _ := strings.Cut(mantissa, ".")
	for ; power > 0; power-- {
		next := "0"
		if part != "" {
			next, part = part[:1], part[1:]
		}
		whole += next
	}
	for ; power < 0; power++ {
		last := "0"
		if whole != "" {
			whole, last = whole[:len(whole)-1], whole[len(whole)-1:]
		}
		part = last + part
	}
	d := decimal{whole: strings.TrimLeft(whole, "0"), part: strings.TrimRight(part, "0")}
	if d.whole == "" {
		d.whole = "0"
	}
	d.negative = negative && (d.whole != "0" || d.part != "")
	return d, true
}

func (d decimal) compare(e decimal) int {
	a, _ := new(big.Rat).SetString(d.String())
	b, _ := new(big.Rat).SetString(e.String())
	return a.Cmp(b)
}
