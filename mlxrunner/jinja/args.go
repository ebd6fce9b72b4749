package jinja

// args is what a filter, a test or a method is given.
type args struct {
	of    string // its name, for messages
	plain []any
	named *Dict
}

// get is the argument in a place or by its name.
func (a args) get(i int, name string) (any, bool) {
	if i < len(a.plain) {
		return a.plain[i], true
	}
	if a.named != nil {
		return a.named.Get(name)
	}
	return nil, false
}

// text is an argument that is a string, otherwise when it is not given.
func (a args) text(i int, name, otherwise string) string {
	v, ok := a.get(i, name)
	if !ok || v == nil {
		return otherwise
	}
	s, ok := v.(string)
	if !ok {
		refuse(v)
		fail("%s wants a str as %s, it is given %s", a.of, name, typeName(v))
	}
	return s
}

func (a args) int(i int, name string, otherwise int) int {
	v, ok := a.get(i, name)
	if !ok || v == nil {
		return otherwise
	}
	n, ok := v.(int)
	if !ok {
		refuse(v)
		fail("%s wants an int as %s, it is given %s", a.of, name, typeName(v))
	}
	return n
}

func (a args) bool(i int, name string) bool {
	v, _ := a.get(i, name)
	return truth(v)
}

// need is an argument that must be given.
func (a args) need(i int, name string) any {
	v, ok := a.get(i, name)
	if !ok {
		fail("%s wants %s", a.of, name)
	}
	return v
}
