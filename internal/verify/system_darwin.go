package verify

import "syscall"

// systemVersion is this Mac's version of macOS; empty where it can't be asked.
func systemVersion() string {
	version, err := syscall.Sysctl("kern.osproductversion")
	if err != nil {
		return ""
	}
	return version
}
