package verify

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
)

// mappedFiles lists the files that a process has mapped, by the paths under
// which it opened them.
func mappedFiles(pid int) ([]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	var files []string
	for line := range bytes.Lines(data) {
		// address perms offset device inode path; the path may hold spaces
		fields := bytes.SplitN(bytes.TrimRight(line, "\n"), []byte(" "), 6)
		if len(fields) < 6 {
			continue
		}
		name := strings.TrimSuffix(strings.TrimLeft(string(fields[5]), " "), " (deleted)")
		if strings.HasPrefix(name, "/") {
			files = append(files, name)
		}
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}
