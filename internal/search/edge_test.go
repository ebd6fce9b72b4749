package search

import (
	"fmt"
	"testing"

	"payload/internal/testkit"
)

// Few tags, a pin that its own globs leave out, a throttle on versions.
func TestLatestOfOddTags(t *testing.T) {
	for name, c := range map[string]struct {
		tags         []string
		pinned, more string
		latest       string
		behind       int
		fails        bool
	}{
		"one tag":                  {tags: []string{"b1"}, pinned: "b1", latest: "b1"},
		"no tag":                   {pinned: "main", fails: true},
		"a branch":                 {tags: []string{"b1"}, pinned: "main", fails: true},
		"pin ignored":              {tags: []string{"b1", "b2", "b3"}, pinned: "b2", more: "    ignore: [b2]\n", latest: "b3", behind: 1},
		"pin outside of its globs": {tags: []string{"b1", "v1.0", "v1.1"}, pinned: "b1", more: "    tags: ['v*']\n", latest: "v1.1", behind: 2},
		"all ignored":              {tags: []string{"b1", "b2"}, pinned: "b1", more: "    ignore: ['b*']\n", latest: "b1"},
		"throttled versions":       {tags: []string{"v1.0.0", "v1.0.1", "v1.1.0", "v1.1.5", "v1.2.3"}, pinned: "v1.0.0", more: "    throttle: 5\n", latest: "v1.1.5", behind: 2},
		"release and candidate":    {tags: []string{"v1.0", "v1.1-rc1", "v1.1"}, pinned: "v1.1-rc1", latest: "v1.1", behind: 1},
		"candidate is no latest":   {tags: []string{"v1.0", "v1.1-rc1"}, pinned: "v1.0", latest: "v1.0"},
	} {
		t.Run(name, func(t *testing.T) {
			up := testkit.Repo(t)
			up.Commit(map[string]string{"a": "0\n"}, "first")
			up.Run("tag", "-d", "first")
			for i, tag := range c.tags {
				up.Commit(map[string]string{"a": fmt.Sprintln(i)}, tag)
			}
			w := open(t, up.Dir, c.pinned, c.more, nil)
			latest, behind, _, err := Latest(t.Context(), w, "x", Options{History: true})
			if c.fails != (err != nil) || !c.fails && (latest != c.latest || behind != c.behind) {
				t.Errorf("latest %s, %d behind; %v", latest, behind, err)
			}
			f, err := Best(t.Context(), w, "x", BestOptions{Options: Options{History: true}})
			if c.fails != (err != nil) || !c.fails && f.Ref != c.latest {
				t.Errorf("best %s; %v", f.Ref, err)
			}
			if err != nil {
				t.Log(err)
			}
		})
	}
}
