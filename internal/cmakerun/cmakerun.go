// Package cmakerun takes a CMake project from a preset to built and installed
// files: what a preset says, which arguments and environment CMake gets for
// it, when a build folder may be used again, how far a compile is, and what
// kind of failure stopped it.
//
// It owns the build folder: the links to the sources, the stamp, the logs and
// the File API query in it. It refuses to reuse a folder whose stamp does not
// match, to delete a folder that it cannot tell to be a build folder of the
// same project, and to know what any component or option is for.
package cmakerun

import (
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"payload/internal/run"
)

// Build names everything that one build of one preset is made from.
type Build struct {
	Root      string // absolute folder of the repository
	Project   string // folder of the CMake project, relative to Root, forward slashes
	Preset    Preset
	BinaryDir string // absolute build folder
	Sources   []Source
	Launcher  Launcher
	Jobs      int      // parallel compile jobs; 0 leaves it to the build tool
	Targets   []string // what to compile; empty means the preset's targets, then everything
	Tell      []string // variables that lead CMake to the preset's tools
	Set       []string // entries of Preset.Cache that were set since the preset was read
	Exe       string   // the tool itself, for a configure that the build tool starts; may be empty
}

// Source is one component's tree as a project receives it.
type Source struct {
	Component string   // as payload.yaml names it; also the name of the link
	Var       string   // the name as a variable, config.VarName
	Tree      string   // absolute folder of the checked tree
	Ref       string   // the ref asked for
	Commit    string   // the full commit
	Build     int      // upstream's build number; 0 when it has none
	Pristine  string   // git tree id before the patches; may be empty
	Patched   string   // git tree id of what Tree holds; empty when it may change at any time
	Depends   []string // absolute files that decide the tree: pin, lock, patches
}

// NewBuild begins a build: its folder is the preset's own where it names one,
// else build/<project>-<preset> below root.
func NewBuild(root, project string, preset Preset) Build {
	b := Build{Root: root, Project: project, Preset: preset}
	b.BinaryDir = filepath.FromSlash(preset.BinaryDir)
	if b.BinaryDir == "" {
		b.BinaryDir = filepath.Join(root, "build", b.ID())
	}
	return b
}

// ID is the name of the build folder: project and preset.
func (b Build) ID() string {
	project := strings.ReplaceAll(path.Clean(b.Project), "/", "-")
	if project == "." {
		project = filepath.Base(b.Root)
	}
	return project + "-" + b.Preset.Name
}

// SourceDir is the CMake project's folder.
func (b Build) SourceDir() string { return filepath.Join(b.Root, filepath.FromSlash(b.Project)) }

// SourceLink is the path by which CMake sees a source. It does not change with
// the tree behind it, so compiler caches and debug information stay the same.
func (b Build) SourceLink(s Source) string {
	return filepath.Join(b.BinaryDir, "src", s.Component)
}

// BuildLog and ConfigureLog are where whole outputs are kept.
func (b Build) BuildLog() string     { return filepath.Join(b.BinaryDir, "payload-build.log") }
func (b Build) ConfigureLog() string { return filepath.Join(b.BinaryDir, "payload-configure.log") }

// targets is what a compile asks for; empty is everything.
func (b Build) targets() []string {
	if len(b.Targets) > 0 {
		return b.Targets
	}
	return b.Preset.Vendor.Targets
}

// ConfigureArgs is the command line of the configure step.
func ConfigureArgs(b Build) []string {
	args := []string{"cmake", "-S", b.SourceDir(), "-B", b.BinaryDir, "--preset", b.Preset.Name}
	for _, name := range b.Set {
		v := b.Preset.Cache[name]
		if v.Type != "" {
			name += ":" + v.Type
		}
		args = append(args, "-D"+name+"="+v.Value)
	}
	return append(args, b.sourceArgs()...)
}

// sourceArgs tell the project where its sources are.
func (b Build) sourceArgs() (args []string) {
	for _, s := range b.Sources {
		args = append(args,
			"-D"+s.Var+"_SOURCE_DIR:PATH="+filepath.ToSlash(b.SourceLink(s)),
			"-D"+s.Var+"_REF:STRING="+s.Ref,
			"-D"+s.Var+"_COMMIT:STRING="+s.Commit,
			"-D"+s.Var+"_BUILD_NUMBER:STRING="+strconv.Itoa(s.Build),
			"-D"+s.Var+"_TREE:STRING="+s.Patched,
		)
		var depends []string
		for _, d := range s.Depends {
			depends = append(depends, filepath.ToSlash(d))
		}
		args = append(args, "-D"+s.Var+"_DEPENDS:STRING="+strings.Join(depends, ";"))
	}
	return args
}

// CompileArgs is the command line of the compile step. Ninja is started
// directly: an interrupted cmake kills the ninja below it before that one has
// stopped its compilers.
func CompileArgs(b Build) []string {
	if b.Preset.Generator == "Ninja" {
		args := []string{"ninja", "-C", b.BinaryDir}
		if program := b.Preset.Cache["CMAKE_MAKE_PROGRAM"].Value; program != "" {
			args[0] = program
		}
		if b.Jobs > 0 {
			args = append(args, "-j", strconv.Itoa(b.Jobs))
		}
		return append(args, b.targets()...)
	}
	args := []string{"cmake", "--build", b.BinaryDir}
	if b.Jobs > 0 {
		args = append(args, "--parallel", strconv.Itoa(b.Jobs))
	}
	if targets := b.targets(); len(targets) > 0 {
		args = append(append(args, "--target"), targets...)
	}
	return args
}

// InstallArgs is the command line that installs one component, or all of them
// when component is empty, below prefix.
func InstallArgs(b Build, component, prefix string) []string {
	args := []string{"cmake", "--install", b.BinaryDir, "--prefix", prefix}
	if component != "" {
		args = append(args, "--component", component)
	}
	return args
}

// ConfigureCmd, CompileCmd and InstallCmd are the processes themselves, for
// running and for printing with run.Cmd.String.
func ConfigureCmd(b Build) run.Cmd {
	// CMake applies the preset's environment itself; it only has to see the
	// variables that the preset refers to.
	env := slices.Concat(b.Preset.outside(), b.Tell, b.Launcher.configureEnv(), b.Launcher.compileEnv(b), b.exeEnv())
	return run.Cmd{Args: ConfigureArgs(b), Env: env}
}

// CompileCmd is the compile step as a process.
func CompileCmd(b Build) run.Cmd {
	env := slices.Concat(b.Tell, b.Preset.environ(), b.Launcher.compileEnv(b), b.exeEnv(), []string{"NINJA_STATUS=[%f/%t] "})
	return run.Cmd{Args: CompileArgs(b), Env: env}
}

// InstallCmd is the install step as a process.
func InstallCmd(b Build, component, prefix string) run.Cmd {
	return run.Cmd{Args: InstallArgs(b, component, prefix), Env: b.Preset.environ()}
}

func (b Build) exeEnv() []string {
	if b.Exe == "" {
		return nil
	}
	return []string{"PAYLOAD_EXE=" + b.Exe}
}
