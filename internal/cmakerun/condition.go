package cmakerun

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// condition is the object form of a preset's condition; which fields count
// depends on the type.
type condition struct {
	Type       string            `json:"type"`
	Value      *bool             `json:"value"`
	LHS        *string           `json:"lhs"`
	RHS        *string           `json:"rhs"`
	String     *string           `json:"string"`
	List       []string          `json:"list"`
	Regex      *string           `json:"regex"`
	Condition  json.RawMessage   `json:"condition"`
	Conditions []json.RawMessage `json:"conditions"`
}

// holds says whether a condition is true, and in words what it found.
func (x *expander) holds(text json.RawMessage) (ok bool, why string, err error) {
	var literal bool
	if json.Unmarshal(text, &literal) == nil {
		return literal, "it is " + strconv.FormatBool(literal), nil
	}
	var c condition
	if err := json.Unmarshal(text, &c); err != nil {
		return false, "", plainTypeError(err)
	}
	switch c.Type {
	case "const":
		if c.Value == nil {
			return false, "", errors.New("const has no value")
		}
		return *c.Value, "it is " + strconv.FormatBool(*c.Value), nil
	case "equals", "notEquals":
		lhs, left, err := x.operand(c.LHS, "lhs")
		if err != nil {
			return false, "", err
		}
		rhs, right, err := x.operand(c.RHS, "rhs")
		if err != nil {
			return false, "", err
		}
		equal := lhs == rhs
		return equal == (c.Type == "equals"), fmt.Sprintf("%s %s %s", left, isOrNot(equal), right), nil
	case "inList", "notInList":
		return x.inList(c)
	case "matches", "notMatches":
		return x.matches(c)
	case "not":
		ok, why, err := x.holds(c.Condition)
		return !ok, why, err
	case "anyOf", "allOf":
		return x.ofMany(c)
	}
	return false, "", fmt.Errorf("%q is no type of condition", c.Type)
}

func (x *expander) inList(c condition) (bool, string, error) {
	s, words, err := x.operand(c.String, "string")
	if err != nil {
		return false, "", err
	}
	list := make([]string, len(c.List))
	for i := range c.List {
		if list[i], err = x.expand(c.List[i]); err != nil {
			return false, "", err
		}
	}
	found := slices.Contains(list, s)
	return found == (c.Type == "inList"), fmt.Sprintf("%s %s one of %q", words, isOrNot(found), list), nil
}

func (x *expander) matches(c condition) (bool, string, error) {
	s, words, err := x.operand(c.String, "string")
	if err != nil {
		return false, "", err
	}
	pattern, _, err := x.operand(c.Regex, "regex")
	if err != nil {
		return false, "", err
	}
	re, err := cmakeRegexp(pattern)
	if err != nil {
		return false, "", err
	}
	found := re.MatchString(s)
	how := "does not match"
	if found {
		how = "matches"
	}
	return found == (c.Type == "matches"), fmt.Sprintf("%s %s %q", words, how, pattern), nil
}

func (x *expander) ofMany(c condition) (bool, string, error) {
	all := c.Type == "allOf"
	var reasons []string
	for _, part := range c.Conditions {
		ok, why, err := x.holds(part)
		if err != nil {
			return false, "", err
		}
		if ok != all {
			return ok, why, nil
		}
		reasons = append(reasons, why)
	}
	return all, strings.Join(reasons, ", and "), nil
}

// operand expands a string and says it in words: the macro with its value.
func (x *expander) operand(s *string, field string) (value, words string, err error) {
	if s == nil {
		return "", "", fmt.Errorf("it has no %s", field)
	}
	if value, err = x.expand(*s); err != nil {
		return "", "", err
	}
	if value == *s {
		return value, strconv.Quote(value), nil
	}
	return value, fmt.Sprintf("%s (%q)", *s, value), nil
}

func isOrNot(is bool) string {
	if is {
		return "is"
	}
	return "is not"
}

// cmakeRegexp compiles CMake's kind of regular expression. It is smaller than
// Go's: braces are text, a backslash makes any character text, and inside
// brackets nothing is special.
func cmakeRegexp(pattern string) (*regexp.Regexp, error) {
	var out strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; c {
		case '{', '}':
			out.WriteString(`\` + string(c))
		case '\\':
			i++
			if i == len(pattern) {
				return nil, fmt.Errorf("%q ends in a backslash", pattern)
			}
			out.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		case '[':
			// A ] directly after the opening is text.
			start := i + 1
			if strings.HasPrefix(pattern[start:], "^") {
				start++
			}
			end := -1
			if start < len(pattern) {
				end = strings.IndexByte(pattern[start+1:], ']')
			}
			if end < 0 {
				return nil, fmt.Errorf("%q has a bracket that never closes", pattern)
			}
			end += start + 1
			inside := strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`).Replace(pattern[start:end])
			out.WriteString(pattern[i:start] + inside + "]")
			i = end
		default:
			out.WriteByte(c)
		}
	}
	return regexp.Compile(out.String())
}
