//go:build real && unix

package main

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"payload/internal/config"
	"payload/internal/git"
	"payload/internal/review"
	"payload/internal/source"
	"payload/internal/workspace"
)

// changed is upstream's real tree with some files replaced, in the store's own
// repository.
func changed(t *testing.T, repo git.Repo, tree string, edit map[string]func(string) string) string {
	t.Helper()
	ctx, index := context.Background(), filepath.Join(t.TempDir(), "index")
	if err := repo.ReadTree(ctx, tree, index); err != nil {
		t.Fatal(err)
	}
	do := func(c git.Call) string {
		t.Helper()
		c.Index = index
		out, err := repo.Do(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(string(out), "\n")
	}
	for path, f := range edit {
		old := do(git.Call{Args: []string{"cat-file", "blob", tree + ":" + path}})
		text := f(old + "\n")
		if text == old+"\n" {
			t.Errorf("%s is not changed", path)
		}
		blob := do(git.Call{Args: []string{"hash-object", "-w", "--stdin"}, Stdin: strings.NewReader(text)})
		do(git.Call{Args: []string{"update-index", "--add", "--cacheinfo", "100644," + blob + "," + path}})
	}
	return do(git.Call{Args: []string{"write-tree"}})
}

// pinnedTree opens this repository and its pinned llama.cpp.
func pinnedTree(t *testing.T) (*workspace.Workspace, config.Component, string) {
	t.Helper()
	w, err := workspace.Open(t.Context(), workspace.Options{Dir: root(t), Tell: t.Logf, Kinds: []source.Kind{source.FromStore, source.FromMirror}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := w.Asked("llama.cpp")
	if err != nil {
		t.Fatal(err)
	}
	pristine, err := w.Pristine(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return w, p.Component, pristine.Tree
}

func reviewed(t *testing.T, w *workspace.Workspace, c config.Component, old, new string) review.Result {
	t.Helper()
	res, err := review.Run(t.Context(), review.Input{
		Repo: w.Store().Repo(), File: w.File, Component: c, Old: review.Side{Ref: "old", Tree: old}, New: review.Side{Ref: "new", Tree: new},
	})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestRealReviewFindsInjected changes the real source in one place for each
// class and holds that each is found, and nothing else.
func TestRealReviewFindsInjected(t *testing.T) {
	w, component, tree := pinnedTree(t)
	edit := map[string]func(string) string{}
	want := map[string]string{} // title -> id
	for _, c := range []struct{ path, old, new, id, title string }{
		{"common/arg.cpp", `"--ctx-size"`, `"--context-size"`, "server.flag-renamed", "flag --ctx-size is now --context-size"},
		{"common/arg.cpp", `{"--metrics"},`, `{"--metrics"}, "MODE",`, "server.flag-takes-value", "flag --metrics now takes a value: MODE"},
		{"common/common.h", "n_batch               =  2048", "n_batch               =  4096", "server.flag-default-changed", "default of flag --batch-size, -b: 2048 → 4096"},
		{"tools/server/server.cpp", `    ctx_http.post("/slots/:id_slot",           ex_wrapper(routes.post_slots));`, "", "server.endpoint-removed", "endpoint POST /slots/:id_slot removed"},
		{"tools/server/server.cpp", `"/tokenize"`, `"/v1/tokenize"`, "server.endpoint-renamed", "endpoint POST /tokenize is now POST /v1/tokenize"},
		{"tools/server/server-task.cpp", `{"tokens_evaluated"`, `{"prompt_tokens_evaluated"`, "server.key-renamed", "JSON key tokens_evaluated of server_task_result_cmpl_final::to_json_non_oaicompat is now prompt_tokens_evaluated"},
		{"tools/server/server-context.cpp", "data: [DONE]", "data: [END]", "streaming.frame-removed", "frame text data: [DONE] of handle_completions_impl removed"},
		{"ggml/CMakeLists.txt", "option(GGML_BACKEND_DL", "option(GGML_DYNAMIC_BACKENDS", "options.renamed", "option GGML_BACKEND_DL is now GGML_DYNAMIC_BACKENDS"},
		{"ggml/CMakeLists.txt", "cmake_minimum_required(VERSION 3.14", "cmake_minimum_required(VERSION 3.27", "cmake.version-changed", "CMake in ggml/CMakeLists.txt: 3.14...3.28 → 3.27...3.28"},
		{"common/CMakeLists.txt", "find_package(Threads REQUIRED)", "find_package(Threads REQUIRED)\nfind_package(ZLIB REQUIRED)", "packages.added", "package ZLIB added"},
		{"ggml/include/ggml-backend.h", "size_t memory_total;", "uint64_t memory_total;", "backends.field-type-changed", "type of field memory_total of ggml_backend_dev_props: size_t → uint64_t"},
		{"ggml/include/ggml-backend.h", "GGML_BACKEND_DEVICE_TYPE_IGPU", "GGML_BACKEND_DEVICE_TYPE_INTEGRATED", "backends.enum-member-renamed", "enum member GGML_BACKEND_DEVICE_TYPE_IGPU of ggml_backend_dev_type is now GGML_BACKEND_DEVICE_TYPE_INTEGRATED"},
		{"src/llama-model.cpp", "model buffer size = %8.2f MiB", "model weights take %8.2f MiB", "server.log-line-removed", `log line "weights memory" is not printed any more`},
		{"src/llama-arch.cpp", `    { LLM_ARCH_LLAMA,            "llama"            },`, "", "models.architecture-removed", "architecture llama removed"},
		{"src/llama-arch.cpp", `"general.file_type"`, `"general.filetype"`, "models.gguf-key-renamed", "GGUF key general.file_type is now general.filetype"},
		{"src/llama-vocab.cpp", `tokenizer_pre == "llama3"   ||`, "", "models.pre-tokenizer-removed", "pre tokenizer llama3 removed"},
	} {
		before := edit[c.path]
		edit[c.path] = func(text string) string {
			if before != nil {
				text = before(text)
			}
			if !strings.Contains(text, c.old) {
				t.Errorf("%s does not hold %q", c.path, c.old)
			}
			return strings.Replace(text, c.old, c.new, 1)
		}
		want[c.title] = c.id
	}
	want["frame text data: [END] of handle_completions_impl added"] = "streaming.frame-added" // the other half of one
	for _, f := range reviewed(t, w, component, tree, changed(t, w.Store().Repo(), tree, edit)).Findings {
		if want[f.Title] != f.ID {
			t.Errorf("not injected: %s %s", f.ID, f.Title)
		}
		delete(want, f.Title)
	}
	for title, id := range want {
		t.Errorf("not found: %s %s", id, title)
	}
}

// TestRealReviewIsSilent changes the layout of every line of the real source's
// most watched files, and puts decoys into comments: nothing is found.
func TestRealReviewIsSilent(t *testing.T) {
	w, component, tree := pinnedTree(t)
	indent := regexp.MustCompile(`(?m)^ +([^ ])`)
	layout := func(text string) string {
		text = indent.ReplaceAllString(text, "\t$1")
		return "// {\"--decoy\"} getenv(\"GGML_DECOY\") data: [DECOY]\n/* option(DECOY) { LLM_ARCH_DECOY, \"decoy\" }, */\n" + strings.ReplaceAll(text, "\n", "\r\n")
	}
	edit := map[string]func(string) string{}
	for _, path := range []string{
		"common/common.h", "ggml/include/ggml-backend.h", "include/llama.h", "src/llama-arch.cpp", "src/llama-vocab.cpp", "src/llama-model.cpp",
		"tools/server/server-task.cpp", "tools/server/server-context.cpp", "tools/server/server.cpp", "ggml/src/ggml-backend-reg.cpp",
	} {
		edit[path] = layout
	}
	edit["ggml/CMakeLists.txt"] = func(text string) string {
		return "# option(DECOY \"x\" ON)\n#[[ find_package(Decoy REQUIRED) ]]\n" + strings.ReplaceAll(text, "option(", "option(\n  ")
	}
	edit["tests/test-arg-parser.cpp"] = func(text string) string { return text + "// getenv(\"GGML_TEST\");\n" }
	res := reviewed(t, w, component, tree, changed(t, w.Store().Repo(), tree, edit))
	if res.Files != len(edit) || len(res.Findings) > 0 {
		t.Errorf("%d files differ", res.Files)
		for _, f := range res.Findings {
			t.Errorf("%s %s\n%s", f.ID, f.Title, f.Detail)
		}
	}
}
