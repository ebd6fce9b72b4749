//go:build amd64 || arm64

package verify

import (
	"debug/elf"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// crashServer is a program that loads a module beside itself, is healthy, and
// at the first other request calls the module on a new thread.
const crashServer = `
#include <arpa/inet.h>
#include <dlfcn.h>
#include <libgen.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *work(void *f) { ((void (*)(void))f)(); return 0; }
static void *idle(void *x) { for (;;) pause(); return x; }
static void caught(int s) { static const char text[] = "caught\n"; if (s) write(2, text, sizeof text - 1); _exit(5); }
int main(int argc, char **argv) {
	char dir[4096] = {0};
	if (readlink("/proc/self/exe", dir, sizeof dir - 1) < 0) return 1;
	dirname(dir);
	strcat(dir, "/libggml-cpu-haswell.so");
	void *lib = dlopen(dir, RTLD_NOW);
	void *f = lib ? dlsym(lib, "compute") : 0;
	if (!f) { fprintf(stderr, "no module: %s\n", dlerror()); return 1; }
	fprintf(stderr, "load_backend: loaded CPU backend from %s\n", dir);
	if (getenv("GGML_BACKEND_PATH")) return 0;
	int port = 0;
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--version")) { puts("version: 1"); return 0; }
		if (!strcmp(argv[i], "--port")) port = atoi(argv[i + 1]);
	}
	if (CATCH) signal(SIGILL, caught);
	pthread_t t;
	for (int i = 0; i < 3; i++) pthread_create(&t, 0, idle, 0);
	if (AT_START) { pthread_create(&t, 0, work, f); pause(); }
	int s = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	if (bind(s, (void *)&a, sizeof a) || listen(s, 9)) return 1;
	for (;;) {
		int c = accept(s, 0, 0);
		char q[4096] = {0};
		if (read(c, q, sizeof q - 1) <= 0) { close(c); continue; }
		if (!strncmp(q, "GET /health", 11)) {
			const char *ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
			if (write(c, ok, strlen(ok)) < 0) return 1;
			close(c);
			continue;
		}
		fprintf(stderr, "evaluating\n");
		pthread_create(&t, 0, work, f);
		pthread_join(t, 0);
	}
}
`

// crashModule dies in a static function, which only the full symbol table names.
const crashModule = `
__attribute__((noinline)) static void load_tiles(void) { TRAP; }
void compute(void) { load_tiles(); __asm__ volatile(""); }
`

func TestCrashIsLocated(t *testing.T) {
	trap := `__asm__ volatile("ud2")`
	if runtime.GOARCH == "arm64" {
		trap = `__asm__ volatile(".inst 0")`
	}
	segv := `*(volatile int *)16 = 1`
	for name, tt := range map[string]struct {
		trap, atStart, catch string
		link                 []string
		key, title           string
	}{
		"on a request": {trap, "0", "0", nil, "runtime.crash:haswell:SIGILL", `^server dies of SIGILL while asked for the model's name \(variant haswell\), at load_tiles \(libggml-cpu-haswell\.so\+0x[0-9a-f]+\)$`},
		"at start":     {trap, "1", "0", nil, "runtime.crash:haswell:SIGILL", `while starting \(variant haswell\), at load_tiles`},
		"stripped":     {trap, "0", "0", []string{"-s"}, "runtime.crash:haswell:SIGILL", `, at libggml-cpu-haswell\.so\+0x[0-9a-f]+$`},
		"bad address":  {segv, "0", "0", nil, "runtime.crash:haswell:SIGSEGV", `dies of SIGSEGV .*, at load_tiles`},
		"caught":       {trap, "0", "1", nil, "runtime.exit:haswell:the model's name", `ended with status 5`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			compile(t, dir, "server", crashServer, "-DAT_START="+tt.atStart, "-DCATCH="+tt.catch, "-pthread", "-ldl")
			compile(t, dir, "libggml-cpu-haswell.so", crashModule, append([]string{"-DTRAP=" + tt.trap, "-shared", "-fPIC", "-O1"}, tt.link...)...)
			seal(t, dir)
			res, err := verifyFake(t, t.Context(), dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := keys(res.Findings); !slices.Equal(got, []string{tt.key}) {
				t.Fatalf("got %q: %+v", got, res.Findings)
			}
			f := res.Findings[0]
			if !regexp.MustCompile(tt.title).MatchString(f.Title) {
				t.Errorf("title is %q", f.Title)
			}
			if !strings.Contains(f.Detail, "loaded CPU backend") {
				t.Errorf("detail is %q", f.Detail)
			}
			if tt.catch == "0" && f.Where[0].Path != "libggml-cpu-haswell.so" {
				t.Errorf("where is %v", f.Where)
			}
		})
	}
}

func TestFunction(t *testing.T) {
	dir := t.TempDir()
	compile(t, dir, "lib.so", "int _ZN4ggml4tileEi(int n) { return n + 1; }", "-shared", "-fPIC")
	file := filepath.Join(dir, "lib.so")
	offset := symbolOffset(t, file, "_ZN4ggml4tileEi")
	if got := function(file, offset); got != "ggml::tile(int)" {
		t.Errorf("got %q", got)
	}
	if got := function(file, 1<<40); got != "" {
		t.Errorf("beyond the end: %q", got)
	}
	if got := function(filepath.Join(dir, "none"), 0); got != "" {
		t.Errorf("no file: %q", got)
	}
}

func symbolOffset(t *testing.T, file, name string) uint64 {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == name })
	for _, p := range f.Progs {
		if v := symbols[i].Value; p.Type == elf.PT_LOAD && v >= p.Vaddr && v < p.Vaddr+p.Memsz {
			return v - p.Vaddr + p.Off
		}
	}
	t.Fatal("no segment holds the symbol")
	return 0
}
