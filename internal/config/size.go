package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// units of sizes; B alone may be left out.
var units = []struct {
	name  string
	bytes float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1},
}

// ParseSize reads a number of bytes such as 300MB or 1.5GiB.
func ParseSize(text string) (int64, error) {
	for _, u := range units {
		number, has := strings.CutSuffix(text, u.name)
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if has && err == nil && n >= 0 && n*u.bytes < math.MaxInt64 {
			return int64(n * u.bytes), nil
		}
	}
	return 0, fmt.Errorf("%q is no size such as 300MB or 1.5GiB", text)
}
