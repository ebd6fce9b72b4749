package server

import (
	"encoding/json"
)

// structure takes response_format, and tells whether it asks for a form.
func (f *fields) structure(a *answer) bool {
	format := f.object("response_format")
	if format == nil {
		return false
	}
	kind := format.text("type")
	switch kind {
	case "text":
	case "json_schema":
		if inner := format.object("json_schema"); inner != nil {
			inner.text("name")
			inner.text("description")
			inner.flag("strict", false) // the text follows the schema in any case
			f.fail(a.follow("response_format", inner.raw("schema")))
			f.fail(inner.done())
		} else {
			format.refuse("json_schema", "it is missing")
		}
	case "json_object":
		f.fail(a.follow("response_format", nil))
	case "regex":
		format.text("regex")
		f.fail(a.follow("response_format", nil))
	default:
		format.refuse("type", "it is %.40q, want text, json_schema, json_object or regex", kind)
	}
	f.fail(format.done())
	return kind != "text"
}

// follow makes the model's text follow a schema.
func (a *answer) follow(param string, _ json.RawMessage) error {
	return unsupported(param, "%s: structured output is not supported", param)
}
