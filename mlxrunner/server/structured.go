package server

import (
	"encoding/json"
	"errors"

	"payload/mlxrunner/constrain"
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
	case "json_object":
		a.request.Grammar = constrain.Object()
	case "json_schema":
		inner := format.object("json_schema")
		if inner == nil {
			format.refuse("json_schema", "it is missing")
			break
		}
		inner.text("name")
		inner.text("description")
		inner.flag("strict", false) // the text follows the schema in any case
		schema := inner.raw("schema")
		if schema == nil {
			inner.refuse("schema", "it is missing")
			break
		}
		f.fail(a.follow(inner.prefix+"schema", schema))
		f.fail(inner.done())
	case "regex":
		var err error
		a.request.Grammar, err = constrain.Regex(format.text("regex"))
		f.fail(ungrammatical(format.prefix+"regex", err))
	default:
		format.refuse("type", "it is %.40q, want text, json_schema, json_object or regex", kind)
	}
	f.fail(format.done())
	return kind != "text"
}

// follow makes the model's text follow a schema, which a parameter asks for.
func (a *answer) follow(param string, schema json.RawMessage) (err error) {
	a.request.Grammar, err = constrain.Schema(schema)
	return ungrammatical(param, err)
}

// ungrammatical tells why a parameter gives no grammar.
func ungrammatical(param string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*constrain.UnsupportedError](err); ok {
		return unsupported(param, "%s: %v", param, err)
	}
	return badRequest(param, "%s: %v", param, err)
}
