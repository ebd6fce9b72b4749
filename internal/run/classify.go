package run

import (
	"errors"
	"slices"
	"strings"
)

// The kinds of failure that callers tell apart, recognised from stderr here
// and nowhere else.
var (
	ErrNoSpace    = errors.New("no space left on the device")
	ErrNoMemory   = errors.New("out of memory")
	ErrNetwork    = errors.New("the network did not answer")
	ErrNoRef      = errors.New("no such ref upstream")
	ErrNoPackage  = errors.New("no such package or version")
	ErrWrongHash  = errors.New("the download does not have the digest asked for")
	ErrPermission = errors.New("permission denied")
	ErrDamaged    = errors.New("the repository is damaged") // git's own words about its objects
)

// signs pairs what tools print under LC_ALL=C with its kind; the first that
// matches wins, so the causes that hide behind others come first.
var signs = []struct {
	text string
	kind error
}{
	{"No space left on device", ErrNoSpace},
	{"Out of diskspace", ErrNoSpace}, // git of its index
	{"Disk quota exceeded", ErrNoSpace},
	{"not enough space on the disk", ErrNoSpace},
	{"memory exhausted", ErrNoMemory},
	{"out of memory allocating", ErrNoMemory},
	{"std::bad_alloc", ErrNoMemory},
	{"Cannot allocate memory", ErrNoMemory},
	{"Killed signal terminated program", ErrNoMemory},
	{"internal compiler error: Killed", ErrNoMemory},
	{"unable to execute command: Killed", ErrNoMemory},
	{"terminated with signal 9 [Killed]", ErrNoMemory},
	{"died due to signal 9", ErrNoMemory}, // nvcc of its parts
	{"LLVM ERROR: out of memory", ErrNoMemory},
	{"compiler is out of heap space", ErrNoMemory},
	{"THESE PACKAGES DO NOT MATCH THE HASHES", ErrWrongHash},
	{"couldn't find remote ref", ErrNoRef},
	{"not our ref", ErrNoRef},
	// pip warns of the connection first, and then says that there is no package.
	{"NewConnectionError", ErrNetwork},
	{"Temporary failure in name resolution", ErrNetwork},
	{"No matching distribution found", ErrNoPackage},
	{"failed to select a version for the requirement", ErrNoPackage},
	{"no matching package named", ErrNoPackage},
	{"Could not resolve host", ErrNetwork},
	{"Connection refused", ErrNetwork},
	{"Connection timed out", ErrNetwork},
	{"Failed to connect", ErrNetwork},
	{"Network is unreachable", ErrNetwork},
	{"unable to access", ErrNetwork},
	{"The requested URL returned error", ErrNetwork},
	{"Could not read from remote repository", ErrNetwork},
	{"early EOF", ErrNetwork},
	{"Permission denied", ErrPermission},
}

// damageSigns are what git prints of its own repository that isn't whole. Other
// tools mean other things by such words, and git does while it talks to another
// repository: see kindOf.
var damageSigns = []string{
	"not a git repository", "is corrupt", "loose object", "bad object", "packfile", "Could not read ", "unable to read ",
	"invalid object", "missing object", "missing blob", "missing tree", "bad tree", "inflate", "bad config", "bad signature",
}

// TellsOfDamage says whether git's words may be about its own repository that
// isn't whole.
func TellsOfDamage(stderr string) bool {
	return slices.ContainsFunc(damageSigns, func(sign string) bool { return strings.Contains(stderr, sign) })
}

// kindOf is Classify for a command line.
func kindOf(args []string, stderr string) error {
	if kind := Classify(stderr); kind != nil || args[0] != "git" {
		return kind
	}
	talks := slices.ContainsFunc(args, func(arg string) bool { return arg == "fetch" || arg == "ls-remote" })
	if !talks && TellsOfDamage(stderr) {
		return ErrDamaged
	}
	return nil
}

// Classify gives the kind of failure that output tells of, or nil. It is for
// tools that pass on what others print, as build tools do.
func Classify(output string) error {
	output = strings.Join(strings.Fields(output), " ") // CMake breaks lines anywhere
	for _, s := range signs {
		if strings.Contains(output, s.text) {
			return s.kind
		}
	}
	return nil
}
