package report

import (
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"payload/internal/testkit"
)

// clicks does what a reader does, and writes down what is then shown.
const clicks = `<script>
const seen = [];
const shown = () => [...document.querySelectorAll("article")].filter((a) => !a.hidden).map((a) => a.querySelector("code").textContent).join(" ");
const press = (key) => (document.activeElement || document.body).dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
const enter = (id, value) => { const e = document.querySelector(id); e.value = value; e.dispatchEvent(new Event(id === "#search" ? "input" : "change")); };
document.querySelector("button.error").click(); seen.push("no errors: " + shown());
press("Escape"); seen.push("all: " + shown());
enter("#group", "build"); seen.push("build: " + shown());
press("Escape"); enter("#search", "FILES a,"); seen.push("search: " + shown() + ", " + document.querySelector("#count").textContent);
press("Escape"); press("j"); press("j"); seen.push("second: " + document.activeElement.querySelector("code").textContent);
press("o"); seen.push("open: " + document.activeElement.querySelector("details").open);
press("k"); seen.push("first: " + document.activeElement.querySelector("code").textContent);
press("t"); seen.push("theme: " + document.documentElement.dataset.theme);
document.body.innerHTML = "<pre id=seen></pre>"; document.querySelector("#seen").textContent = seen.join("\n");
</script></html>`

// TestPageInABrowser opens the page in a real one and uses its filters and keys.
func TestPageInABrowser(t *testing.T) {
	browser := testkit.Browser(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "page.html")
	if err := os.WriteFile(file, []byte(strings.Replace(written(t, HTML, sample()), "</html>", clicks, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
		"--user-data-dir="+filepath.Join(dir, "profile"), "--dump-dom", "file://"+file).Output()
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(out), `<pre id="seen">`)
	got, _, _ := strings.Cut(after, "</pre>")
	want := strings.Join([]string{
		"no errors: options.removed filters.wide", "all: filters.dead options.removed filters.wide", "build: options.removed",
		"search: filters.dead, 1 of 3", "second: options.removed", "open: true", "first: filters.dead", "theme: dark",
	}, "\n")
	if html.UnescapeString(got) != want {
		t.Errorf("seen\n%s\nwant\n%s\nin\n%.2000s", got, want, out)
	}
}
