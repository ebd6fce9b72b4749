//go:build !darwin

package verify

// systemVersion is the version of macOS; there is none here.
func systemVersion() string { return "" }
