package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"payload/internal/adopt"
	"payload/internal/archive"
	"payload/internal/build"
	"payload/internal/ci"
	"payload/internal/cmakerun"
	"payload/internal/codesign"
	"payload/internal/config"
	"payload/internal/doctor"
	"payload/internal/drift"
	"payload/internal/machofile"
	"payload/internal/manifest"
	"payload/internal/notary"
	"payload/internal/pack"
	"payload/internal/patch"
	"payload/internal/pin"
	"payload/internal/run"
	"payload/internal/search"
	"payload/internal/source"
	"payload/internal/universal"
	"payload/internal/update"
	"payload/internal/verify"
	"payload/internal/workspace"
)

// The exit codes, for every verb.
const (
	exitDone         = 0
	exitFailed       = 1
	exitUsage        = 2
	exitFindings     = 3
	exitConflict     = 4
	exitVerification = 5
	exitPrerequisite = 6
	exitInterrupted  = 130
)

// failure is what the caller's shell and the person get to see of an error.
type failure struct {
	code  int
	hint  string
	quiet bool // the verb has printed its report; nothing more is to be said
	told  bool // stdout holds JSON of the verb already
}

// reported is a verb's result that was printed and still isn't success.
type reported struct{ code int }

func (e *reported) Error() string { return fmt.Sprintf("exit status %d", e.code) }

// rule is a row of the table of errors: what becomes of an error that is its
// own. One that it leaves to the rows below has code 0.
type rule func(err error) failure

// of is the row of a type of errors.
func of[E error](what func(e E) failure) rule {
	return func(err error) failure {
		if e, ok := as[E](err); ok {
			return what(e)
		}
		return failure{}
	}
}

// every is the row of a type of errors that all mean the same.
func every[E error](code int, hint string) rule {
	return of(func(E) failure { return failure{code: code, hint: hint} })
}

// is is the row of one error.
func is(target error, code int, hint string) rule {
	return func(err error) failure {
		if errors.Is(err, target) {
			return failure{code: code, hint: hint}
		}
		return failure{}
	}
}

// failureOf maps the known errors to exit codes and hints. It is the one
// place that does.
func failureOf(ctx context.Context, err error) failure {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return failure{code: exitInterrupted}
	}
	for _, rule := range slices.Concat(ofCommands, ofPins, ofSearches, ofPatches, ofUpdates, ofSources, ofTools, ofBuilds, ofMachine) {
		if f := rule(err); f.code != exitDone {
			return f
		}
	}
	return failure{code: exitFailed}
}

// The table. An error that wraps others has the first row that takes it.
var (
	ofCommands = []rule{
		of(func(e *reported) failure { return failure{code: e.code, quiet: true, told: true} }),
		of(func(e *usageError) failure { return failure{code: exitUsage, hint: e.command + " --help"} }),
		is(config.ErrNoFile, exitUsage, "run in a repository that has a payload.yaml, name it with -C DIR, or start one: payload init"),
		of(func(e *adopt.ExistsError) failure {
			if e.Path == config.FileName {
				return failure{code: exitFailed, hint: "payload status"}
			}
			return failure{code: exitFailed, hint: "look at " + e.Path + " and move it away; nothing was written"}
		}),
		is(adopt.ErrNothing, exitFailed, "payload init --component NAME --upstream URL --ref REF"),
		every[*config.UnknownComponentError](exitUsage, "payload status"),
		every[*drift.UnknownCheckError](exitUsage, "payload drift --explain"),
		of(func(e *ci.NoBaseError) failure {
			if e.Shallow {
				return failure{code: exitFailed, hint: "git fetch --unshallow; in a workflow: actions/checkout with fetch-depth: 0"}
			}
			return failure{code: exitFailed, hint: "git fetch origin, and name a commit that is here: --base origin/main"}
		}),
	}

	ofPins = []rule{
		of(func(e *pin.Disagreement) failure {
			return failure{code: exitFindings, hint: "payload lock " + e.Component}
		}),
		of(func(e *pin.MovedTagError) failure {
			return failure{code: exitFailed, hint: "if the move is meant: payload lock " + e.Component}
		}),
		of(func(e *pin.CopyError) failure {
			return failure{code: exitFailed, hint: "correct the copies of " + e.Component + " in " + config.FileName}
		}),
	}

	ofSearches = []rule{
		of(func(e *search.UnorderedError) failure {
			return failure{code: exitFailed, hint: "name the ref itself, or the tags of " + e.Component + " that are versions, in " + config.FileName}
		}),
		every[*search.NotListedError](exitUsage, "payload status"),
		of(func(e *search.RangeError) failure {
			if e.Old == e.New {
				return failure{code: exitUsage, hint: "payload bisect " + e.Component + " OLD..NEW -- COMMAND"}
			}
			return failure{code: exitUsage, hint: "the older one comes first: payload bisect " + e.Component + " " + e.New + ".." + e.Old + " -- COMMAND"}
		}),
		of(func(e *search.BisectOpenError) failure {
			return failure{code: exitFailed, hint: "payload bisect " + e.Component + " --continue, or --abort to forget it"}
		}),
		of(func(e *search.NoBisectionError) failure {
			return failure{code: exitUsage, hint: "payload bisect " + e.Component + " OLD..NEW -- COMMAND"}
		}),
		of(func(e *search.BisectStopError) failure {
			return failure{code: exitFailed, hint: "less " + e.Log + "; payload bisect " + e.Component + " --continue asks that ref again"}
		}),
		of(func(e *search.BisectEndError) failure {
			return failure{code: exitFailed, hint: "payload bisect " + e.Component + " --abort, then choose another end"}
		}),
	}

	ofPatches = []rule{
		of(func(e *patch.ConflictError) failure {
			return failure{code: exitConflict, hint: "payload patch check " + e.Report.Component}
		}),
		of(func(e *noPatchesError) failure {
			return failure{code: exitFailed, hint: "add \"patches: FOLDER\" to " + e.component + " in " + config.FileName}
		}),
		every[*source.MergeError](exitFailed, "import the commits that it merged, one by one"),
		of(func(e *noCommitError) failure {
			return failure{code: exitFailed, hint: "import a file in its place, made where the commit is: git format-patch -1 " + e.commit}
		}),
		every[*noImportError](exitUsage, "payload patch import --help"),
		of(func(e *noSuchPatchError) failure {
			return failure{code: exitUsage, hint: "payload patch check " + e.component}
		}),
		of(func(e *patch.NoWorkFolderError) failure {
			return failure{code: exitFailed, hint: "payload patch edit COMPONENT opens the series in " + e.Dir + ", payload patch new COMPONENT --title TITLE for one more"}
		}),
		is(patch.ErrNothing, exitFailed, "edit the files of the work folder first"),
		of(func(e *patch.StaleError) failure {
			return failure{code: exitFailed, hint: "git -C " + e.Dir + " diff; then delete build/patch and open the series again: payload patch new"}
		}),
		of(func(e *patch.UntitledError) failure {
			return failure{code: exitFailed, hint: "git -C " + e.Dir + " commit -a"}
		}),
		of(func(e *patch.WorkError) failure {
			return failure{code: exitFailed, hint: "git -C " + e.Dir + " status; when nothing in it is needed any more, delete the folder"}
		}),
	}

	ofUpdates = []rule{
		of(func(e *update.ConflictError) failure {
			if e.Conflict.Folder == "" {
				return failure{code: exitConflict, hint: "without --dry-run it is opened, to be resolved"}
			}
			return failure{code: exitConflict, hint: "resolve it in " + e.Conflict.Folder + " (git status, git add), then: payload update --continue; or: --skip --reason TEXT, --abort"}
		}),
		of(func(e *patch.UnresolvedError) failure {
			return failure{code: exitConflict, hint: "git -C " + e.Dir + " status; then: payload update --continue; or: --skip --reason TEXT, --abort"}
		}),
		of(func(e *update.OpenError) failure {
			if e.Busy {
				return failure{code: exitFailed, hint: "wait for it, then: payload status"}
			}
			return failure{code: exitFailed, hint: "payload update --continue, or payload update --abort"}
		}),
		is(update.ErrNoConflict, exitUsage, "payload update --continue, or payload update --abort"),
		every[*update.NoneOpenError](exitUsage, "payload update COMPONENT --ref REF"),
		of(func(e *update.ChangedError) failure { return failure{code: exitFailed, hint: putBack(e)} }),
		every[*update.NotCommittableError](exitFailed, "git status; or go on without commits: --commit=false"),
		every[*update.BaseError](exitUsage, "git branch -a"),
	}

	ofSources = []rule{
		every[*source.DigestError](exitVerification, "compare the digest in payload.yaml with the publisher's; nothing of the download was used"),
		of(func(e *source.MismatchError) failure {
			return failure{code: exitVerification, hint: "if the new content is meant: payload lock " + e.Component}
		}),
		of(func(e *source.DamagedError) failure {
			if e.Override {
				return failure{code: exitVerification, hint: "keep " + e.Path + " still while it is built from"}
			}
			return failure{code: exitVerification, hint: "payload source " + e.Component + " --repair"}
		}),
		is(run.ErrDamaged, exitVerification, "payload cache prune --damaged; what is missing then is read from its sources again"),
	}

	ofTools = []rule{
		of(func(e *workspace.PrebuiltError) failure {
			return failure{code: exitFailed, hint: "compile it: payload build --preset " + e.Preset + " --provider source"}
		}),
		every[*build.ProviderError](exitUsage, "leave --provider out"),
		of(func(e *build.NoCrossError) failure {
			return failure{code: exitUsage, hint: "payload build --preset " + e.Preset}
		}),
		every[*config.UnknownToolchainError](exitPrerequisite, "add one for this machine to toolchains in "+config.FileName),
		of(func(e *doctor.MissingError) failure {
			if e.Cross {
				return failure{code: exitPrerequisite, hint: "with a toolchain for this machine: payload build --preset " + e.Preset + " --cross"}
			}
			return failure{code: exitPrerequisite, hint: howToGet(e.Missing, e.Preset)}
		}),
		of(func(e *doctor.NotRootError) failure {
			return failure{code: exitPrerequisite, hint: "as root: " + strings.ReplaceAll(pasteable(e.Commands), "sudo ", "")}
		}),
		of(func(e *launcherError) failure {
			return failure{code: exitUsage, hint: "payload build --launcher none, or install " + e.name}
		}),
		of(func(e *run.MissingError) failure {
			if !slices.Contains(doctor.Known(), e.Tool) && e.Tool != "python3" {
				return failure{code: exitPrerequisite, hint: "install " + e.Tool}
			}
			return failure{code: exitPrerequisite, hint: "payload doctor --fix"}
		}),
		// Below the tools: a source may be missing because the tool is that reads it.
		of(func(e *source.NoSourceError) failure {
			if _, ok := as[*pin.NoRefError](e); ok {
				return failure{code: exitFailed, hint: "payload status names the latest ref of " + e.Component + "; is " + e.Ref + " spelt as the tag is?"}
			}
			return failure{code: exitFailed, hint: "with a folder of your own: payload source " + e.Component + " --source " + e.Component + "=DIR"}
		}),
	}

	ofBuilds = []rule{
		of(func(e *build.UnverifiedError) failure {
			if e.NoDevice {
				return failure{code: exitVerification, hint: "choose a device with the variable of its driver, or build without running it: payload build --no-run --preset " + e.Preset}
			}
			return failure{code: exitVerification, hint: "payload verify " + e.Dir}
		}),
		of(func(e *pack.RefusedError) failure { return refused(e) }),
		of(func(e *pack.NotStagedError) failure {
			return failure{code: exitFailed, hint: "payload build --preset " + strings.Join(e.Presets, ",")}
		}),
		every[*universal.Error](exitVerification, "build the trees from the same sources, or declare the file under single in "+config.FileName),
		of(func(e *codesign.Error) failure {
			if _, ok := as[*machofile.RoomError](e); ok {
				return failure{code: exitFailed, hint: "link " + e.Path + " with -Wl,-headerpad,0x1000"}
			}
			if _, ok := as[*codesign.TimestampError](e); ok {
				return failure{code: exitFailed, hint: "try again, or name another authority: --timestamp URL"}
			}
			return failure{code: exitFailed, hint: "payload build the preset that " + e.Path + " comes from"}
		}),
		of(func(e *codesign.CertificateError) failure {
			if errors.Is(e, fs.ErrNotExist) {
				return failure{code: exitFailed, hint: "name the file that Keychain Access exported: --certificate FILE"}
			}
			return failure{code: exitFailed, hint: "put its password into " + certificatePasswordVar + ", or export it again from Keychain Access"}
		}),
		every[*notary.TimeoutError](exitFailed, "payload package darwin --resume"),
		every[*notary.NothingError](exitFailed, "payload package darwin --notarize, or name the submission: --resume --notary-id ID"),
		every[*notary.RefusedError](exitFailed, "look at --notary-key, --notary-key-id and --notary-issuer, and at the agreements in App Store Connect"),
		every[*pack.UnknownGroupError](exitUsage, "payload package --help; groups are in "+config.FileName),
		of(func(e *pack.KeyError) failure {
			if e.Password {
				return failure{code: exitFailed, hint: "put its password into " + pack.PasswordVar}
			}
			return failure{code: exitUsage, hint: "minisign -G makes a key"}
		}),
		every[*archive.NotArchiveError](exitUsage, "name a staged tree or an archive: payload verify dist/PRESET"),
		of(func(e *damagedReleaseError) failure {
			return failure{code: exitVerification, hint: "payload verify --no-run " + e.path}
		}),
		is(verify.ErrNotOver, exitUsage, "leave --over out; what a group lies over is in "+config.FileName),
		of(func(e *verify.FolderError) failure {
			if errors.Is(e, fs.ErrPermission) {
				return failure{code: exitFailed, hint: "chmod -R u+rX " + e.Dir}
			}
			return failure{code: exitUsage, hint: "name a staged tree or an archive: payload verify dist/PRESET"}
		}),
		every[*verify.NotAskableError](exitFailed, "name two staged payloads that this machine can run: --run OLDDIR,NEWDIR"),
		of(func(e *cmakerun.UnknownPresetError) failure {
			if len(e.Nearest) > 0 {
				return failure{code: exitUsage, hint: "payload build --preset " + e.Nearest[0]}
			}
			return failure{code: exitUsage, hint: "payload doctor lists the presets"}
		}),
		of(func(e *cmakerun.ConfigureError) failure {
			if e.Missing == "" {
				return failure{} // the disk may be full; see ofMachine
			}
			return failure{code: exitPrerequisite, hint: "payload doctor --fix --preset " + e.Preset}
		}),
		of(func(e *cmakerun.UndeclaredOptionError) failure {
			if e.Nearest == "" {
				return failure{}
			}
			return failure{code: exitFailed, hint: "set " + e.Nearest + " in the preset, if that is what is meant"}
		}),
		of(func(e *cmakerun.UnknownTargetError) failure {
			if len(e.Nearest) == 0 {
				return failure{}
			}
			return failure{code: exitFailed, hint: "payload build --preset " + e.Preset + " --target " + e.Nearest[0]}
		}),
		of(func(e *cmakerun.NoTargetError) failure { return theLog(e.Log) }),
		of(func(e *cmakerun.FolderError) failure {
			return failure{code: exitFailed, hint: "move " + e.Dir + " away, or give the preset another binaryDir"}
		}),
	}

	// What a tool says may only be how it took a full disk, or memory that ran out.
	ofMachine = []rule{
		is(run.ErrNoSpace, exitFailed, noSpace),
		is(syscall.ENOSPC, exitFailed, noSpace),
		of(func(e *cmakerun.ConfigureError) failure { return theLog(e.Log) }),
		every[*source.StoreError](exitFailed, "PAYLOAD_CACHE=DIR names a folder for the store that can be written to"),
		is(run.ErrNoMemory, exitFailed, "run again with fewer jobs: --jobs 1"),
		of(func(e *cmakerun.CompileError) failure { return theLog(e.Log) }),
		every[*update.WrittenError](exitFailed, "payload update --continue, or payload update --abort"),
	}
)

// refused is what to do about a package that was refused: by its first reason.
func refused(e *pack.RefusedError) failure {
	r := e.Reasons[0]
	anyway := "; or package it all the same:"
	for _, what := range pack.Allowances {
		if slices.ContainsFunc(e.Reasons, func(r manifest.Allowed) bool { return r.What == what }) {
			anyway += " --allow-" + what
		}
	}
	switch r.What {
	case pack.AllowUnlocked:
		return failure{code: exitFindings, hint: "payload build --preset " + r.Preset + anyway}
	case pack.AllowCompressor:
		return failure{code: exitPrerequisite, hint: "install that version of zstd" + anyway}
	case pack.AllowFloor:
		return failure{code: exitVerification, hint: "build on an older system; for macOS, set CMAKE_OSX_DEPLOYMENT_TARGET" + anyway}
	case pack.AllowBudget:
		return failure{code: exitVerification, hint: "look at what grew: payload verify --against the last release; or raise budget in " + config.FileName + anyway}
	case pack.AllowUnverified:
		return failure{code: exitVerification, hint: "build it where it can run: payload build --preset " + r.Preset + anyway}
	}
	return failure{code: exitVerification, hint: "payload build --preset " + r.Preset + anyway}
}

const noSpace = "free some space, or move the store with PAYLOAD_CACHE, then run the command again"

func theLog(path string) failure {
	return failure{code: exitFailed, hint: "the whole output: less " + path}
}

// putBack says how files that were changed while an update was open come to be
// what going on, or back, asks for.
func putBack(e *update.ChangedError) string {
	const most = 8 // as many as the error names
	if e.Kept == nil {
		return "git diff -- " + strings.Join(e.Paths[:min(most, len(e.Paths))], " ") + "; put them back as they were, then run the command again; or payload update --abort, which leaves them as they are"
	}
	var commands []string
	for i, path := range e.Paths[:min(most, len(e.Paths))] {
		command := run.Cmd{Args: []string{"rm", path}}
		if e.Kept[i] != "" {
			command.Args = []string{"cp", e.Kept[i], path}
		}
		commands = append(commands, command.String())
	}
	return "keep elsewhere what you want of them, then: " + strings.Join(commands, " && ") + "; then run the command again"
}

func as[E error](err error) (E, bool) {
	var e E
	ok := errors.As(err, &e)
	return e, ok
}
