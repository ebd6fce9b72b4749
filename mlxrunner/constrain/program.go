package constrain

type program struct{}

// Schema compiles a JSON schema (draft 2020-12, and of the older ones what
// means the same).
func Schema(schema []byte) (*Grammar, error) {
	return nil, &UnsupportedError{Feature: "a schema", Why: "not yet"}
}

// Object is any JSON object.
func Object() *Grammar { return &Grammar{} }

// Regex compiles a regular expression in Go's syntax, which the whole text has
// to match.
func Regex(expr string) (*Grammar, error) {
	return nil, &UnsupportedError{Feature: "an expression", Why: "not yet"}
}
