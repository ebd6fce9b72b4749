//go:build !darwin

package mlx

// systemVersion is empty: only macOS has libraries for several of its versions.
func systemVersion() string { return "" }
