package mlx

import "syscall"

// systemVersion is this Mac's version of macOS; empty where it can't be asked.
func systemVersion() string {
	product, _ := syscall.Sysctl("kern.osproductversion")
	kernel, _ := syscall.Sysctl("kern.osrelease")
	return macOSVersion(product, kernel)
}
