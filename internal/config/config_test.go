package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const good = `version: 1
components:
  toy.cpp:
    pin: TOY_VERSION
    upstream: ../upstream
    patches: patches
    mirrors:
      - {ref: b1, commit: 0c1e57098bba43ac29e6e3b677cdceebdd22334f, pypi: toy==1.0, path: vendor/toy, sha256: 832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e}
      - {ref: b2, archive: ../toy}
    tags: ["b[0-9]*"]
    ignore: [b7]
    throttle: 10
    copies:
      - {path: Dockerfile, pattern: "^ARG TOY=(.+)$"}
    coupled:
      - {component: other, path: deps.txt, pattern: "^other (.+)$"}
    watch:
      ours: ["**", "!testdata/**"]
      rules:
        - id: server.flag
          category: server
          find: flags
          in: [arg.cpp]
          of: [arg]
          defaults: {in: [arg.h], vars: {params: arg_params}}
          severity: {added: off}
        - {id: server.log, category: server, find: logs, in: ["*.cpp"], of: [LOG], patterns: {ready: "listening on .+"}}
  other:
    pin: OTHER_VERSION
    upstream: https://example.com/other
`

func load(t *testing.T, text string) (*File, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return Load(dir)
}

func TestLoad(t *testing.T) {
	f, err := load(t, good)
	if err != nil {
		t.Fatal(err)
	}
	c, err := f.Component("toy.cpp")
	if err != nil {
		t.Fatal(err)
	}
	if c.Var() != "TOY_CPP" || f.Components[1].Name != "other" {
		t.Errorf("%+v", f.Components)
	}
	if got := f.Location(c); got != filepath.Join(filepath.Dir(f.Root), "upstream") {
		t.Errorf("location %s", got)
	}
	if got := f.Location(f.Components[1]); got != "https://example.com/other" {
		t.Errorf("location %s", got)
	}
	if m := c.MirrorsOf("b1"); len(m) != 1 || m[0].ID() != "pypi:toy==1.0" {
		t.Errorf("mirrors of b1: %+v", m)
	}
	if m := c.MirrorsOf("0c1e57098bba43ac29e6e3b677cdceebdd22334f"); len(m) != 1 || m[0].ID() != "pypi:toy==1.0" {
		t.Errorf("mirrors of a commit: %+v", m)
	}
	if m := c.MirrorsOf(""); len(m) != 0 {
		t.Errorf("mirrors of nothing: %+v", m)
	}
	if m := c.MirrorsOf("b2"); len(m) != 1 || m[0].ID() != "archive:../toy" || m[0].Kind() != "archive" {
		t.Errorf("mirrors of b2: %+v", m)
	}
	var unknown *UnknownComponentError
	if _, err := f.Component("toy"); !errors.As(err, &unknown) || !strings.Contains(err.Error(), "toy.cpp, other") {
		t.Errorf("%v", err)
	}
}

// Every mistake is named, with the line and column where it stands.
func TestMistakes(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"version":       {"version: 1", "version: 2", "[1:10] version 2 is not known"},
		"unknown key":   {"    pin: TOY_VERSION", "    pinn: TOY_VERSION", "[4:5] unknown field"},
		"no pin":        {"    pin: TOY_VERSION\n", "", "component toy.cpp has no pin"},
		"no upstream":   {"    upstream: ../upstream\n", "", "component toy.cpp has no upstream"},
		"outside":       {"patches: patches", "patches: ../patches", "[6:14] patches of component toy.cpp must lie below"},
		"short commit":  {"0c1e57098bba43ac29e6e3b677cdceebdd22334f", "0c1e570", `"0c1e570" is not a full commit id`},
		"long commit":   {"0c1e57098bba43ac29e6e3b677cdceebdd22334f", strings.Repeat("a", 64), "is not a full commit id"},
		"bad digest":    {"832db06990", "XXX", "is not 64 hexadecimal digits"},
		"no digest":     {", sha256: 832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e", "", "pypi:toy==1.0 needs its sha256"},
		"two kinds":     {"pypi: toy==1.0", "pypi: toy==1.0, crate: toy==1.0", "exactly one of pypi, crate and archive"},
		"loose version": {"toy==1.0", "toy>=1.0", "not of the form name==version"},
		"path outside":  {"vendor/toy", "../toy", `path "../toy" leaves the download`},
		"no ref":        {"{ref: b2, ", "{", "mirror 2 of component toy.cpp: no ref"},
		"same variable": {"  other:", "  toy_cpp:", "share the variable prefix TOY_CPP"},
		"bad name":      {"  other:", "  \"a b\":", "component name a b"},
		"twice":         {"  other:", "  toy.cpp:", "toy.cpp"},
		"bad glob":      {`"b[0-9]*"`, `"b[0-9"`, `[10:12] tags of component toy.cpp: "b[0-9" is not a glob`},
		"throttle":      {"throttle: 10", "throttle: -1", "throttle of component toy.cpp: -1 is less than 0"},
		"copy outside":  {"path: Dockerfile", "path: ../Dockerfile", "copy 1 of component toy.cpp: path"},
		"no group":      {"^ARG TOY=(.+)$", "^ARG TOY=.+$", "must have one group"},
		"bad pattern":   {"^other (.+)$", "^other (.+$", "[16:53] coupling 1 of component toy.cpp: error parsing regexp"},
		"no partner":    {"component: other", "component: absent", `component toy.cpp is coupled to "absent"`},
		"itself":        {"component: other", "component: toy.cpp", `component toy.cpp is coupled to "toy.cpp"`},
		"watch glob":    {"in: [arg.cpp]", `in: ["[a"]`, `[23:16] watch rule server.flag of component toy.cpp: in: "[a" is not a glob`},
		"watch find":    {"find: flags", "find: flagg", `[22:17] watch rule server.flag of component toy.cpp: find "flagg" is none of arguments, bodies`},
		"watch names":   {"          of: [arg]\n", "", "find flags needs of"},
		"watch pattern": {"listening on .+", "listening (", "[27:"},
		"watch twice":   {"id: server.log", "id: server.flag", "rule 1 has this id and finds flags"},
		"watch level":   {"{added: off}", "{adds: off}", "severity is a map of added, removed, renamed, changed"},
		"watch key":     {"          of: [arg]", "          off: [arg]", `unknown field "off"`},
		"not YAML":      {"version: 1", "version: [", "[1:"},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(good, c.old) {
				t.Fatalf("the good text lacks %q", c.old)
			}
			_, err := load(t, strings.Replace(good, c.old, c.new, 1))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nwant %q", err, c.want)
			}
		})
	}
	if _, err := load(t, "version: 1\n"); err == nil || !strings.Contains(err.Error(), "no components") {
		t.Errorf("%v", err)
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(deep); !errors.Is(err, ErrNoFile) {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, FileName), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if root, err := Find(deep); err != nil || root != dir {
		t.Errorf("%s, %v", root, err)
	}
}
