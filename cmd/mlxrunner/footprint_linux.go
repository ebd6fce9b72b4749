package main

import (
	"fmt"
	"os"
)

// footprint is the memory in RAM that only this process can give back, in bytes:
// what is there without pages of files, such as mapped weights. 0 where it can't
// be told.
func footprint() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident, shared int64
	if _, err := fmt.Sscan(string(text), &size, &resident, &shared); err != nil {
		return 0
	}
	return (resident - shared) * int64(os.Getpagesize())
}
