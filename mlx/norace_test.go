//go:build !race

package mlx_test

const slow = 1
