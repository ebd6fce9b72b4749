package verify

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"payload/internal/manifest"
)

// The lines that a program prints which gets everything right.
func goodSteps() []string {
	var arrays, matmul []string
	for i := range 100 {
		arrays = append(arrays, fmt.Sprint(2*i+1))
	}
	for i := range matmulRows * matmulCols {
		matmul = append(matmul, fmt.Sprint(product(i)))
	}
	return []string{
		`{"step":"version","text":"1.2.3"}`,
		`{"step":"device","text":"CPU"}`,
		`{"step":"arrays","values":[` + strings.Join(arrays, ",") + `]}`,
		`{"step":"matmul","values":[` + strings.Join(matmul, ",") + `]}`,
		`{"step":"inverse","values":[0.6,-0.7,-0.2,0.4]}`,
		`{"step":"safetensors","values":[0,0.5,-1.25,2.99999992e-05,65504,-7],"text":"check"}`,
		`{"step":"error","status":1,"text":"[matmul] shapes"}`,
		`{"step":"memory","sizes":{"before":0,"active":1048576,"peak":1048580,"freed":0,"cache":1048580,"cleared":0,"limit":33554432,"uncached":0,"limit_then":0}}`,
		`{"step":"threads","values":[499500,500500,501500,502500]}`,
	}
}

// header and data of the file that a right program writes.
const goodHeader = `{"__metadata__":{"format":"check"},"weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}`

// walked is a payload whose program prints lines, and runs words of C where a
// line begins with "C:".
func walked(t *testing.T, lines []string, header string, refs ...string) string {
	t.Helper()
	dir := t.TempDir()
	var c strings.Builder
	c.WriteString("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n#include <stdint.h>\nint main(int argc, char **argv) {\n")
	fmt.Fprintf(&c, "char path[4096]; snprintf(path, sizeof path, \"%%s/check.safetensors\", argv[1]); FILE *f = fopen(path, \"w\");\n")
	fmt.Fprintf(&c, "const char *header = %q; uint64_t size = strlen(header); fwrite(&size, 8, 1, f); fwrite(header, size, 1, f);\n", header)
	c.WriteString("const float values[] = {0, 0.5f, -1.25f, 3e-5f, 65504, -7}; fwrite(values, 4, 6, f); fclose(f);\n")
	for i, line := range append(slices.Clone(lines), `{"begins":"end"}`) {
		if code, ok := strings.CutPrefix(line, "C:"); ok {
			c.WriteString(code + "\n")
			continue
		}
		if _, name, ok := strings.Cut(line, `"step":`); ok && i < len(lines) {
			name, _, _ = strings.Cut(name, ",")
			fmt.Fprintf(&c, "puts(%q);\n", `{"begins":`+name+`}`)
		}
		fmt.Fprintf(&c, "puts(%q); fflush(stdout);\n", line)
	}
	c.WriteString("while (getchar() != EOF) {}\nreturn 0;\n}\n")
	compile(t, dir, "sub/prog", c.String())
	files, err := manifest.Describe(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := manifest.Manifest{Files: files}
	for _, ref := range refs {
		m.Components = append(m.Components, manifest.Component{Name: "x", Ref: ref})
	}
	if err := manifest.Write(dir, m); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestWalk(t *testing.T) {
	without := func(step string) []string {
		return slices.DeleteFunc(goodSteps(), func(l string) bool { return strings.Contains(l, `"`+step+`"`) })
	}
	instead := func(step, line string) []string {
		lines := goodSteps()
		for i, l := range lines {
			if strings.Contains(l, `"step":"`+step+`"`) {
				lines[i] = line
			}
		}
		return lines
	}
	for name, c := range map[string]struct {
		lines  []string
		header string
		want   string // id, and words of title and detail, separated by |
	}{
		"good":                 {},
		"noise of libraries":   {lines: append([]string{"warning: something {", "{not json}"}, goodSteps()...)},
		"another version":      {lines: instead("version", `{"step":"version","text":"1.2.4"}`), want: "step.wrong|the step version|it says that it is 1.2.4"},
		"another device":       {lines: instead("device", `{"step":"device","text":"GPU"}`), want: "step.wrong|the default device is the GPU"},
		"a wrong product":      {lines: instead("matmul", `{"step":"matmul","values":[1,2]}`), want: "step.wrong|the step matmul|2 values, not 957"},
		"not a number":         {lines: instead("inverse", `{"step":"inverse","values":[0.6,-0.7,-0.2,0.5]}`), want: "step.wrong|value 3 is 0.5, not 0.4"},
		"an error":             {lines: instead("arrays", `{"step":"arrays","failed":"no such device"}`), want: "step.failed|the step arrays|no such device"},
		"no error":             {lines: instead("error", `{"step":"error","status":0,"text":""}`), want: "step.wrong|give no error"},
		"left out":             {lines: without("threads"), want: "step.missing|threads"},
		"memory that stays":    {lines: instead("memory", `{"step":"memory","sizes":{"before":0,"active":1048576,"peak":1048580,"freed":1048576,"cache":1048580,"limit":5}}`), want: "step.wrong|still counts as active"},
		"a thread's wrong sum": {lines: instead("threads", `{"step":"threads","values":[499500,500500,-1,502500]}`), want: "step.wrong|value 2 is -1"},
		"another file":         {header: strings.Replace(goodHeader, "[2,3]", "[3,2]", 1), want: "step.wrong|the file's header is"},
		"no header":            {header: "x", want: "step.wrong|the file's header"},
		"a crash":              {lines: append(goodSteps()[:3:3], `{"begins":"matmul"}`, "C:*(volatile int *)0 = 1;"), want: "runtime.crash|dies of SIGSEGV in the step matmul"},
		"an exit":              {lines: append(goodSteps()[:3:3], `{"begins":"matmul"}`, "C:exit(255);"), want: "runtime.exit|ended with status 255 in the step matmul"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.lines == nil {
				c.lines = goodSteps()
			}
			if c.header == "" {
				c.header = goodHeader
			}
			dir := walked(t, c.lines, c.header, "v1.2.3")
			res, err := Payload(context.Background(), Options{Dir: dir, Kind: "array-library", Program: "sub/prog", Backends: []string{"CPU"}})
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "" {
				if len(res.Findings) > 0 || res.Runtime.Requests != len(arraySteps) || res.Runtime.Version != "1.2.3" {
					t.Errorf("found %+v, %+v", res.Findings, res.Runtime)
				}
				if v := res.Verified(); v.Kind != "array-library" || !v.Static || v.Version != "1.2.3" {
					t.Errorf("verified is %+v", v)
				}
				return
			}
			words := strings.Split(c.want, "|")
			if len(res.Findings) != 1 || res.Findings[0].ID != words[0] {
				t.Fatalf("found %+v, want %s alone", res.Findings, words[0])
			}
			for _, w := range words[1:] {
				if text := res.Findings[0].Title + "\n" + res.Findings[0].Detail; !strings.Contains(text, w) {
					t.Errorf("%q does not hold %q", text, w)
				}
			}
		})
	}
}

// A program that never comes to its end is stopped.
func TestWalkStuck(t *testing.T) {
	dir := walked(t, append(goodSteps()[:3:3], `{"begins":"matmul"}`, "C:for (;;) pause();"), goodHeader, "v1.2.3")
	res := Result{}
	s := &sessions{
		kind: kinds["array-library"], options: Options{Dir: dir, Program: "sub/prog", Tell: func(string, ...any) {}}, res: &res,
		limits: limits{request: time.Second, stop: time.Second},
	}
	if err := s.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(res.Findings) != 1 || res.Findings[0].ID != "runtime.stuck" || !strings.Contains(res.Findings[0].Title, "matmul") {
		t.Errorf("found %+v", res.Findings)
	}
}

// Ending the context ends the program, and leaves nothing behind.
func TestWalkCancelled(t *testing.T) {
	temp := t.TempDir()
	dir := walked(t, append(goodSteps()[:1:1], "C:for (;;) pause();"), goodHeader, "v1.2.3")
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	res := Result{}
	s := &sessions{
		kind: kinds["array-library"], options: Options{Dir: dir, Program: "sub/prog", Tell: func(string, ...any) {}}, res: &res,
		limits: limits{request: time.Minute, stop: time.Second}, tempIn: temp,
	}
	if err := s.run(ctx); err == nil {
		t.Error("no error")
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// What lies outside the payload is told, also when everything works.
func TestWalkOutside(t *testing.T) {
	abroad := t.TempDir()
	compile(t, abroad, "libaway.so", "int away(void) { return 1; }", "-shared", "-fPIC")
	lines := append([]string{fmt.Sprintf("C:extern void *dlopen(const char *, int); if (!dlopen(%q, 2)) abort();", filepath.Join(abroad, "libaway.so"))}, goodSteps()...)
	dir := walked(t, lines, goodHeader, "v1.2.3")
	res, err := Payload(context.Background(), Options{Dir: dir, Kind: "array-library", Program: "sub/prog"})
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Findings) != 1 || res.Findings[0].ID != "runtime.mapped-outside" {
		t.Errorf("found %+v", res.Findings)
	}
}
