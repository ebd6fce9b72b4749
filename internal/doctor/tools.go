// Package doctor knows the tools that building needs: where they may be, how to
// ask for their version, what is too old, and which package of which system
// brings them. It installs only when asked to.
package doctor

import (
	"regexp"
	"slices"

	"payload/internal/source"
)

// Tool is one program or library that something needs.
type Tool struct {
	Why      string
	Commands [][]string // any of which will do, in the order in which they're used
	Files    []string   // in place of commands: any of these below a root; * and ? as in a shell
	Version  []string   // arguments that print the version; empty: being there is enough
	// Says finds the version in what is printed, or in the file: the groups of
	// all of them, with dots between. Without it, it's the first number.
	Says []*regexp.Regexp
	// Own are variables by which people name a root, or a program. Where one is
	// set nothing else is looked at, as CMake does.
	Own []string
	// Roots are folders to look in after PATH; * and ? as in a shell, the last
	// first; {tools} is where --fix unpacks.
	Roots []string
	// Tell are the variables that lead CMake to what was found: {root} and {path}
	// are filled in.
	Tell []string
	Min  string
	Apt  []string
	Brew []string
	Kit  string // what --fix can unpack where the packages are too old
	Get  string // how to get it elsewhere
}

func says(patterns ...string) (list []*regexp.Regexp) {
	for _, p := range patterns {
		list = append(list, regexp.MustCompile(p))
	}
	return list
}

// system are the roots that CMake looks in without being told.
var system = []string{"/usr", "/usr/local", "/opt/homebrew"}

// tools is all that presets and sources can ask for, by the name they use.
var tools = map[string]Tool{
	"git": {
		Why: "fetching and patching sources", Commands: [][]string{{"git"}}, Version: []string{"--version"}, Min: "2.25",
		Apt: []string{"git", "ca-certificates"}, Brew: []string{"git"}, Get: "install git 2.25 or newer",
	},
	"cmake": {
		Why: "configuring the build", Commands: [][]string{{"cmake"}}, Version: []string{"--version"}, Min: "3.21",
		Apt: []string{"cmake"}, Brew: []string{"cmake"}, Get: "install CMake 3.21 or newer",
	},
	"ninja": {
		Why: "compiling", Commands: [][]string{{"ninja"}}, Version: []string{"--version"}, Min: "1.10",
		Apt: []string{"ninja-build"}, Brew: []string{"ninja"}, Get: "install ninja 1.10 or newer",
	},
	"go": {
		Why: "building the repository's own programs", Commands: [][]string{{"go"}}, Version: []string{"version"},
		Brew: []string{"go"}, Get: "install Go of the version in go.mod or newer",
	},
	"cc": {
		Why: "compiling C", Commands: [][]string{{"cc"}, {"gcc"}, {"clang"}}, Version: []string{"-dumpversion"},
		Apt: []string{"gcc", "libc6-dev"}, Get: "install a C compiler (on macOS: xcode-select --install)",
	},
	"c++": {
		Why: "compiling C++", Commands: [][]string{{"c++"}, {"g++"}, {"clang++"}}, Version: []string{"-dumpversion"},
		Apt: []string{"g++"}, Get: "install a C++17 compiler (on macOS: xcode-select --install)",
	},
	"arm64-cc": {
		Why: "compiling C for ARM", Commands: [][]string{{"aarch64-linux-gnu-gcc"}}, Version: []string{"-dumpfullversion"},
		Apt: []string{"gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"}, Get: "install a GCC named aarch64-linux-gnu-gcc, or build on an ARM machine of Debian's family",
	},
	"arm64-c++": {
		Why: "compiling C++ for ARM", Commands: [][]string{{"aarch64-linux-gnu-g++"}}, Version: []string{"-dumpfullversion"},
		Apt: []string{"g++-aarch64-linux-gnu"}, Get: "install a GCC named aarch64-linux-gnu-g++, or build on an ARM machine of Debian's family",
	},
	"clang": {
		Why: "compiling C", Commands: [][]string{{"clang"}}, Version: []string{"--version"}, Says: says(`clang version (\d+(?:\.\d+)*)`),
		Apt: []string{"clang"}, Brew: []string{"llvm"}, Get: "install LLVM's clang",
	},
	"clang++": {
		Why: "compiling C++", Commands: [][]string{{"clang++"}}, Version: []string{"--version"}, Says: says(`clang version (\d+(?:\.\d+)*)`),
		Apt: []string{"clang"}, Brew: []string{"llvm"}, Get: "install LLVM's clang",
	},
	"msvc": {
		Why: "libraries of Windows, and nvcc's host compiler", Commands: [][]string{{"cl"}},
		Get: "install Visual Studio's C++ tools, and work in its developer command prompt",
	},
	"xcode": {
		Why: "the SDK of macOS", Commands: [][]string{{"xcrun"}}, Version: []string{"--sdk", "macosx", "--show-sdk-version"},
		Get: "on a Mac: xcode-select --install",
	},
	"nvcc": {
		Why: "compiling CUDA", Commands: [][]string{{"nvcc"}}, Version: []string{"--version"}, Says: says(`release (\d+\.\d+)`),
		Own: []string{"CUDACXX"}, Roots: []string{"$CUDA_PATH", "$CUDA_HOME", "/usr/local/cuda-*", "/usr/local/cuda", "{tools}/cuda_v*"},
		Tell: []string{"CUDACXX={path}", "CUDA_PATH={root}"}, Kit: "cuda_v13", Get: "install NVIDIA's CUDA toolkit of that version; several may lie side by side",
	},
	"nvidia-driver": {
		Why: "asking the GPU for its architecture", Commands: [][]string{{"nvidia-smi"}}, Version: []string{"--query-gpu=driver_version", "--format=csv,noheader"},
		Get: "build on a machine with an NVIDIA GPU and its driver",
	},
	"hipcc": {
		Why: "compiling HIP", Commands: [][]string{{"hipcc"}}, Version: []string{"--version"}, Says: says(`HIP version: (\d+\.\d+(?:\.\d+)?)`),
		Roots: []string{"$ROCM_PATH", "$HIP_PATH", "/opt/rocm-*", "/opt/rocm"},
		Tell:  []string{"ROCM_PATH={root}", "HIP_PATH={root}", "HIPCXX={root}/lib/llvm/bin/clang++"},
		Get:   "install AMD's ROCm of that version (on Windows its HIP SDK)",
	},
	"cudnn": {
		Why: "what a CUDA library needs beside the toolkit", Files: []string{"lib/libcudnn.so.9", "lib64/libcudnn.so.9", "lib/*/libcudnn.so.9"},
		Roots: append([]string{"$CUDA_PATH", "/usr/local/cuda"}, system...), Get: "install NVIDIA's cuDNN 9",
	},
	"nccl": {
		Why: "what a CUDA library needs beside the toolkit", Files: []string{"lib/libnccl.so.2", "lib64/libnccl.so.2", "lib/*/libnccl.so.2"},
		Roots: append([]string{"$CUDA_PATH", "/usr/local/cuda"}, system...), Get: "install NVIDIA's NCCL 2",
	},
	"openblas": {
		Why: "linear algebra, where a library is compiled here", Files: []string{"lib/libopenblas.so", "lib/*/libopenblas.so"}, Roots: system,
		Apt: []string{"libopenblas-dev"}, Get: "install OpenBLAS with its development files",
	},
	"lapacke": {
		Why: "linear algebra, where a library is compiled here", Files: []string{"include/lapacke.h"}, Roots: system,
		Apt: []string{"liblapacke-dev"}, Get: "install LAPACKE's headers",
	},
	"nlohmann-json": {
		Why: "reading JSON, where a library is compiled here", Files: []string{"include/nlohmann/json.hpp"}, Roots: system,
		Apt: []string{"nlohmann-json3-dev"}, Brew: []string{"nlohmann-json"}, Get: "install nlohmann's json",
	},
	"fmt": {
		Why: "formatting, where a library is compiled here", Files: []string{"include/fmt/format.h"}, Roots: system,
		Apt: []string{"libfmt-dev"}, Brew: []string{"fmt"}, Get: "install {fmt}",
	},
	"glslc": {
		Why: "compiling shaders", Commands: [][]string{{"glslc"}}, Version: []string{"--version"}, Says: says(`shaderc v?(\d+\.\d+)`),
		Roots: []string{"$VULKAN_SDK"}, Apt: []string{"glslc"}, Brew: []string{"shaderc"}, Get: "install shaderc's glslc, or the Vulkan SDK",
	},
	"vulkan-headers": {
		Why: "compiling against Vulkan", Files: []string{"include/vulkan/vulkan_core.h"},
		Says: says(`VK_HEADER_VERSION_COMPLETE VK_MAKE_(?:API_)?VERSION\((?:0, )?(\d+), (\d+),`, `#define VK_HEADER_VERSION (\d+)`),
		Own:  []string{"VULKAN_SDK"}, Roots: append(slices.Clone(system), "{tools}/vulkan"), Tell: []string{"VULKAN_SDK={root}"},
		Apt: []string{"libvulkan-dev"}, Brew: []string{"vulkan-headers"}, Kit: "vulkan",
		Get: "install the Vulkan SDK and set VULKAN_SDK to its folder with include/",
	},
	"spirv-headers": {
		Why: "reading compiled shaders", Files: []string{"share/cmake/SPIRV-Headers/SPIRV-HeadersConfig.cmake", "lib/*/cmake/SPIRV-Headers/SPIRV-HeadersConfig.cmake"},
		Roots: append([]string{"$VULKAN_SDK"}, append(slices.Clone(system), "{tools}/vulkan")...), Tell: []string{"VULKAN_SDK={root}"},
		Apt: []string{"spirv-headers"}, Brew: []string{"spirv-headers"}, Kit: "vulkan",
		Get: "install SPIRV-Headers, or the Vulkan SDK and set VULKAN_SDK",
	},
	"vulkan-loader": {
		Why: "linking with Vulkan", Files: []string{"lib/libvulkan.so", "lib64/libvulkan.so", "lib/*/libvulkan.so", "lib/libvulkan.dylib", "Lib/vulkan-1.lib"},
		Roots: append([]string{"$VULKAN_SDK"}, system...), Apt: []string{"libvulkan-dev"}, Brew: []string{"vulkan-loader"}, Get: "install the Vulkan loader with its development files",
	},
	"vulkan-driver": {
		Why: "running what was built", Files: []string{"share/vulkan/icd.d/*.json", "vulkan/icd.d/*.json"},
		Roots: append([]string{"/etc"}, system...), Apt: []string{"mesa-vulkan-drivers"}, Get: "install the GPU's Vulkan driver; Mesa's llvmpipe needs no GPU",
	},
	"ccache": {
		Why: "compiling the same file once", Commands: [][]string{{"ccache"}}, Version: []string{"--version"},
		Apt: []string{"ccache"}, Brew: []string{"ccache"}, Get: "install ccache",
	},
	"zstd": {
		Why: "packing archives", Commands: [][]string{{"zstd"}}, Version: []string{"--version"}, Says: says(`v(\d+\.\d+\.\d+)`), Min: "1.4.5",
		Apt: []string{"zstd"}, Brew: []string{"zstd"}, Get: "install zstd of the version in payload.yaml",
	},
	"objcopy": {
		Why: "taking debug information out of libraries", Commands: [][]string{{"objcopy"}, {"llvm-objcopy"}}, Version: []string{"--version"},
		Apt: []string{"binutils"}, Brew: []string{"llvm"}, Get: "install binutils, or LLVM's llvm-objcopy",
	},
	"pip": {
		Why: "reading mirrors on PyPI", Commands: source.Pip.Commands, Version: []string{"--version"}, Min: source.Pip.Min,
		Apt: []string{"python3", "python3-pip"}, Brew: []string{"python3"}, Get: "install Python 3 with pip " + source.Pip.Min + " or newer",
	},
	"cargo": {
		// Debian's package cargo is too old; cargo-web, kept current, has the same program.
		Why: "reading mirrors that are crates", Commands: source.Cargo.Commands, Version: []string{"--version"}, Min: source.Cargo.Min,
		Apt: []string{"cargo-web"}, Brew: []string{"rust"}, Get: "install Rust's cargo " + source.Cargo.Min + " or newer",
	},
}
