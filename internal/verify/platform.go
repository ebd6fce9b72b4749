package verify

import (
	"path"
	"path/filepath"
	"strings"
)

// platform is what a machine of one system brings by itself.
type platform struct {
	// libraries that a payload may need without holding them, and why.
	libraries map[string]string
	// symbols begin so in those libraries that give their symbols no versions.
	symbols map[string]string
	// folders in which the loader finds them.
	folders []string
	// mapped are patterns of other files that a process may map.
	mapped []string
}

// platforms is the declared list: a library that isn't in it must be in the
// payload, even where this machine happens to have it.
var platforms = map[string]platform{
	"linux": {
		libraries: map[string]string{
			"libc.so.6":             "glibc",
			"libm.so.6":             "glibc",
			"libmvec.so.1":          "glibc",
			"libdl.so.2":            "glibc",
			"libpthread.so.0":       "glibc",
			"librt.so.1":            "glibc",
			"libresolv.so.2":        "glibc",
			"ld-linux-x86-64.so.2":  "glibc's loader",
			"ld-linux-aarch64.so.1": "glibc's loader",
			"libstdc++.so.6":        "GCC's C++ runtime, part of every desktop and server system",
			"libgcc_s.so.1":         "GCC's runtime",
			"libcuda.so.1":          "comes with the NVIDIA driver, must match it",
			"libnvidia-ml.so.1":     "comes with the NVIDIA driver, must match it",
			"libvulkan.so.1":        "the Vulkan loader, finds the installed drivers",
			"libOpenCL.so.1":        "the OpenCL loader, finds the installed drivers",
		},
		symbols: map[string]string{
			"libcuda.so.1": "cu", "libnvidia-ml.so.1": "nvml", "libvulkan.so.1": "vk", "libOpenCL.so.1": "cl",
		},
		folders: []string{"/lib", "/lib64", "/usr/lib", "/usr/lib64", "/lib32", "/usr/lib32"},
		mapped: []string{
			"/usr/lib/locale/*", "/usr/lib/locale/*/*", "/usr/lib/locale/*/*/*",
			"/usr/share/locale/*", "/usr/share/zoneinfo/*",
			"/usr/lib/*/gconv/*", "/usr/lib64/gconv/*",
			"/etc/ld.so.cache", "/etc/localtime",
			"/dev/*", "/dev/*/*", "/memfd:*", "/SYSV*", "/anon_hugepage*", "/i915*",
			// What the name service and the GPU drivers load for themselves.
			"*/libnss_*.so.*", "*/libnvidia-*.so.*", "*/libcuda.so.*", "*/libcudadebugger.so.*",
			"*/libvulkan_*.so", "*/libdrm*.so.*", "*/libLLVM*.so*", "*/libGLX_nvidia.so.*",
		},
	},
	// By their names in small letters.
	"windows": {
		libraries: map[string]string{
			"advapi32.dll": "Windows", "bcrypt.dll": "Windows", "bcryptprimitives.dll": "Windows", "cfgmgr32.dll": "Windows",
			"combase.dll": "Windows", "crypt32.dll": "Windows", "dbghelp.dll": "Windows", "dnsapi.dll": "Windows",
			"dxcore.dll": "Windows", "dxgi.dll": "Windows", "d3d12.dll": "Windows", "gdi32.dll": "Windows", "imagehlp.dll": "Windows",
			"iphlpapi.dll": "Windows", "kernel32.dll": "Windows", "kernelbase.dll": "Windows", "msvcrt.dll": "Windows",
			"ncrypt.dll": "Windows", "ntdll.dll": "Windows", "ole32.dll": "Windows", "oleaut32.dll": "Windows",
			"pdh.dll": "Windows", "powrprof.dll": "Windows", "psapi.dll": "Windows", "rpcrt4.dll": "Windows",
			"secur32.dll": "Windows", "setupapi.dll": "Windows", "shell32.dll": "Windows", "shlwapi.dll": "Windows",
			"synchronization.dll": "Windows", "ucrtbase.dll": "Windows", "user32.dll": "Windows", "userenv.dll": "Windows",
			"version.dll": "Windows", "winhttp.dll": "Windows", "wininet.dll": "Windows", "winmm.dll": "Windows", "wintrust.dll": "Windows", "ws2_32.dll": "Windows",
			"concrt140.dll":            "Visual C++'s redistributable, which an installer brings",
			"msvcp140.dll":             "Visual C++'s redistributable, which an installer brings",
			"msvcp140_1.dll":           "Visual C++'s redistributable, which an installer brings",
			"msvcp140_2.dll":           "Visual C++'s redistributable, which an installer brings",
			"msvcp140_atomic_wait.dll": "Visual C++'s redistributable, which an installer brings",
			"msvcp140_codecvt_ids.dll": "Visual C++'s redistributable, which an installer brings",
			"vcruntime140.dll":         "Visual C++'s redistributable, which an installer brings",
			"vcruntime140_1.dll":       "Visual C++'s redistributable, which an installer brings",
			"vcruntime140_threads.dll": "Visual C++'s redistributable, which an installer brings",
			"vcomp140.dll":             "Visual C++'s redistributable, which an installer brings",
			"nvcuda.dll":               "comes with the NVIDIA driver, must match it",
			"nvml.dll":                 "comes with the NVIDIA driver, must match it",
			"amdhip64_6.dll":           "comes with the AMD driver",
			"amdhip64_7.dll":           "comes with the AMD driver",
			"vulkan-1.dll":             "the Vulkan loader, comes with drivers",
			"opencl.dll":               "the OpenCL loader, comes with drivers",
		},
	},
}

// systemLibrary says whether name is declared as the system's.
func (p platform) systemLibrary(name string) bool {
	_, ok := p.libraries[name]
	return ok
}

// allowsMapped says whether a process may map file, a real path outside the
// payload.
func (p platform) allowsMapped(file string) bool {
	base := path.Base(file)
	for name := range p.libraries {
		// libstdc++.so.6 is a link to libstdc++.so.6.0.30.
		if base == name || strings.HasPrefix(base, name+".") {
			return p.inFolders(file)
		}
	}
	for _, pattern := range p.mapped {
		if name, anywhere := strings.CutPrefix(pattern, "*/"); anywhere {
			if ok, _ := path.Match(name, base); ok && p.inFolders(file) { // patterns are constant
				return true
			}
			continue
		}
		if ok, _ := path.Match(pattern, file); ok {
			return true
		}
	}
	return false
}

func (p platform) inFolders(file string) bool {
	for _, dir := range p.folders {
		if strings.HasPrefix(filepath.ToSlash(file), dir+"/") {
			return true
		}
	}
	return false
}
