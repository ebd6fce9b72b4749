package page

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"payload/internal/report"
	"payload/internal/testkit"
)

func example() Page {
	finding := func(severity report.Severity, category, title string, ours ...report.Place) Entry {
		return Entry{Finding: report.Finding{
			ID: category + ".thing-removed", Key: category + ".thing-removed:" + title, Category: category, Severity: severity, Title: title,
			Detail: "was: <i>1</i>\nis: 2", Where: []report.Place{{Ref: "b1", Path: "src/a.cpp", Line: 3}}, Affects: ours,
			Command: "git --git-dir=/x diff a b -- src/a.cpp", Fix: "look",
		}}
	}
	p := Page{Title: "toy b1..b2", Old: "b1", New: "b2", Facts: []string{"3 files differ."}, Categories: []string{"build", "backends", "server", "streaming", "models"}}
	p.Entries = []Entry{
		finding(report.Error, "server", "flag --mlock removed", report.Place{Path: "client.go", Line: 7}),
		finding(report.Warning, "build", "option <script>alert(1)</script> removed"),
		finding(report.Note, "models", "architecture toy3 added"),
		finding(report.Note, "server", "endpoint GET /metrics added"),
	}
	p.Entries[0].Hunks = []Hunk{{Path: "src/a.cpp", Section: "int main()", More: 2, Rows: []Row{
		{OldLine: 2, NewLine: 2, Old: "same", New: "same"},
		{OldLine: 3, NewLine: 3, Old: "int a = 1;", New: "int a = 22;"},
		{OldLine: 4, Old: "gone"},
		{NewLine: 4, New: "came"},
	}}}
	return p
}

func written(t *testing.T, p Page) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, p); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The page needs nothing else, and what upstream wrote can't run in it.
func TestSelfContained(t *testing.T) {
	text := written(t, example())
	if found := regexp.MustCompile(`(?i)(src|href)\s*=|url\(|@import|<link|https?://`).FindString(text); found != "" {
		t.Errorf("the page holds %q", found)
	}
	if strings.Contains(text, "<script>alert") || strings.Contains(text, "<i>1</i>") {
		t.Error("text of a finding is markup")
	}
	if strings.Count(text, "<script>") != 1 || !strings.Contains(text, "Content-Security-Policy") {
		t.Error("more than its own script can run")
	}
}

// Two writes of the same findings are the same bytes.
func TestSameBytes(t *testing.T) {
	first, second := written(t, example()), written(t, example())
	if first != second {
		t.Error("the page differs from itself")
	}
}

// browser starts a real one.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := testkit.Browser(t)
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1200, 900),
		chromedp.Flag("disable-background-networking", true), chromedp.WSURLReadTimeout(90*time.Second))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(cancel)
	ctx, cancelTab := chromedp.NewContext(ctx)
	t.Cleanup(cancelTab)
	if err := chromedp.Do(ctx); err != nil { // starts it; a limit on this context would end it
		t.Fatal(err)
	}
	ctx, cancelTime := context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancelTime)
	return ctx
}

// seen is what a person sees: the titles that are not hidden, the count, which
// one is open, and the colour of the ground.
type seen struct {
	Titles []string
	Shown  string
	Open   []string
	At     string
	Ground string
}

const look = `({
  Titles: [...document.querySelectorAll("details.f")].filter(f => f.offsetParent !== null).map(f => f.querySelector(".title").textContent),
  Shown: document.getElementById("shown").textContent,
  Open: [...document.querySelectorAll("details.f[open] .title")].map(x => x.textContent),
  At: (document.querySelector("details.f.at .title") || {}).textContent || "",
  Ground: getComputedStyle(document.body).backgroundColor,
})`

// result is what one action gives.
func result[T any](ctx context.Context, t *testing.T, a chromedp.Action[T]) T {
	t.Helper()
	v, err := chromedp.Run(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestInBrowser(t *testing.T) {
	text := written(t, example())
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" && r.URL.Path != "/favicon.ico" { // which a browser asks for unasked
			asked++
		}
		fmt.Fprint(w, text)
	}))
	defer server.Close()
	ctx := browser(t)
	do := func(want seen, steps ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		if err := chromedp.Do(ctx, steps...); err != nil {
			t.Fatal(err)
		}
		got := result(ctx, t, chromedp.Evaluate[seen](look))
		if want.Ground == "" {
			got.Ground = ""
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	const flag, option, arch, metrics = "flag --mlock removed", "option <script>alert(1)</script> removed", "architecture toy3 added", "endpoint GET /metrics added"
	all := []string{flag, option, arch, metrics}
	css := func(selector string) chromedp.CSS { return chromedp.CSS(selector) }
	button := func(name string) chromedp.Action[chromedp.Void] {
		return chromedp.Click(chromedp.Search(fmt.Sprintf(`//nav//button[contains(., %q)]`, name)))
	}
	do(seen{Titles: all, Shown: "4 of 4"}, chromedp.Navigate(server.URL), chromedp.WaitVisible(css("#shown")))
	// A filter is clicked, then another, then clicked away.
	do(seen{Titles: []string{flag, metrics}, Shown: "2 of 4"}, button("server"))
	do(seen{Titles: []string{flag}, Shown: "1 of 4"}, button("we depend on it"))
	do(seen{Titles: all, Shown: "4 of 4"}, button("we depend on it"), button("server"))
	// A finding opens with its hunk; what differs in a line is marked.
	do(seen{Titles: all, Shown: "4 of 4", Open: []string{flag}, At: flag}, chromedp.Click(css("#f1 > summary")))
	marked, hunk := result(ctx, t, chromedp.Text(css("#f1 tr.both td.new mark"))), result(ctx, t, chromedp.Text(css("#f1 .hunk")))
	if marked != "22" || !strings.Contains(hunk, "int main()") || !strings.Contains(hunk, "2 more lines") {
		t.Errorf("marked %q in %q", marked, hunk)
	}
	// The keyboard: down, up, open, categories, severities, search, clear.
	do(seen{Titles: all, Shown: "4 of 4", Open: []string{flag}, At: arch}, chromedp.KeyEvent("j"), chromedp.KeyEvent("j"))
	do(seen{Titles: all, Shown: "4 of 4", Open: []string{flag, option}, At: option}, chromedp.KeyEvent("k"), chromedp.KeyEvent("o"))
	do(seen{Titles: []string{arch}, Shown: "1 of 4"}, chromedp.KeyEvent("x"), chromedp.KeyEvent("x"), chromedp.KeyEvent("5"))
	do(seen{Titles: []string{arch, metrics}, Shown: "2 of 4"}, chromedp.KeyEvent("5"), chromedp.KeyEvent("n"))
	// Not KeyEvent: that would type the slash even though the page takes the key.
	slash := chromedp.Evaluate[string](`document.dispatchEvent(new KeyboardEvent("keydown", {key: "/"})), document.activeElement.id`)
	if id := result(ctx, t, slash); id != "search" {
		t.Errorf("a slash puts the cursor into %q", id)
	}
	do(seen{Titles: []string{option}, Shown: "1 of 4"}, chromedp.SendKeys(css("#search"), kb.Escape), chromedp.KeyEvent("0"), chromedp.SendKeys(css("#search"), "alert option"))
	do(seen{Shown: "0 of 4"}, chromedp.SendKeys(css("#search"), " nothing"), chromedp.WaitVisible(css("#empty")))
	do(seen{Titles: all, Shown: "4 of 4"}, chromedp.SendKeys(css("#search"), kb.Escape), chromedp.KeyEvent("0"))
	// A link keeps its filters.
	do(seen{Titles: []string{flag}, Shown: "1 of 4"}, chromedp.Navigate("about:blank"), chromedp.Navigate(server.URL+"/#s=error"), chromedp.WaitVisible(css("#shown")))
	// Light and dark.
	light := result(ctx, t, chromedp.Evaluate[seen](look))
	result(ctx, t, chromedp.KeyEvent("t"))
	dark := result(ctx, t, chromedp.Evaluate[seen](look))
	if light.Ground == dark.Ground {
		t.Errorf("both themes are %s", light.Ground)
	}
	if asked > 0 {
		t.Errorf("the page asked for %d more things", asked)
	}
	if dir := os.Getenv("PAYLOAD_SCREENSHOTS"); dir != "" {
		result(ctx, t, chromedp.KeyEvent("0"))
		shot := result(ctx, t, chromedp.FullScreenshot(100))
		if err := os.WriteFile(filepath.Join(dir, "page.png"), shot, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
