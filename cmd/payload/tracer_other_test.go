//go:build !linux || !amd64

package main

var tracerCommands map[string]func()
