package constrain

import "testing"

func TestTry(t *testing.T) {
	v := NewVocabulary(nil, nil)
	for _, c := range []struct{ schema, text string }{
		{`{"type":"object"}`, `{"a": [1,2.5e3, {"b":null}]}`},
		{`{"type":"object","properties":{"a":{"type":"integer","minimum":5,"maximum":120},"b":{"enum":["x","y",[1,{"q":2}]]}},"required":["a"]}`, `{"a":100, "b":[1, {"q": 2}],"zz":"k"}`},
		{`{"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"l":{"$ref":"#/$defs/t"},"r":{"$ref":"#/$defs/t"}},"additionalProperties":false}}}`, `{"l":{"l":{}},"r":{}}`},
	} {
		g, err := Schema([]byte(c.schema))
		if err != nil {
			t.Error(err)
			continue
		}
		a := g.Bind(v)
		s := a.Start()
		for i := range len(c.text) {
			s = a.read(s, []byte(c.text[i:i+1]))
			if s == nil {
				t.Errorf("%s: stopped at %q", c.schema, c.text[:i+1])
				break
			}
		}
		if s != nil {
			t.Log(len(g.points), s.final, s.Complete())
		}
	}
}
