package verify

import (
	"fmt"
	"strings"

	"payload/internal/report"
)

// Rules say of each kind of finding what it means and what to do. docs/verify.md
// has them as a table.
func Rules() []report.Rule { return rules }

var rules = []report.Rule{
	// The archive itself. With one of these its content is not looked at.
	{ID: "archive.format", Title: "The file is no archive", Help: "It begins neither as a zstd, a gzip nor a zip file: look at what was uploaded or downloaded."},
	{ID: "archive.truncated", Title: "The archive ends early", Help: "Copy or pack it again."},
	{ID: "archive.damaged", Title: "The archive can't be decompressed, or its own checksum is wrong", Help: "Copy or pack it again."},
	{ID: "archive.trailing", Title: "Something follows the end of the archive", Help: "Pack it again: who unpacks it never sees that, and it is not in any manifest."},
	{ID: "archive.digest", Title: "The archive is not the one that SHA256SUMS lists", Help: "Find out which of the two is the release; never write the list anew to get rid of this."},
	{ID: "archive.unlisted", Title: "SHA256SUMS beside the archive does not list it", Help: "Package all groups of a release into one folder."},
	{ID: "archive.checksums", Title: "SHA256SUMS can't be read", Help: "payload package writes it."},
	{ID: "archive.part", Title: "A part of the archive is missing, or there twice", Help: "Have all parts in one folder."},
	{ID: "archive.bomb", Title: "The archive unpacks to more than any payload holds, or its entries share bytes", Help: "Don't unpack it."},
	{ID: "archive.window", Title: "Unpacking needs more memory than zstd takes by itself", Help: "Pack with a window of at most 128 MiB (--long=27)."},
	{ID: "archive.traversal", Title: "An entry's name leads out of the folder", Help: "Don't unpack it; pack with payload package."},
	{ID: "archive.absolute-name", Title: "An entry's name is absolute", Help: "Don't unpack it; pack with payload package."},
	{ID: "archive.name", Title: "An entry's name is not a plain path", Help: "Pack with payload package."},
	{ID: "archive.duplicate", Title: "A name is in the archive twice, or a file lies in what is no folder", Help: "Pack with payload package."},
	{ID: "archive.hard-link", Title: "An entry is a hard link", Help: "Use a relative symbolic link."},
	{ID: "archive.special-file", Title: "An entry is a device, a pipe or a file with holes", Help: "Stage files, folders and links only."},
	{ID: "archive.mode", Title: "A file can't be read by all, can be changed by all, or runs with its owner's rights", Help: "Stage with 0644 and 0755."},
	{ID: "archive.outside", Title: "A file lies beside the payload, where no manifest lists it", Help: "Put it into the payload before it is packaged."},
	// The manifest.
	{ID: "manifest.missing", Title: "There is no payload.json", Help: "Name the staged folder of a preset, or build it: payload build."},
	{ID: "manifest.unreadable", Title: "payload.json can't be read", Help: "Build or package again."},
	{ID: "manifest.untrue", Title: "payload.json says another architecture or floor than the file has", Help: "It was edited: build or package again."},
	{ID: "files.missing", Title: "A listed file is not there", Help: "Build or package again."},
	{ID: "files.extra", Title: "A file is not listed", Help: "Install it by the project's CMake, so that it is described."},
	{ID: "files.mode", Title: "A file lost or gained its executable bit", Help: "Keep modes when you copy or unpack (cp -p, tar; not zip on Windows)."},
	{ID: "digest.changed", Title: "A file is not the one that was staged", Help: "Something changed it afterwards (strip, a signer, a copy that broke): build or package again."},
	// Links and names.
	{ID: "links.changed", Title: "A link points elsewhere than when it was staged", Help: "Build or package again."},
	{ID: "links.absolute", Title: "A link is absolute", Help: "Make it relative: users unpack anywhere."},
	{ID: "links.outside", Title: "A link leads out of the payload", Help: "Stage what it points to."},
	{ID: "links.broken", Title: "A link leads to nothing", Help: "Stage what it points to, or leave the link out."},
	{ID: "links.cycle", Title: "A link leads back to itself", Help: "Make one of them a file."},
	{ID: "names.case-clash", Title: "Two names differ in case or in the form of accents only", Help: "Rename one: macOS and Windows have one file for both."},
	{ID: "names.control", Title: "A name holds a control character", Help: "Rename it."},
	{ID: "names.encoding", Title: "A name is not UTF-8", Help: "Rename it."},
	{ID: "names.reserved", Title: "Windows can't have the name", Help: "Rename it."},
	{ID: "names.apple-double", Title: "The file is a copy of attributes that macOS made (._NAME)", Help: "Delete it; COPYFILE_DISABLE=1 keeps tar from making such files."},
	{ID: "names.litter", Title: "The file is what a file browser leaves behind", Help: "Delete it."},
	{ID: "names.unfinished", Title: "The name is that of a file that something did not finish", Help: "Delete it and look for what wrote it; install again."},
	// What loaders need.
	{ID: "arch.wrong", Title: "A file is for another architecture than the payload", Help: "Build it for the preset's target; for a universal payload, both images."},
	{ID: "closure.missing", Title: "A library that is needed is neither in the payload nor the system's", Help: "Stage it, or link without it."},
	{ID: "closure.outside", Title: "A library is taken from outside the payload", Help: "Link by name, with a search path relative to the file."},
	{ID: "closure.arch", Title: "A needed library lacks the architecture", Help: "Build it for both."},
	{ID: "rpath.absolute", Title: "A search path is a folder of the machine that built", Help: "Build with relative install rpaths: $ORIGIN, @loader_path."},
	{ID: "rpath.relative", Title: "A search path depends on the working folder", Help: "Begin it with $ORIGIN."},
	{ID: "rpath.missing", Title: "A needed library is there and is not searched for where it lies", Help: "Add a search path to where it is."},
	{ID: "symbols.undefined", Title: "Nothing that a file loads has a symbol that it needs", Help: "The library is another version than the one linked with: build both together."},
	{ID: "symbols.version", Title: "A library does not define a version of symbols that is needed", Help: "Build both together."},
	{ID: "elf.unreadable", Title: "An ELF file is damaged", Help: "Build again."},
	{ID: "pe.unreadable", Title: "A program or library for Windows is damaged", Help: "Build again."},
	{ID: "floor.glibc", Title: "A file needs a newer glibc than is to be enough", Help: "Build on an older system, or without the symbol that is named."},
	{ID: "floor.glibcxx", Title: "A file needs a newer libstdc++ than is to be enough", Help: "Build with an older compiler, or link libstdc++ statically."},
	{ID: "headers.missing", Title: "A library compiles at run time, and a header that it includes is not there", Help: "Stage the toolkit's headers."},
	{ID: "variant.missing", Title: "A CPU variant that was built is not there", Help: "Stage it: without it the program silently takes a slower one."},
	{ID: "variant.extra", Title: "A CPU variant is there that was not built", Help: "It is of another build: stage into an empty folder."},
	// macOS.
	{ID: "macho.unreadable", Title: "A Mach-O file, or the export trie in it, is damaged", Help: "Build again."},
	{ID: "macho.slices", Title: "A universal file has an architecture twice, or its images overlap", Help: "Merge again."},
	{ID: "macho.minos", Title: "A file needs a newer macOS than the payload is for, or does not say which", Help: "Set CMAKE_OSX_DEPLOYMENT_TARGET."},
	{ID: "macho.rpath", Title: "A needed library is there and is not searched for where it lies", Help: "Add @loader_path to its search paths, before it is signed."},
	{ID: "macho.install-name", Title: "A library calls itself something else than its file", Help: "Its install name should be @rpath/ and the file's name."},
	{ID: "macho.unsigned", Title: "A file is not signed", Help: "Sign it ad hoc at least: Apple silicon runs nothing unsigned."},
	{ID: "macho.signature", Title: "A signature is broken", Help: "Sign again, after the last change."},
	{ID: "macho.signature-page", Title: "A file was changed after it was signed", Help: "Sign again, after the last change."},
	{ID: "macho.libcxx-too-new", Title: "A file needs a C++ function that its oldest macOS lacks", Help: "Avoid it, or raise the minimum."},
	{ID: "macho.own-cxxabi", Title: "A library brings a C++ runtime of its own", Help: "Link with -nostdlib++ and the system's libc++."},
	{ID: "metallib.missing", Title: "A library's kernels are not beside it", Help: "Stage its metallib into the same folder."},
	{ID: "metallib.damaged", Title: "A file of kernels is cut off or something else", Help: "Build or download it again."},
	{ID: "metallib.too-new", Title: "Kernels need a newer macOS than the payload is for", Help: "Compile them for the oldest macOS."},
	{ID: "metallib.pairing", Title: "Kernels are of another build than the library beside them", Help: "Stage both from one build."},
	// A group over its base.
	{ID: "over.group", Title: "The base is of another group, system or architecture than the archive lies over", Help: "Name the base that its payload-GROUP.json says under over."},
	{ID: "over.replaces", Title: "A file of the archive has the name of another file of the base", Help: "Package both from trees of the same sources."},
	{ID: "over.missing", Title: "The archive loads a file of its base that is not there", Help: "Package both from trees of the same sources."},
	{ID: "over.relies", Title: "A file that the archive loads of its base is not the one that it was proven with", Help: "A warning: build both presets from the same sources with the same compiler."},
	// Debug information.
	{ID: "debug.digest", Title: "The archive of debug information beside it is another one's", Help: "Keep the files of one release together; package again."},
	{ID: "debug.id", Title: "A file and its debug information have other build ids (UUIDs on macOS)", Help: "Package again: a debugger would not take it."},
	// Sizes and the last release.
	{ID: "budget.exceeded", Title: "Something is larger than its budget", Help: "Look at what grew, with --against; or raise the budget."},
	{ID: "budget.unused", Title: "There is a budget for what is not there", Help: "Correct its path."},
	{ID: "release.gone", Title: "A file of the last release is gone", Help: "If it is meant: --accept release.gone:PATH."},
	{ID: "release.floor", Title: "A folder needs a newer system than in the last release", Help: "Build on the older system; if it is meant: --accept release.floor:FOLDER:WHAT."},
	{ID: "release.needs", Title: "A library of the system is needed that was not", Help: "Stage or drop it; if it is meant: --accept release.needs:LIBRARY."},
	{ID: "release.grown", Title: "A file has grown by more than --growth", Help: "A warning: look at what it holds now."},
	// What was run.
	{ID: "program", Title: "The program to be run is not there", Help: "Build its target. A group that lies over another one is run over it: --over BASE."},
	{ID: "runtime", Title: "The program did not start, died, hung, or loaded files from outside the payload", Help: "The last lines of its log are in the finding."},
	{ID: "version", Title: "The program is not built from what payload.json says", Help: "An old checkout was built: build again."},
	{ID: "backend", Title: "A device's backend is not used, broken or unknown", Help: "Run on a machine with the device, or with --no-run."},
	{ID: "variant", Title: "A CPU variant can't be loaded, or another was", Help: "The finding has what the program said."},
	{ID: "log", Title: "The log lacks what a working program prints", Help: "The finding has the pattern."},
	{ID: "step", Title: "A step of the check did not give what it must", Help: "The finding has both values."},
	{ID: "request", Title: "A request failed", Help: "The finding has the answer."},
	{ID: "answer", Title: "An answer is not what the model must say", Help: "The arithmetic of a backend is wrong: compare with other variants."},
	{ID: "text", Title: "A text is not what the model must say", Help: "The arithmetic of a backend is wrong: compare with other variants."},
	{ID: "tokens", Title: "Tokens are not what they must be", Help: "The tokenizer or its metadata changed."},
	{ID: "logprobs", Title: "Probabilities are not what they must be", Help: "The arithmetic of a backend is wrong: compare with other variants."},
	{ID: "stream", Title: "A stream broke off, erred or went on after its end", Help: "The finding has its last event."},
	{ID: "stop", Title: "A text did not stop where it should", Help: "The finding has the text."},
	{ID: "timings", Title: "An answer has no timings", Help: "The server's interface changed."},
	{ID: "models", Title: "The server does not name the model", Help: "The server's interface changed."},
}

// Table is the rules as Markdown.
func Table() string {
	var b strings.Builder
	b.WriteString("| finding | means | what to do |\n|---|---|---|\n")
	for _, r := range rules {
		id := r.ID
		if !strings.Contains(id, ".") {
			id += ".*"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", id, r.Title, r.Help)
	}
	return b.String()
}
