package gen

import (
	"fmt"
	"slices"
	"strings"

	"modernc.org/cc/v4"
)

// A kind is how a parameter or result is passed.
type kind int

const (
	kindVoid    kind = iota
	kindStatus       // int result: 0, or an error
	kindInteger      // an integer, boolean or enum in a word
	kindFloat        // float or double: registered functions only
	kindHandle       // struct of one pointer
	kindOptional
	kindWide
	kindOut     // pointer to one value that C reads and writes
	kindSlice   // pointer and count, read by C
	kindStrings // pointers to texts and count
	kindString  // text read by C
	kindData    // const void*: Go memory read by C during the call
	kindRaw     // void*, FILE*, function pointers: a word that Go does not look into
	kindPointer // result only: memory of C
)

// A param is a parameter of the Go function: a pointer and its count are one.
type param struct {
	name   string
	kind   kind
	goType string // of the value, of the element, or of what the pointer points to
	count  string // Go type of the count that follows a slice in C
	null   bool   // an empty text is passed as a null pointer
}

// words is how many words of a call the parameter takes.
func (p param) words() int {
	if p.kind == kindSlice || p.kind == kindStrings {
		return 2
	}
	return 1
}

// The functions that return an int which is not a status.
var values = []string{"mlx_array_dim", "mlx_distributed_group_rank", "mlx_distributed_group_size"}

// The texts that may be null (the headers say so in a comment).
var nullable = []string{"mlx_distributed_init bk", "mlx_distributed_is_available bk"}

type scalarType struct {
	kind   kind
	goType string
}

// scalar gives the Go type of a value passed in one register.
func scalar(t cc.Type) (scalarType, error) {
	if name := typedef(t); strings.HasPrefix(name, "mlx_") {
		switch {
		case t.Kind() == cc.Enum:
			return scalarType{kindInteger, exported(name)}, nil
		case name == "mlx_complex64_t":
			return scalarType{kindFloat, "complex64"}, nil
		}
	}
	switch name := typedef(t); name {
	case "size_t":
		return scalarType{kindInteger, "uint64"}, nil
	case "float16_t", "bfloat16_t":
		return scalarType{kindInteger, "uint16"}, nil
	case "uintptr_t":
		return scalarType{kindInteger, "uintptr"}, nil
	case "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t":
		return scalarType{kindInteger, strings.TrimSuffix(name, "_t")}, nil
	}
	switch t.Kind() {
	case cc.Bool:
		return scalarType{kindInteger, "bool"}, nil
	case cc.Int:
		return scalarType{kindInteger, "int32"}, nil
	case cc.Float:
		return scalarType{kindFloat, "float32"}, nil
	case cc.Double:
		return scalarType{kindFloat, "float64"}, nil
	}
	return scalarType{}, fmt.Errorf("no Go type for %v", t)
}

// byValue gives the kind of a struct, or of a scalar.
func byValue(t cc.Type) (scalarType, error) {
	st, ok := t.(*cc.StructType)
	if !ok {
		return scalar(t)
	}
	s, err := newStructure(typedef(t), st)
	if err != nil {
		return scalarType{}, err
	}
	return scalarType{map[form]kind{handle: kindHandle, optional: kindOptional, wide: kindWide}[s.form], exported(s.name)}, nil
}

func newFunction(name, header string, t *cc.FunctionType) (function, error) {
	f := function{name: name, header: header, variadic: t.IsVariadic(), resultType: t.Result().String()}
	var err error
	if f.result, f.resultType, err = result(name, t.Result()); err != nil {
		return f, fmt.Errorf("result: %w", err)
	}
	in := t.Parameters()
	for i := 0; i < len(in); i++ {
		if in[i].Type().Kind() == cc.Void {
			continue // (void)
		}
		var next *cc.Parameter
		if i+1 < len(in) {
			next = in[i+1]
		}
		p, err := newParam(in[i], next)
		if err != nil {
			return f, fmt.Errorf("parameter %s: %w", in[i].Name(), err)
		}
		p.null = slices.Contains(nullable, name+" "+p.name)
		if p.words() == 2 {
			i++
		}
		f.params = append(f.params, p)
	}
	return f, nil
}

func result(name string, t cc.Type) (kind, string, error) {
	switch {
	case t.Kind() == cc.Void:
		return kindVoid, "", nil
	case t.Kind() == cc.Int && typedef(t) == "" && !slices.Contains(values, name):
		return kindStatus, "", nil
	case t.Kind() != cc.Ptr:
		v, err := byValue(t)
		return v.kind, v.goType, err
	}
	elem := t.(*cc.PointerType).Elem()
	if elem.Kind() == cc.Char {
		return kindString, "string", nil
	}
	_, err := scalar(elem)
	return kindPointer, "unsafe.Pointer", err
}

func newParam(p, next *cc.Parameter) (param, error) {
	out := param{name: p.Name()}
	if p.Type().Kind() != cc.Ptr {
		v, err := byValue(p.Type())
		out.kind, out.goType = v.kind, v.goType
		return out, err
	}
	elem := p.Type().(*cc.PointerType).Elem()
	constant := elem.Attributes().IsConst()
	switch {
	case elem.Kind() == cc.Void && constant:
		out.kind, out.goType = kindData, "unsafe.Pointer"
		return out, nil
	case elem.Kind() == cc.Void, elem.Kind() == cc.Function, typedef(elem) == "FILE":
		out.kind, out.goType = kindRaw, "uintptr"
		return out, nil
	case elem.Kind() == cc.Char && constant:
		out.kind, out.goType = kindString, "string"
		return out, nil
	case elem.Kind() == cc.Ptr:
		return pointers(out, elem.(*cc.PointerType).Elem(), next)
	}
	v, err := byValue(elem)
	if err != nil {
		return out, err
	}
	out.goType = v.goType
	if count := counts(next); count != "" && (constant || out.name == "data") {
		out.kind, out.count = kindSlice, count
		return out, nil
	}
	if constant {
		return out, fmt.Errorf("a pointer to const %s without a count", v.goType)
	}
	if v.kind == kindWide || v.kind == kindOptional {
		return out, fmt.Errorf("a pointer to %s", v.goType)
	}
	out.kind = kindOut
	return out, nil
}

// pointers places a pointer to a pointer: texts with their count, one text or
// one address that C gives.
func pointers(out param, to cc.Type, next *cc.Parameter) (param, error) {
	switch {
	case to.Kind() == cc.Char && out.name == "data" && counts(next) != "":
		out.kind, out.goType, out.count = kindStrings, "string", counts(next)
	case to.Kind() == cc.Char:
		out.kind, out.goType = kindOut, "string"
	case to.Kind() == cc.Void:
		out.kind, out.goType = kindOut, "uintptr"
	default:
		return out, fmt.Errorf("a pointer to a pointer to %v", to)
	}
	return out, nil
}

// counts gives the Go type of next when it is the count of the pointer before
// it. mlx-c names those size, dim or <pointer>_num.
func counts(next *cc.Parameter) string {
	if next == nil {
		return ""
	}
	n := next.Name()
	if n != "size" && n != "dim" && !strings.HasSuffix(n, "_num") {
		return ""
	}
	v, err := scalar(next.Type())
	if err != nil {
		return ""
	}
	return v.goType
}

func typedef(t cc.Type) string {
	if d := t.Typedef(); d != nil {
		return d.Name()
	}
	return ""
}

// exported turns a C name into the name of a Go declaration: mlx_array_new
// becomes ArrayNew, has_value HasValue, and a name that mlx-c keeps to itself,
// _mlx_error, PrivateError.
func exported(name string) string {
	if strings.HasPrefix(name, "_") {
		return "Private" + exported(name[1:])
	}
	var b strings.Builder
	for word := range strings.SplitSeq(strings.TrimPrefix(name, "mlx_"), "_") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}
