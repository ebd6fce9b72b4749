package pin

import (
	"bytes"
	"strings"

	"payload/internal/config"
)

// RewriteCopies is the text of the file path with ref in every copy of c's pin
// that payload.yaml declares there. See CopyEdits.
func RewriteCopies(f *config.File, text []byte, c config.Component, path, ref string) []byte {
	for _, k := range c.Copies {
		if oneFile(f, k.Path, path) {
			text = replaceGroup(text, k, ref)
		}
	}
	return text
}

// Rewrite is the text of a pin file with another ref, all else as it was.
func Rewrite(text []byte, ref string) []byte {
	old := strings.TrimSpace(strings.TrimPrefix(string(text), "\ufeff"))
	if old == "" {
		return []byte(ref + "\n")
	}
	return bytes.Replace(text, []byte(old), []byte(ref), 1)
}
