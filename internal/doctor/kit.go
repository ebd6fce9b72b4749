package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"payload/internal/run"
)

// kit is a folder that --fix fills with files of packages which can't be
// installed here: those of a newer release of the system. Its packages are
// unpacked, not installed; nothing of the system changes.
type kit struct {
	packages []string
	releases map[string]string // the system's id to the codename of the release
	keep     map[string]string // folder in the packages to folder in the kit
}

var kits = map[string]kit{
	// Headers alone: an SDK as far as CMake and ggml look into one.
	"vulkan": {
		packages: []string{"libvulkan-dev", "spirv-headers"},
		releases: map[string]string{"debian": "trixie", "ubuntu": "noble"},
		keep:     map[string]string{"usr/include": "include", "usr/share/cmake": "share/cmake"},
	},
}

// usableKit is name where a kit can be made here, else empty.
func usableKit(name string) string {
	if _, ok := kits[name].releases[systemID()]; !ok {
		return ""
	}
	return name
}

// systemID is how os-release names this system.
func systemID() string {
	if runtime.GOOS != "linux" {
		return ""
	}
	data, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if id, ok := strings.CutPrefix(line, "ID="); ok {
			return strings.Trim(strings.TrimSpace(id), `"`)
		}
	}
	return ""
}

// KitInWords says what making a kit does.
func KitInWords(name string) string {
	dir, err := KitsDir()
	if err != nil {
		dir = "the cache folder"
	}
	k := kits[name]
	return fmt.Sprintf("unpacks %s of %s %s to %s", strings.Join(k.packages, " and "), systemID(), k.releases[systemID()], filepath.Join(dir, name))
}

// MakeKit makes the folder of a kit anew. apt fetches the packages with a
// configuration of its own, and checks their signatures and digests; its output
// goes to w.
func MakeKit(ctx context.Context, name string, w io.Writer) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("unpacking %s: %w", name, err)
		}
	}()
	k := kits[name]
	dir, err := KitsDir()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(dir, ".new-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	debs, err := download(ctx, k, temp, w)
	if err != nil {
		return err
	}
	files := filepath.Join(temp, "files")
	for _, deb := range debs {
		if err := aptRun(ctx, temp, w, "dpkg-deb", "-x", deb, files); err != nil {
			return err
		}
	}
	fresh := filepath.Join(temp, "kit")
	for from, to := range k.keep {
		if err := os.MkdirAll(filepath.Join(fresh, filepath.Dir(to)), 0o755); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(files, from), filepath.Join(fresh, to)); err != nil {
			return err
		}
	}
	place := filepath.Join(dir, name)
	if err := os.Rename(place, filepath.Join(temp, "old")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(fresh, place)
}

// download fetches the packages of the other release from where the system has
// its own from.
func download(ctx context.Context, k kit, temp string, w io.Writer) (debs []string, err error) {
	archive, err := systemArchive(ctx)
	if err != nil {
		return nil, err
	}
	sources := filepath.Join(temp, "sources.list")
	line := fmt.Sprintf("deb%s %s %s main\n", archive.options, archive.uri, k.releases[systemID()])
	if systemID() == "ubuntu" {
		line = strings.Replace(line, " main\n", " main universe\n", 1)
	}
	if err := os.WriteFile(sources, []byte(line), 0o644); err != nil {
		return nil, err
	}
	options := []string{
		"-q", "-o", "Dir::Etc::sourcelist=" + sources, "-o", "Dir::Etc::sourceparts=/dev/null",
		"-o", "Dir::State::lists=" + filepath.Join(temp, "lists"), "-o", "Dir::Cache=" + filepath.Join(temp, "cache"),
		// The folder is the person's own; apt's own user could not write there.
		"-o", "APT::Sandbox::User=",
	}
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(temp, filepath.FromSlash(d)), 0o755); err != nil {
			return nil, err
		}
	}
	if err := aptRun(ctx, temp, w, append([]string{"apt-get"}, append(options, "update")...)...); err != nil {
		return nil, err
	}
	if err := aptRun(ctx, temp, w, append([]string{"apt-get"}, append(append(options, "download"), k.packages...)...)...); err != nil {
		return nil, err
	}
	debs, err = filepath.Glob(filepath.Join(temp, "*.deb"))
	if err == nil && len(debs) != len(k.packages) {
		err = fmt.Errorf("apt-get left %d packages where %d were wanted", len(debs), len(k.packages))
	}
	return debs, err
}

func aptRun(ctx context.Context, dir string, w io.Writer, args ...string) error {
	_, err := run.Do(ctx, run.Cmd{Dir: dir, Args: args, Env: []string{"DEBIAN_FRONTEND=noninteractive"}, Stdout: w, Stderr: w})
	return err
}

// archive is where a system's packages come from.
type archive struct{ uri, options string }

// systemArchive asks apt for the first place of the system's main packages.
func systemArchive(ctx context.Context) (archive, error) {
	res, err := run.Do(ctx, run.Cmd{Args: []string{
		"apt-get", "indextargets", "--format", "$(REPO_URI) $(COMPONENT) $(ORIGIN)", "Created-By: Packages",
	}})
	if err != nil {
		return archive{}, err
	}
	for line := range strings.Lines(string(res.Stdout)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[1] != "main" || !strings.EqualFold(f[2], systemID()) || strings.Contains(f[0], "security") {
			continue
		}
		a := archive{uri: f[0]}
		keys := filepath.Join("/usr/share/keyrings", systemID()+"-archive-keyring.gpg")
		if _, err := os.Stat(keys); err == nil {
			a.options = " [signed-by=" + keys + "]"
		}
		return a, nil
	}
	return archive{}, errors.New("apt knows no source of the system's own packages; run apt-get update first")
}
