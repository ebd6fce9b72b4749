//go:build !arm64

package c

// Half floats are types of C on arm64 only.
var symbolsARM64 []symbol
