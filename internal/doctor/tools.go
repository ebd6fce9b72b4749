// Package doctor knows the tools that building needs: how to ask for their
// version, what is too old, and which package of which system brings them. It
// installs only when asked to.
package doctor

import "payload/internal/source"

// Tool is one program or library that something needs.
type Tool struct {
	Why      string
	Commands [][]string // any of which will do, in the order in which they're used
	Version  []string   // arguments that print the version; empty: being there is enough
	Min      string
	Apt      []string
	Brew     []string
	Get      string // how to get it elsewhere
}

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
	"cc": {
		Why: "compiling C", Commands: [][]string{{"cc"}, {"gcc"}, {"clang"}}, Version: []string{"-dumpversion"},
		Apt: []string{"gcc", "libc6-dev"}, Get: "install a C compiler (on macOS: xcode-select --install)",
	},
	"c++": {
		Why: "compiling C++", Commands: [][]string{{"c++"}, {"g++"}, {"clang++"}}, Version: []string{"-dumpversion"},
		Apt: []string{"g++"}, Get: "install a C++17 compiler (on macOS: xcode-select --install)",
	},
	"ccache": {
		Why: "compiling the same file once", Commands: [][]string{{"ccache"}}, Version: []string{"--version"},
		Apt: []string{"ccache"}, Brew: []string{"ccache"}, Get: "install ccache",
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
