package verify

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"payload/internal/manifest"
	"payload/internal/report"
	"payload/internal/voice"
)

// Budget is how large something may be.
type Budget struct {
	Path  string // of a file or folder of the payload; empty for all of it
	Bytes int64
}

// checkBudgets adds up sizes. A budget for what isn't there is a mistake too: it
// would hold nothing.
func checkBudgets(res *Result, got []manifest.File, budgets []Budget) {
	for _, b := range budgets {
		within := path.Clean(b.Path) // "." for all
		var size int64
		found := false
		for _, f := range got {
			if within == "." || f.Path == within || strings.HasPrefix(f.Path, within+"/") {
				size, found = size+f.Size, true
			}
		}
		name := "the payload"
		if within != "." {
			name = within
		}
		switch {
		case !found:
			res.static("budget.unused", within, "there is a budget for "+name+", which is not in the payload", "")
		case size > b.Bytes:
			res.static("budget.exceeded", within, fmt.Sprintf("%s is larger than its budget", name), fmt.Sprintf("%s, %d bytes more than %s", voice.Size(size), size-b.Bytes, voice.Size(b.Bytes)), b.Path)
		}
	}
}

// BudgetsOf sorts what a manifest or payload.yaml says by path.
func BudgetsOf(sizes map[string]int64) []Budget {
	var budgets []Budget
	for _, p := range slices.Sorted(maps.Keys(sizes)) {
		budgets = append(budgets, Budget{Path: p, Bytes: sizes[p]})
	}
	return budgets
}

// OverBudget are the findings of what is larger than it may be, and of budgets for
// what is not there.
func OverBudget(files []manifest.File, budgets []Budget) []report.Finding {
	res := &Result{}
	checkBudgets(res, files, budgets)
	return res.Findings
}

// checkOwnBudgets holds the files of each archive against the budgets that its
// manifest has, but those that allowed says were passed over.
func checkOwnBudgets(res *Result, d described, got []manifest.File) {
	for _, m := range d.all {
		if m.Package == nil || slices.ContainsFunc(m.Package.Allowed, func(a manifest.Allowed) bool { return a.What == manifest.AllowedBudget }) {
			continue
		}
		own := slices.DeleteFunc(slices.Clone(got), func(f manifest.File) bool {
			return !slices.ContainsFunc(m.Files, func(of manifest.File) bool { return of.Path == f.Path })
		})
		checkBudgets(res, own, BudgetsOf(m.Package.Budget))
	}
}

// headerNeeds are libraries that compile at run time, and headers that they are
// known to include. They look for them below the payload.
var headerNeeds = []struct {
	library string   // beginning of the name that is needed
	headers []string // ends of paths
}{
	{"libnvrtc.so.", []string{"include/cuda_fp16.h", "include/cuda_bf16.h", "cuda/std/array", "cuda/std/limits", "cuda/std/tuple"}},
}

// checkHeaders makes sure that a library that compiles kernels at run time finds
// its headers: without them it fails at the first kernel, on the user's machine.
func checkHeaders(res *Result, got []manifest.File, objects []*object) {
	for _, h := range headerNeeds {
		for _, o := range objects {
			if !needsOne(o, h.library) {
				continue
			}
			for _, header := range h.headers {
				if !hasEnd(got, header) {
					res.static("headers.missing", o.path+":"+header, fmt.Sprintf("%s compiles at run time and %s is not in the payload", o.path, header), "it needs "+h.library+"*", o.path)
				}
			}
		}
	}
}

func needsOne(o *object, prefix string) bool {
	for _, name := range o.needed {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func hasEnd(got []manifest.File, end string) bool {
	for _, f := range got {
		if strings.HasSuffix("/"+f.Path, "/"+end) {
			return true
		}
	}
	return false
}
