package archive

import (
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// reserved are the names of Windows' devices, with any extension.
var reserved = map[string]bool{
	"con": true, "prn": true, "aux": true, "nul": true,
	"com0": true, "com1": true, "com2": true, "com3": true, "com4": true, "com5": true, "com6": true, "com7": true, "com8": true, "com9": true,
	"lpt0": true, "lpt1": true, "lpt2": true, "lpt3": true, "lpt4": true, "lpt5": true, "lpt6": true, "lpt7": true, "lpt8": true, "lpt9": true,
}

// leftovers end the names of files that something was still writing, or that an
// editor or a merge left behind.
var leftovers = []string{"~", ".tmp", ".temp", ".part", ".partial", ".swp", ".bak", ".orig", ".rej", ".lock"}

// litter are files that a system's file browser leaves.
var litter = map[string]bool{".DS_Store": true, "Thumbs.db": true, "desktop.ini": true, "__MACOSX": true}

// CheckName finds what is wrong with a file's path, relative with forward
// slashes, on some system that it may come to; nil where nothing is.
func CheckName(name string) *Problem {
	if !utf8.ValidString(name) {
		return &Problem{ID: "names.encoding", Entry: name, Title: fmt.Sprintf("the name %q is not UTF-8", name), Detail: "macOS refuses it, and others show something else"}
	}
	if strings.ContainsFunc(name, unicode.IsControl) {
		return &Problem{ID: "names.control", Entry: name, Title: fmt.Sprintf("the name %q holds a control character", name), Detail: "it can hide or forge what a terminal shows"}
	}
	for part := range strings.SplitSeq(name, "/") {
		stem, _, _ := strings.Cut(strings.ToLower(part), ".")
		switch {
		case strings.HasPrefix(part, "._"):
			return &Problem{ID: "names.apple-double", Entry: name, Title: name + " is a copy of attributes that macOS made", Detail: "tar and file browsers of macOS add such files: COPYFILE_DISABLE=1 keeps tar from it"}
		case litter[part]:
			return &Problem{ID: "names.litter", Entry: name, Title: name + " is what a file browser leaves behind"}
		case reserved[strings.TrimRight(stem, " ")], strings.HasSuffix(part, "."), strings.HasSuffix(part, " "), strings.ContainsAny(part, `<>:"|?*\`):
			return &Problem{ID: "names.reserved", Entry: name, Title: fmt.Sprintf("Windows can't have a file with the name %q", name), Detail: "device names, a dot or space at the end, and the characters <>:\"|?*\\ are taken"}
		}
	}
	base := strings.ToLower(path.Base(name))
	for _, end := range leftovers {
		if strings.HasSuffix(base, end) && base != end {
			return &Problem{ID: "names.unfinished", Entry: name, Title: fmt.Sprintf("%s ends in %s: something did not finish it", name, end)}
		}
	}
	return nil
}

// Fold gives equal texts for names that a file system that ignores case, or the
// form of accented letters, takes for one.
func Fold(name string) string { return norm.NFC.String(cases.Fold().String(norm.NFC.String(name))) }
