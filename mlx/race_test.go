//go:build race

package mlx_test

// The race detector makes each operation many times slower.
const slow = 10
