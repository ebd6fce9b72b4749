package scan

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func decls(f *File) []string {
	var got []string
	for _, d := range f.Decls {
		line := fmt.Sprintf("%d %s %s %s|%s", d.Line, []string{"func", "field", "enum"}[d.Kind], join(d.Of, d.Name), d.Type, d.Value)
		if d.Kind == Func {
			line = fmt.Sprintf("%d func %s %s|%s", d.Line, d.Name, d.Type, d.Deprecated)
		}
		got = append(got, line)
	}
	return got
}

func check(t *testing.T, got []string, want string) {
	t.Helper()
	if g := strings.Join(got, "\n"); g != strings.TrimSpace(want) {
		t.Errorf("got\n%s\nwant\n%s", g, strings.TrimSpace(want))
	}
}

func TestDeclarations(t *testing.T) {
	f := Parse("a.h", `
// int commented(void);
#if 0
int left_out(void);
#endif
#define API __attribute__((visibility("default")))
extern "C" {
enum dev_type { TYPE_CPU, TYPE_GPU = 1 << 2, /* TYPE_OLD, */ };
enum class mode : int { fast };
typedef struct { int x; } point;
struct props {
    const char * name; // the name
    size_t free = 0, total{1};
    std::vector<std::pair<int, int>> list = {{1, 2}};
    int ids[4];
    struct caps { bool async; } caps;
    bool (*callback)(int, void * data);
    int method(int a, int b = 3) const { return a; }
};
API enum dev_type dev_get(struct props * p, int n);
DEPRECATED(API int old_one(int), "use new_one");
API std::function<void(int)> handler(void);
ATTRIBUTE_FORMAT(1, 2)
static void logf(const char * fmt, ...);
}
server::server(int n) : a(n), b{2}, c(3) { run("x"); }
bool server::operator==(const server & o) const { return true; }
namespace x { template <typename T> T twice(T v) { return v; } }
static const std::map<int, const char *> NAMES = { { 1, "one" } };
int last(int v);
`)
	check(t, decls(f), `
8 enum dev_type::TYPE_CPU |
8 enum dev_type::TYPE_GPU |1 << 2
9 enum mode::fast |
10 field point::x int|
12 field props::name const char *|
13 field props::free size_t|0
13 field props::total size_t|1
14 field props::list std::vector < std::pair < int, int>>|{{1, 2}}
15 field props::ids int|
16 field props::caps::async bool|
17 field props::callback bool (* callback)(int, void * data)|
18 func props::method int (int, int)|
20 func dev_get dev_type (props *, int)|
21 func old_one int (int)|use new_one
22 func handler std :: function < void ( int ) > (void)|
24 func logf void (const char *, . . .)|
26 func server::server  (int)|
27 func server::operator== bool (const server &)|
28 func twice template < typename T > T (T)|
30 func last int (int)|
`)
}

func TestScopes(t *testing.T) {
	f := Parse("a.cpp", `
void server::init() {
    this->get_props = [this](const req & r) -> res { return json{{"a", 1}}; };
#ifdef X
    if (a) {
#else
    if (b) {
#endif
        call("in init");
    }
}
int next() { call(R"(raw "x" // no comment)" "tail"); }
`)
	var got []string
	for i, tok := range f.Tokens {
		if tok.Kind == String {
			got = append(got, f.ScopeOf(i)+": "+tok.Text)
		}
	}
	want := []string{"get_props: a", "server::init: in init", `next: raw "x" // no comment`, "next: tail"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestPython(t *testing.T) {
	f := Parse("a.py", "class A:\n    # X = \"no\"\n    X = \"yes\"  # comment\n    '''doc\n    string'''\n    Y = r'a\\d' f\"b\"\n")
	var got []string
	for _, tok := range f.Tokens {
		got = append(got, fmt.Sprintf("%d:%d:%s", tok.Line, tok.Col, tok.Text))
	}
	want := []string{"1:0:class", "1:6:A", "1:7::", "3:4:X", "3:6:=", "3:8:yes", "4:4:doc\n    string", "6:4:Y", "6:6:=", "6:8:a\\d", "6:15:b"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// FuzzParse holds that any text is read to an end.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"int a(", "#if\n}", "R\"(", "'", "\"\\", "a<b<(", "enum {=,", "struct", "}}}}", "x = [", "\\"} {
		f.Add(text)
	}
	f.Fuzz(func(_ *testing.T, text string) {
		Parse("a.cpp", text)
		Parse("a.py", text)
	})
}

func TestDump(t *testing.T) {
	path := os.Getenv("SCAN_FILE")
	if path == "" {
		t.Skip("SCAN_FILE names no file")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f := Parse(path, string(data))
	t.Log(strings.Join(decls(f), "\n"))
	for _, s := range f.Scopes {
		t.Logf("scope %s %d-%d", s.Name, f.Tokens[s.Open].Line, f.Tokens[s.Close].Line)
	}
}
