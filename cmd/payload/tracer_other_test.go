//go:build !linux || !amd64

package main

import "testing"

var tracerCommands map[string]func()

// tableWriter has no table to write here.
type tableWriter struct{ *testing.M }
