package cmakerun

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
)

// Limits is what a machine, or the part of it that is ours, has. 0 is unknown.
type Limits struct {
	Cores        int
	Quota        float64 // processors' worth of time that the control group may use
	Memory       int64   // bytes that programs can have without swapping
	MemorySource string  // where that number comes from, for the reason
}

// JobMemory is what one compile job is counted with, in bytes: a large C++
// file with optimisation.
const JobMemory = 1 << 30

// Jobs is how many jobs to run at once by default, and why.
func Jobs() (int, string) { return ReadLimits(os.DirFS("/"), runtime.NumCPU()).Jobs(JobMemory) }

// Jobs works out how many jobs of perJob bytes fit, at least one.
func (l Limits) Jobs(perJob int64) (int, string) {
	jobs := max(1, l.Cores)
	reason := plural(jobs, "core")
	if l.Quota > 0 && int(l.Quota+0.5) < jobs {
		jobs = max(1, int(l.Quota+0.5))
		reason = fmt.Sprintf("the control group may use %.1f of %s", l.Quota, plural(l.Cores, "core"))
	}
	if l.Memory > 0 && l.Memory/perJob < int64(jobs) {
		jobs = max(1, int(l.Memory/perJob))
		reason = fmt.Sprintf("%s of memory (%s) at %s a job, %s", gib(l.Memory), l.MemorySource, gib(perJob), plural(l.Cores, "core"))
	}
	return jobs, reason
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

func gib(bytes int64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }

// ReadLimits reads what Linux tells, from root: /proc/meminfo and the control
// groups of both versions, each with those above it. Elsewhere the files are
// not there and only the cores count.
func ReadLimits(root fs.FS, cores int) Limits {
	r := limitsReader{root}
	l := Limits{Cores: cores}
	if kib, ok := r.field("proc/meminfo", "MemAvailable:"); ok {
		l.Memory, l.MemorySource = kib<<10, "available"
	}
	for _, g := range r.groups() {
		if left, ok := g.memoryLeft(); ok && (l.Memory == 0 || left < l.Memory) {
			l.Memory, l.MemorySource = left, "left to the control group"
		}
		if quota, ok := g.quota(); ok && (l.Quota == 0 || quota < l.Quota) {
			l.Quota = quota
		}
	}
	return l
}

type limitsReader struct{ root fs.FS }

// group is one folder of a control group's files; names differ by version.
type group struct {
	limitsReader
	dir string
	v2  bool
}

// groups lists this process's groups with all those above.
func (r limitsReader) groups() []group {
	text, _ := fs.ReadFile(r.root, "proc/self/cgroup") // none: no groups
	var list []group
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		if parts[1] == "" {
			list = append(list, r.upFrom("sys/fs/cgroup", parts[2], true)...)
			continue
		}
		for _, controller := range strings.Split(parts[1], ",") {
			if controller == "memory" || controller == "cpu" {
				list = append(list, r.upFrom("sys/fs/cgroup/"+controller, parts[2], false)...)
			}
		}
	}
	return list
}

// upFrom lists a group and those above it. Inside a container the path may be
// the host's, and then only the last of them exists.
func (r limitsReader) upFrom(mount, name string, v2 bool) []group {
	var list []group
	for name = path.Clean("/" + name); ; name = path.Dir(name) {
		list = append(list, group{r, path.Join(mount, name), v2})
		if name == "/" {
			return list
		}
	}
}

// memoryLeft is the limit less what is used, cached files not counted.
func (g group) memoryLeft() (int64, bool) {
	limitFile, usedFile, cached := "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
	if g.v2 {
		limitFile, usedFile, cached = "memory.max", "memory.current", "inactive_file"
	}
	limit, ok := g.number(path.Join(g.dir, limitFile))
	if !ok || limit >= 1<<60 { // version 1 writes no limit as a huge number
		return 0, false
	}
	used, _ := g.number(path.Join(g.dir, usedFile)) // unknown: none
	if reclaimable, ok := g.field(path.Join(g.dir, "memory.stat"), cached); ok {
		used -= reclaimable
	}
	return max(1, limit-max(0, used)), true
}

// quota is how many processors' worth of time the group may use.
func (g group) quota() (float64, bool) {
	if g.v2 {
		text, _ := fs.ReadFile(g.root, path.Join(g.dir, "cpu.max"))
		var quota, period int64
		if n, _ := fmt.Sscan(string(text), &quota, &period); n == 2 && quota > 0 && period > 0 {
			return float64(quota) / float64(period), true
		}
		return 0, false // "max" is no number
	}
	quota, ok1 := g.number(path.Join(g.dir, "cpu.cfs_quota_us"))
	period, ok2 := g.number(path.Join(g.dir, "cpu.cfs_period_us"))
	if !ok1 || !ok2 || quota <= 0 || period <= 0 {
		return 0, false
	}
	return float64(quota) / float64(period), true
}

func (r limitsReader) number(file string) (int64, bool) {
	text, err := fs.ReadFile(r.root, file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// field reads the number after a name at the beginning of a line.
func (r limitsReader) field(file, name string) (int64, bool) {
	text, err := fs.ReadFile(r.root, file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) >= 2 && words[0] == name {
			n, err := strconv.ParseInt(words[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// oomKills counts the processes that Linux has ended for want of memory; 0
// where that is not told.
func oomKills() int64 {
	n, _ := limitsReader{os.DirFS("/")}.field("proc/vmstat", "oom_kill")
	return n
}
