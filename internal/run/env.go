package run

import (
	"os"
	"slices"
	"strings"
)

// passed lists the variables that children see. Everything else of the
// caller's environment is left out, so that a GIT_DIR or a CMAKE_GENERATOR set
// for something else can't change what is built. A name ending in * is a prefix.
var passed = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TERM", "NO_COLOR", "XDG_*",
	"SystemRoot", "SYSTEMROOT", "ComSpec", "COMSPEC", "TEMP", "TMP", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PATHEXT", "ProgramFiles*", "ProgramData",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "GIT_SSH_COMMAND", "SSH_AUTH_SOCK",
	"PIP_*", "PYENV_*", "VIRTUAL_ENV", "CARGO_*", "RUSTUP_*", "GOPATH", "GOPROXY", "GOSUMDB", "GOFLAGS", "GOCACHE", "GOMODCACHE", "GOTOOLCHAIN", "GONOSUMDB", "GONOSUMCHECK", "GOINSECURE", "GOPRIVATE",
	"CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "AR", "RANLIB", "LD", "SDKROOT", "DEVELOPER_DIR", "MACOSX_DEPLOYMENT_TARGET",
	"CUDACXX", "CUDAHOSTCXX", "CUDA_PATH", "CUDA_HOME", "HIP_PATH", "ROCM_PATH", "VULKAN_SDK", "VK_*",
	"CCACHE_*", "SCCACHE_*", "INCLUDE", "LIB", "LIBPATH", "VSINSTALLDIR", "VCINSTALLDIR", "VCToolsInstallDir", "WindowsSdkDir",
	"PAYLOAD_*", "DEBIAN_FRONTEND", "SOURCE_DATE_EPOCH",
}

// notable lists variables that people set to steer the tools below and that
// are deliberately not passed on; Ignored names those that are set.
var notable = []string{
	"CMAKE_*", "NINJAFLAGS", "NINJA_STATUS", "MAKEFLAGS",
	"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_CONFIG*", "GIT_EXEC_PATH",
	"LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_*",
	"CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "GREP_OPTIONS",
}

// Environ returns the environment every child gets before its own named
// variables: the passed ones and a fixed locale, so that messages can be read.
func Environ() []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if matches(passed, name) {
			env = append(env, kv)
		}
	}
	return append(env, "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_NOSYSTEM=1")
}

// Ignored names the variables that are set but kept from children although
// they would steer them, sorted.
func Ignored() []string {
	var names []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if matches(notable, name) && !matches(passed, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		prefix, wild := strings.CutSuffix(p, "*")
		return p == name || wild && strings.HasPrefix(name, prefix)
	})
}
