// Package gen writes the Go bindings of mlx-c, mlx/internal/c, from the
// headers of the pinned source tree.
//
// It owns how a C declaration becomes a Go one, and refuses what it can't
// place: a parameter or result of an unknown kind is an error, never a
// function left out. Headers are read by a C parser against a few system
// headers of its own, so the result depends on the tree alone: no compiler
// and no header of the machine takes part.
package gen

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing/fstest"

	"modernc.org/cc/v4"
)

// headers is the folder of mlx-c's public headers in its tree.
const headers = "mlx/c"

// The system headers that mlx-c includes, reduced to the names it uses, for
// the LP64 machines that MLX runs on (on Windows size_t has the same size).
var system = map[string]string{
	"stdbool.h":  "#define bool _Bool\n",
	"stddef.h":   "typedef unsigned long size_t;\n",
	"stdlib.h":   "#include <stddef.h>\n",
	"stdio.h":    "typedef struct mlx_file_ FILE;\n",
	"float.h":    "",
	"complex.h":  "",
	"arm_fp16.h": "",
	"arm_bf16.h": "",
	"stdint.h": `typedef signed char int8_t; typedef unsigned char uint8_t;
typedef short int16_t; typedef unsigned short uint16_t;
typedef int int32_t; typedef unsigned int uint32_t;
typedef long int64_t; typedef unsigned long uint64_t; typedef unsigned long uintptr_t;
`,
}

// The parser needs one declaration of its own and the type of sizes.
const predefined = "int __predefined_declarator;\n#define __SIZE_TYPE__ unsigned long\n"

// arm64 adds what the compilers of arm64 declare: half floats.
const arm64 = "#define __aarch64__ 1\n#define __fp16 unsigned short\n#define __bf16 unsigned short\n"

// An api is what the headers declare.
type api struct {
	structs []structure
	enums   []enum
	funcs   []function
	digest  string // sha256 of the headers
}

type structure struct {
	name   string // C name
	form   form
	fields []field
}

type field struct{ name, goType string }

type enum struct {
	name   string
	values []enumValue
}

type enumValue struct {
	name  string
	value int64
}

type function struct {
	name, header string
	params       []param
	result       kind
	resultType   string // C type
	variadic     bool
	arm64        bool // declared on arm64 only
}

// parse reads every public header of tree (a checkout of mlx-c).
func parse(tree fs.FS) (api, error) {
	var out api
	files, digest, err := collect(tree)
	if err != nil {
		return out, err
	}
	out.digest = digest
	base, err := translate(files, predefined)
	if err != nil {
		return out, err
	}
	arm, err := translate(files, predefined+arm64)
	if err != nil {
		return out, err
	}
	if err := out.read(base, false); err != nil {
		return out, err
	}
	if err := out.read(arm, true); err != nil {
		return out, err
	}
	byName := func(a, b string) int { return strings.Compare(a, b) }
	slices.SortFunc(out.funcs, func(a, b function) int { return byName(a.name, b.name) })
	slices.SortFunc(out.structs, func(a, b structure) int { return byName(a.name, b.name) })
	slices.SortFunc(out.enums, func(a, b enum) int { return byName(a.name, b.name) })
	return out, nil
}

// collect gives the headers laid out for the parser, and their digest.
func collect(tree fs.FS) (fstest.MapFS, string, error) {
	names, err := fs.Glob(tree, headers+"/*.h")
	if err != nil {
		return nil, "", fmt.Errorf("listing the headers of mlx-c: %w", err)
	}
	if !slices.Contains(names, headers+"/mlx.h") {
		return nil, "", fmt.Errorf("reading the headers of mlx-c: no %s/mlx.h in the tree", headers)
	}
	files := fstest.MapFS{}
	for name, text := range system {
		files["system/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	h := sha256.New()
	for _, name := range names { // fs.Glob sorts
		data, err := fs.ReadFile(tree, name)
		if err != nil {
			return nil, "", fmt.Errorf("reading the headers of mlx-c: %w", err)
		}
		files[name] = &fstest.MapFile{Data: data}
		_, _ = fmt.Fprintf(h, "%s %d\n", path.Base(name), len(data)) // a hash takes all
		_, _ = h.Write(data)
	}
	return files, fmt.Sprintf("%x", h.Sum(nil)), nil
}

func translate(files fstest.MapFS, before string) (*cc.AST, error) {
	abi, err := cc.NewABI("linux", "amd64")
	if err != nil {
		return nil, fmt.Errorf("setting up the C parser: %w", err)
	}
	cfg := &cc.Config{ABI: abi, FS: files, FSOnly: true, IncludePaths: []string{"@", "."}, SysIncludePaths: []string{"system"}}
	ast, err := cc.Translate(cfg, []cc.Source{
		{Name: "<predefined>", Value: before},
		{Name: "<bindings>", Value: "#include \"" + headers + "/mlx.h\"\n"},
	})
	if err != nil {
		return nil, fmt.Errorf("parsing the headers of mlx-c: %w", err)
	}
	return ast, nil
}

// read adds what ast declares and out lacks.
func (out *api) read(ast *cc.AST, arm bool) error {
	for name, nodes := range ast.Scope.Nodes {
		for _, n := range nodes {
			d, ok := n.(*cc.Declarator)
			if !ok || !strings.HasPrefix(d.Position().Filename, headers+"/") {
				continue
			}
			if err := out.declare(name, d, arm); err != nil {
				return fmt.Errorf("binding %s of %s: %w", name, d.Position().Filename, err)
			}
		}
	}
	return nil
}

func (out *api) declare(name string, d *cc.Declarator, arm bool) error {
	switch t := d.Type().(type) {
	case *cc.FunctionType:
		if d.IsTypename() || slices.ContainsFunc(out.funcs, func(f function) bool { return f.name == name }) {
			return nil
		}
		f, err := newFunction(name, path.Base(d.Position().Filename), t)
		f.arm64 = arm
		out.funcs = append(out.funcs, f)
		return err
	case *cc.StructType:
		if !d.IsTypename() || t.IsIncomplete() || slices.ContainsFunc(out.structs, func(s structure) bool { return s.name == name }) {
			return nil
		}
		s, err := newStructure(name, t)
		out.structs = append(out.structs, s)
		return err
	case *cc.EnumType:
		if !d.IsTypename() || slices.ContainsFunc(out.enums, func(e enum) bool { return e.name == name }) {
			return nil
		}
		e := enum{name: name}
		for _, v := range t.Enumerators() {
			n, ok := v.Value().(cc.Int64Value)
			if !ok {
				return fmt.Errorf("the value of %s is not a number", v.Token.SrcStr())
			}
			e.values = append(e.values, enumValue{name: v.Token.SrcStr(), value: int64(n)})
		}
		out.enums = append(out.enums, e)
	}
	return nil
}

// A form is how a struct travels through a call.
type form int

const (
	handle   form = iota // one pointer: a word
	optional             // a value of four bytes and whether it is there: a word
	wide                 // several pointers: by value, in registered functions only
)

func newStructure(name string, t *cc.StructType) (structure, error) {
	s := structure{name: name}
	pointers := 0
	for i := range t.NumFields() {
		f := t.FieldByIndex(i)
		if f.Type().Kind() == cc.Ptr {
			pointers++
		}
		s.fields = append(s.fields, field{name: exported(f.Name()), goType: "uintptr"})
	}
	switch {
	case pointers == len(s.fields) && pointers == 1:
		s.form = handle
	case pointers == len(s.fields):
		s.form = wide
	case len(s.fields) == 2 && s.fields[1].name == "HasValue" && t.Size() == 8:
		s.form = optional
		value, err := scalar(t.FieldByIndex(0).Type())
		if err != nil {
			return s, err
		}
		s.fields[0].goType = value.goType
		s.fields[1].goType = "bool"
	default:
		return s, fmt.Errorf("a struct of %d fields and %d pointers is of no known form", len(s.fields), pointers)
	}
	return s, nil
}

func writeAll(w io.Writer, lines ...string) {
	for _, l := range lines {
		_, _ = fmt.Fprintln(w, l) // into memory
	}
}
