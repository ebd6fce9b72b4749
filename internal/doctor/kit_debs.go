package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"payload/internal/folder"
	"payload/internal/run"
)

// debs is a kit of packages of a newer release of the system, which can't be
// installed here. apt fetches them with a configuration of its own, and checks
// signatures and digests.
type debs struct {
	packages []string
	releases map[string]string // the system's id to the codename of the release
	keep     map[string]string // folder in the packages to folder in the kit
}

func (k debs) usable() bool { return k.releases[systemID()] != "" }

func (k debs) version() string { return "" }

func (k debs) words() string {
	return fmt.Sprintf("%s of %s %s", strings.Join(k.packages, " and "), systemID(), k.releases[systemID()])
}

func (k debs) fill(ctx context.Context, dir, temp string, w io.Writer) error {
	packages, err := k.download(ctx, temp, w)
	if err != nil {
		return err
	}
	files := filepath.Join(temp, "files")
	for _, p := range packages {
		if err := aptRun(ctx, temp, w, "dpkg-deb", "-x", p, files); err != nil {
			return err
		}
	}
	for from, to := range k.keep {
		to = filepath.Join(dir, filepath.FromSlash(to))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(files, filepath.FromSlash(from)), to); err != nil {
			return err
		}
	}
	return nil
}

// download fetches the packages from where the system has its own from.
func (k debs) download(ctx context.Context, temp string, w io.Writer) (files []string, err error) {
	source, err := sourceLine(ctx, k.releases[systemID()])
	if err != nil {
		return nil, err
	}
	list := filepath.Join(temp, "sources.list")
	if err := os.WriteFile(list, []byte(source), 0o644); err != nil {
		return nil, err
	}
	apt := []string{
		"apt-get", "-q", "-o", "Dir::Etc::sourcelist=" + list, "-o", "Dir::Etc::sourceparts=/dev/null",
		"-o", "Dir::State::lists=" + filepath.Join(temp, "lists"), "-o", "Dir::Cache=" + filepath.Join(temp, "cache"),
		// The folder is the person's own; apt's own user could not write there.
		"-o", "APT::Sandbox::User=",
	}
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(temp, filepath.FromSlash(d)), 0o755); err != nil {
			return nil, err
		}
	}
	if err := aptRun(ctx, temp, w, append(apt, "update")...); err != nil {
		return nil, err
	}
	if err := aptRun(ctx, temp, w, append(append(apt, "download"), k.packages...)...); err != nil {
		return nil, err
	}
	files, err = folder.Glob(temp, "*.deb")
	if err == nil && len(files) != len(k.packages) {
		err = fmt.Errorf("apt-get left %d packages where %d were wanted", len(files), len(k.packages))
	}
	return files, err
}

func aptRun(ctx context.Context, dir string, w io.Writer, args ...string) error {
	_, err := run.Do(ctx, run.Cmd{Dir: dir, Args: args, Env: []string{"DEBIAN_FRONTEND=noninteractive"}, Stdout: w, Stderr: w})
	return err
}

// sourceLine is the line of a sources.list for another release, from the first
// place where apt has the system's own packages from.
func sourceLine(ctx context.Context, release string) (string, error) {
	res, err := run.Do(ctx, run.Cmd{Args: []string{
		"apt-get", "indextargets", "--format", "$(REPO_URI) $(COMPONENT) $(ORIGIN)", "Created-By: Packages",
	}})
	if err != nil {
		return "", err
	}
	return otherRelease(string(res.Stdout), systemID(), release)
}

// otherRelease reads lines of URI, component and origin.
func otherRelease(targets, system, release string) (string, error) {
	components := map[string]string{"debian": "main", "ubuntu": "main universe"}[system]
	for line := range strings.Lines(targets) {
		f := strings.Fields(line)
		if len(f) < 3 || f[1] != "main" || !strings.EqualFold(f[2], system) || strings.Contains(f[0], "security") {
			continue
		}
		options := ""
		keys := filepath.Join("/usr/share/keyrings", system+"-archive-keyring.gpg")
		if _, err := os.Stat(keys); err == nil {
			options = "[signed-by=" + keys + "] "
		}
		return fmt.Sprintf("deb %s%s %s %s\n", options, f[0], release, components), nil
	}
	return "", errors.New("apt knows no source of the system's own packages; run apt-get update first")
}
