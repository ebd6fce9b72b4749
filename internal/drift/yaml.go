package drift

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// word is a scalar of a YAML or JSON file, and its line.
type word struct {
	text string
	line int
}

// parse reads a YAML file; JSON is YAML, too, and so has lines.
func parse(text string) (ast.Node, error) {
	file, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		return nil, err
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return nil, fmt.Errorf("it is empty")
	}
	return file.Docs[0].Body, nil
}

// pairs are the entries of a mapping; none for anything else.
func pairs(n ast.Node) []*ast.MappingValueNode {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	case *ast.AnchorNode:
		return pairs(n.Value)
	}
	return nil
}

func keyOf(p *ast.MappingValueNode) string { return strings.Trim(p.Key.String(), `"'`) }

// entry is a mapping's entry with a key; nil where there is none.
func entry(n ast.Node, key string) *ast.MappingValueNode {
	for _, p := range pairs(n) {
		if keyOf(p) == key {
			return p
		}
	}
	return nil
}

// at follows keys through mappings; nil where there is no such entry.
func at(n ast.Node, keys ...string) ast.Node {
	for _, key := range keys {
		e := entry(n, key)
		if e == nil {
			return nil
		}
		n = e.Value
	}
	return n
}

// items are the entries of a sequence; a scalar is a sequence of one, as many
// keys of workflows allow.
func items(n ast.Node) []ast.Node {
	switch n := n.(type) {
	case nil:
		return nil
	case *ast.SequenceNode:
		return n.Values
	case *ast.AnchorNode:
		return items(n.Value)
	}
	return []ast.Node{n}
}

func line(n ast.Node) int {
	if n == nil || n.GetToken() == nil {
		return 0
	}
	return n.GetToken().Position.Line
}

// scalar is a node's text; each line of a block has its own line number.
func scalar(n ast.Node) []word {
	switch n := n.(type) {
	case *ast.LiteralNode:
		var list []word
		for i, text := range strings.Split(strings.TrimRight(n.Value.Value, "\n"), "\n") {
			list = append(list, word{text, line(n) + 1 + i})
		}
		return list
	case *ast.StringNode:
		return []word{{n.Value, line(n)}}
	case *ast.AnchorNode:
		return scalar(n.Value)
	case nil, *ast.MappingNode, *ast.MappingValueNode, *ast.SequenceNode, *ast.AliasNode, *ast.NullNode:
		return nil
	}
	return []word{{n.String(), line(n)}}
}

// texts are all scalars of a sequence or of a block with a line each.
func texts(n ast.Node) []word {
	var list []word
	for _, item := range items(n) {
		for _, w := range scalar(item) {
			if w.text = strings.TrimSpace(w.text); w.text != "" {
				list = append(list, w)
			}
		}
	}
	return list
}

// every visits all scalars below a node.
func every(n ast.Node, visit func(word)) {
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		for _, p := range pairs(n) {
			every(p.Value, visit)
		}
	case *ast.SequenceNode:
		for _, item := range n.Values {
			every(item, visit)
		}
	case *ast.AnchorNode:
		every(n.Value, visit)
	default:
		for _, w := range scalar(n) {
			visit(w)
		}
	}
}
