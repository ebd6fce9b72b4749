package main

import (
	"fmt"
	"os"
)

// footprint is the memory of this process that is in RAM, in bytes; 0 where it
// can't be told.
func footprint() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}
