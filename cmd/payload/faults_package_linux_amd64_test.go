package main

import (
	"fmt"
	"os"
	"testing"
)

// What stands in the way of packaging leaves the release before as it was.
func TestFaultPackageStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if os.Getuid() == 0 { // whom no permissions stop
		w.giveAway(t)
	}
	sc := named("package")
	sc.prepare(t, w)
	w.must(t, "cp", "-a", "dist/quiet", w.at("quiet"))
	w.keep()
	before := fmt.Sprint(picture(t, w.at("repo", "dist", "release")))
	var c tally
	for _, way := range []struct{ name, script, says string }{
		{"a staged file that can't be read", `chmod 0 dist/quiet/lib/payload/libtoy.so`, "libtoy.so: permission denied"},
		{"a staged folder that can't be read", `chmod 0 dist/quiet/lib`, "permission denied"},
		{"a staged library that is gone", `chmod -R u+w dist/quiet; rm dist/quiet/lib/payload/libtoy.so`, "libtoy.so"},
		{"a release folder that can't be written to", `chmod 555 dist/release`, "permission denied"},
		{"checksums that can't be read", `chmod 0 dist/release/SHA256SUMS`, "sha256sums: permission denied"},
	} {
		w.begin()
		w.must(t, "sh", "-c", way.script)
		c.tried++
		broken := w.run(nil, sc.args...)
		w.must(t, "sh", "-c", "chmod -R u+rwX dist")
		why := clearError(broken, way.says)
		switch {
		case broken.code != 1 && broken.code != 5:
			why = fmt.Sprintf("exit code %d: %s", broken.code, broken.stderr)
		case why == "" && fmt.Sprint(picture(t, w.at("repo", "dist", "release"))) != before:
			why = "the release is another one"
		}
		if why != "" {
			c.bad("%s: %s", way.name, why)
			continue
		}
		c.errors++
		w.must(t, "rm", "-r", "dist/quiet")
		w.must(t, "cp", "-a", w.at("quiet"), "dist/quiet")
		if again := w.run(nil, sc.args...); again.code != 0 {
			c.bad("%s: the run after it: %s", way.name, again.stderr)
			continue
		}
		c.again++
	}
	allFaults.add(t, "packaging that is stopped", sc.name, c)
}
