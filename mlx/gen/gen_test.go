package gen

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

var update = flag.Bool("update", false, "write the goldens")

// small holds one of each kind that mlx-c's headers have.
const small = `
#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif
/* A comment: int mlx_not_there(void); */
typedef struct mlx_array_ { void* ctx; } mlx_array;
static mlx_array mlx_array_empty;
typedef struct mlx_stream_ { void* ctx; } mlx_stream;
typedef struct mlx_iterator_ { void* ctx; void* map_ctx; } mlx_iterator;
typedef struct mlx_optional_float_ { float value; bool has_value; } mlx_optional_float;
typedef struct mlx_vtable_ { bool (*good)(void*); size_t (*read)(void*, char*, size_t); } mlx_vtable;
typedef enum mlx_dtype_ { MLX_BOOL, MLX_FLOAT32 = 10 } mlx_dtype;
#define HIDDEN(name) int mlx_##name(mlx_array* res, const mlx_array a, const mlx_stream s)
HIDDEN(abs);
mlx_array mlx_array_new(void);
mlx_array mlx_new_data(const void* data, const int* shape, int dim, mlx_dtype dtype);
void mlx_quiet(mlx_array a, bool verbose);
size_t mlx_array_size(const mlx_array a);
int mlx_array_dim(const mlx_array a, int dim);
const char* mlx_text(mlx_array a);
const int* mlx_array_shape(const mlx_array a);
int mlx_item(float* res, const mlx_array a);
int mlx_next(const char** key, mlx_array* value, mlx_iterator it);
int mlx_strings(const char** data, size_t size);
int mlx_seed(uint64_t seed);
int mlx_key(mlx_array* res, uint64_t seed);
int mlx_round(mlx_array* res, float eps, mlx_optional_float base, const mlx_stream s);
int mlx_many(mlx_array* res, const int* a, size_t a_num, const int* b, size_t b_num, const int* c, size_t c_num, bool flip, const mlx_stream s);
int mlx_distributed_init(mlx_array* res, bool strict, const char* bk /* may be null */);
mlx_array mlx_reader_new(void* desc, mlx_vtable vtable, int (*fun)(mlx_array*, void*), FILE* os);
void _mlx_error(const char* file, const int line, const char* fmt, ...);
#ifdef __aarch64__
typedef __fp16 float16_t;
int mlx_item_float16(float16_t* res, const mlx_array a);
#endif
#ifdef __cplusplus
}
#endif
`

func tree(header string) fstest.MapFS {
	return fstest.MapFS{
		"mlx/c/mlx.h":           {Data: []byte("#include \"mlx/c/ops.h\"\n")},
		"mlx/c/ops.h":           {Data: []byte(header)},
		"mlx/c/private/other.h": {Data: []byte("this is no C and is not read")},
	}
}

func TestGolden(t *testing.T) {
	files, err := Generate(tree(small), Versions{MLX: "v1.2.3", MLXC: "v0.1.0"})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 2 {
		t.Errorf("%d files", len(files))
	}
	for name, data := range files {
		path := filepath.Join("testdata", name+".golden")
		if *update {
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(data) != string(want) {
			t.Errorf("%s is not what is generated (run with -update to accept):\n%s", path, data)
		}
	}
}

func TestTheSameTreeGivesTheSameBytes(t *testing.T) {
	first, err := Generate(tree(small), Versions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		again, err := Generate(tree(small), Versions{})
		if err != nil {
			t.Fatal(err)
		}
		for name := range first {
			if string(first[name]) != string(again[name]) {
				t.Fatalf("%s changes from one run to the next", name)
			}
		}
	}
	other, err := Generate(tree(small+"\n"), Versions{})
	if err != nil {
		t.Fatal(err)
	}
	if string(first["zapi.go"]) == string(other["zapi.go"]) {
		t.Error("another header has the same digest")
	}
}

// What can't be placed stops, with the name of the function.
func TestRefusals(t *testing.T) {
	for text, c := range map[string]struct{ add, want string }{
		"no count":        {"int mlx_odd(const int* values, mlx_stream s);", "binding mlx_odd of mlx/c/ops.h: parameter values: a pointer to const int32 without a count"},
		"unknown type":    {"int mlx_odd(long double x);", "binding mlx_odd of mlx/c/ops.h: parameter x: no Go type"},
		"unknown struct":  {"typedef struct { int a; int b; int c; } mlx_odd;", "binding mlx_odd of mlx/c/ops.h: a struct of 3 fields"},
		"unknown pointer": {"int mlx_odd(int** x);", "parameter x: a pointer to a pointer"},
		"unknown result":  {"long double mlx_odd(void);", "binding mlx_odd of mlx/c/ops.h: result: no Go type"},
		"no C":            {"int mlx_odd(", "parsing the headers of mlx-c"},
	} {
		_, err := Generate(tree(small+c.add), Versions{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", text, err, c.want)
		}
	}
	if _, err := Generate(fstest.MapFS{}, Versions{}); err == nil || !strings.Contains(err.Error(), "no mlx/c/mlx.h in the tree") {
		t.Errorf("an empty tree: %v", err)
	}
}
