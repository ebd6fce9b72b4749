package constrain

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// types are a set of those that a value may have.
type types uint8

const (
	isNull types = 1 << iota
	isBoolean
	isInteger
	isFraction // a number that is no integer
	isString
	isArray
	isObject

	anyType = 1<<iota - 1
)

var typeNames = map[string]types{
	"null": isNull, "boolean": isBoolean, "integer": isInteger, "number": isInteger | isFraction,
	"string": isString, "array": isArray, "object": isObject,
}

// A schema is what the keywords of one place say. Nothing of the places that
// they name is read yet.
type schema struct {
	v       *value
	types   types
	choices []choice // enum and const: the value is in each
	applies types    // the types that keywords below narrow

	low, high          *bound
	minLength          int
	maxLength          int // -1: any
	patterns           []string
	formats            []string
	prefix             []*value
	items              *value
	minItems, maxItems int // maxItems -1: any
	names              []string
	properties         map[string]*value
	patternProperties  []string
	byPattern          map[string]*value
	additional         *value
	required           []string

	ref   string
	all   []*value
	anyOf []*value
	oneOf []*value
}

// A choice is the values of an enum.
type choice struct {
	values []*value
	keys   map[string]bool
}

func newChoice(values []*value) choice {
	c := choice{keys: map[string]bool{}}
	for _, v := range values {
		if k := v.key(); !c.keys[k] {
			c.keys[k] = true
			c.values = append(c.values, v)
		}
	}
	return c
}

// annotations say nothing of what is valid.
var annotations = []string{
	"$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
}

// drafts are the dialects of JSON schema that are read, by the end of $schema.
var drafts = map[string]int{
	"draft-06/schema": 6, "draft-07/schema": 7, "draft/2019-09/schema": 2019, "draft/2020-12/schema": 2020,
}

func draftOf(root *value) (int, error) {
	named, ok := root.fields["$schema"]
	if !ok {
		return 2020, nil
	}
	name := strings.TrimSuffix(named.text, "#")
	name = strings.TrimPrefix(strings.TrimPrefix(name, "http://json-schema.org/"), "https://json-schema.org/")
	draft, ok := drafts[name]
	if !ok {
		return 0, &UnsupportedError{Feature: "$schema " + named.text, Why: "drafts 6, 7, 2019-09 and 2020-12 are"}
	}
	return draft, nil
}

// reader reads the keywords of one place.
type reader struct {
	*schema
	draft int
}

func invalid(v *value, want string) {
	panic(refusal{&InvalidError{Pointer: v.pointer, Why: "want " + want}})
}

func (r *reader) refuse(keyword, why string) {
	panic(refusal{&UnsupportedError{Feature: keyword, Pointer: r.v.pointer, Why: why}})
}

func readSchema(v *value, draft int) *schema {
	r := reader{&schema{v: v, types: anyType, maxLength: -1, maxItems: -1}, draft}
	for _, keyword := range v.keys {
		r.read(keyword, v.fields[keyword])
	}
	if r.ref != "" && draft < 2019 {
		for _, keyword := range v.keys {
			if keyword != "$ref" && !slices.Contains(annotations, keyword) {
				r.refuse(keyword, "beside $ref this draft leaves it out")
			}
		}
	}
	return r.schema
}

func (r *reader) read(keyword string, v *value) {
	switch keyword {
	case "type":
		r.types = readTypes(v)
	case "enum":
		r.choices = append(r.choices, newChoice(elements(v)))
	case "const":
		r.choices = append(r.choices, newChoice([]*value{v}))
	case "minimum", "exclusiveMinimum":
		r.applies |= isInteger | isFraction
		r.low = narrow(r.low, r.bound(keyword, v), 1)
	case "maximum", "exclusiveMaximum":
		r.applies |= isInteger | isFraction
		r.high = narrow(r.high, r.bound(keyword, v), -1)
	case "minLength":
		r.applies |= isString
		r.minLength = count(v)
	case "maxLength":
		r.applies |= isString
		r.maxLength = count(v)
	case "pattern":
		r.applies |= isString
		r.patterns = append(r.patterns, str(v))
	case "format":
		r.applies |= isString
		name := str(v)
		if formats[name] == "" {
			r.refuse("format "+name, strings.Join(formatNames(), ", ")+" are")
		}
		r.formats = append(r.formats, name)
	case "prefixItems":
		if r.draft < 2020 {
			r.refuse(keyword, "this draft does not have it")
		}
		r.applies |= isArray
		r.prefix = elements(v)
	case "items":
		if v.kind == array {
			r.refuse("items as an array", "draft 2020-12 calls it prefixItems")
		}
		r.applies |= isArray
		r.items = v
	case "minItems":
		r.applies |= isArray
		r.minItems = count(v)
	case "maxItems":
		r.applies |= isArray
		r.maxItems = count(v)
	case "uniqueItems":
		if truth(v) {
			r.refuse(keyword, "items would have to be remembered")
		}
	case "properties":
		r.applies |= isObject
		r.names, r.properties = fields(v)
	case "patternProperties":
		r.applies |= isObject
		r.patternProperties, r.byPattern = fields(v)
	case "additionalProperties":
		r.applies |= isObject
		r.additional = v
	case "required":
		r.applies |= isObject
		for _, name := range elements(v) {
			r.required = append(r.required, str(name))
		}
	case "$ref":
		r.ref = str(v)
		if !strings.HasPrefix(r.ref, "#") || len(r.ref) > 1 && r.ref[1] != '/' {
			r.refuse("$ref "+r.ref, "only places in the schema itself are, by pointer: #/$defs/name")
		}
	case "allOf":
		r.all = some(v)
	case "anyOf":
		r.anyOf = some(v)
	case "oneOf":
		r.oneOf = some(v)
	case "$id":
		if r.v.pointer != "" {
			r.refuse(keyword, "below the root it changes what $ref means")
		}
	case "multipleOf":
		r.refuse(keyword, "whether a number is a multiple can't be told by its digits, in general")
	case "additionalItems":
		r.refuse(keyword, "draft 2020-12 calls it items, beside prefixItems")
	default:
		if !slices.Contains(annotations, keyword) {
			r.refuse(keyword, "a text could not be kept to it")
		}
	}
}

func readTypes(v *value) types {
	names := []*value{v}
	if v.kind == array {
		names = v.list
	}
	var set types
	for _, name := range names {
		one, ok := typeNames[str(name)]
		if !ok {
			invalid(name, "a type")
		}
		set |= one
	}
	return set
}

func (r *reader) bound(keyword string, v *value) *bound {
	if v.kind != number {
		invalid(v, "a number")
	}
	d, ok := readDecimal(v.text)
	if !ok {
		r.refuse(keyword+" "+v.text, fmt.Sprintf("its exponent is beyond %d", maxExponent))
	}
	return &bound{d, strings.HasPrefix(keyword, "exclusive")}
}

func count(v *value) int {
	d, ok := readDecimal(v.text)
	if v.kind != number || !ok || d.negative || d.part != "" {
		invalid(v, "a whole number from 0 on")
	}
	n := 0
	for _, digit := range d.whole {
		if n = n*10 + int(digit-'0'); n > math.MaxInt32 {
			return math.MaxInt32
		}
	}
	return n
}

func str(v *value) string {
	if v.kind != text {
		invalid(v, "a string")
	}
	return v.text
}

func truth(v *value) bool {
	if v.kind != boolean {
		invalid(v, "true or false")
	}
	return v.text == "true"
}

func elements(v *value) []*value {
	if v.kind != array {
		invalid(v, "an array")
	}
	return v.list
}

// some are elements, of which there have to be holds something.
func some(v *value) []*value {
	if len(elements(v)) == 0 {
		invalid(v, "an array with a schema")
	}
	return v.list
}

func fields(v *value) ([]string, map[string]*value) {
	if v.kind != object {
		invalid(v, "an object")
	}
	return v.keys, v.fields
}
