// Package pin owns what a repository asks for and what that resolved to: the
// pin files, the order of refs, resolving a ref to a commit, and payload.lock.
// It doesn't fetch sources.
package pin

// Lock is payload.lock: what the pins resolved to.
type Lock struct {
	Entries []Entry
}

// Entry is one component at one ref.
type Entry struct {
	Component string   `yaml:"component"`
	Ref       string   `yaml:"ref"`
	Commit    string   `yaml:"commit"`          // full id
	Build     int      `yaml:"build,omitempty"` // upstream's build number; 0 where it has none
	Patches   []Patch  `yaml:"patches"`
	Sources   []Source `yaml:"sources"`

	Prebuilt []Prebuilt `yaml:"prebuilt,omitempty"`
}

// Prebuilt is a file of compiled libraries of the ref, which may be used in
// place of the sources. Its digest settles what is in it.
type Prebuilt struct {
	From   string `yaml:"from"`
	SHA256 string `yaml:"sha256"`
}

// Patch is one file of the series and its SHA-256.
type Patch struct {
	File   string `yaml:"file"`
	SHA256 string `yaml:"sha256"`
}

// Source is one place the ref was read from and the trees that came of it. A
// snapshot isn't always upstream's tree, so each has a row of its own.
type Source struct {
	From     string `yaml:"from"`     // "git" or a mirror's ID
	Pristine string `yaml:"pristine"` // git tree id
	Patched  string `yaml:"patched"`  // git tree id after the series
}
