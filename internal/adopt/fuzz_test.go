package adopt

import "testing"

// FuzzCommands holds that any text is read to an end.
func FuzzCommands(f *testing.F) {
	for _, text := range []string{"set(A [=[ b ]=])", "a(\"\\\n\" # c\n)", "#[[x\n", "a([[", "f(-D\"x", "a(\\"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := commands(text)
		if err == nil && len(list) == 0 && len(text) > 0 && isName(text[0]) {
			t.Errorf("%q holds no command", text)
		}
	})
}
