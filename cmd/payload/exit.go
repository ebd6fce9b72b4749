package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"payload/internal/adopt"
	"payload/internal/build"
	"payload/internal/ci"
	"payload/internal/cmakerun"
	"payload/internal/config"
	"payload/internal/doctor"
	"payload/internal/drift"
	"payload/internal/patch"
	"payload/internal/pin"
	"payload/internal/run"
	"payload/internal/search"
	"payload/internal/source"
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

// failureOf maps the known errors to exit codes and hints. It is the one
// place that does.
func failureOf(ctx context.Context, err error) failure {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return failure{code: exitInterrupted}
	}
	if e, ok := as[*reported](err); ok {
		return failure{code: e.code, quiet: true, told: true}
	}
	if _, ok := as[*usageError](err); ok {
		return failure{code: exitUsage}
	}
	if errors.Is(err, config.ErrNoFile) {
		return failure{code: exitUsage, hint: "run in a repository that has a payload.yaml, name it with -C DIR, or start one: payload init"}
	}
	if e, ok := as[*adopt.ExistsError](err); ok {
		if e.Path == config.FileName {
			return failure{code: exitFailed, hint: "payload status"}
		}
		return failure{code: exitFailed, hint: "look at " + e.Path + " and move it away; nothing was written"}
	}
	if errors.Is(err, adopt.ErrNothing) {
		return failure{code: exitFailed, hint: "payload init --component NAME --upstream URL --ref REF"}
	}
	if _, ok := as[*config.UnknownComponentError](err); ok {
		return failure{code: exitUsage, hint: "payload status"}
	}
	if _, ok := as[*drift.UnknownCheckError](err); ok {
		return failure{code: exitUsage, hint: "payload drift --explain"}
	}
	if e, ok := as[*ci.NoBaseError](err); ok {
		if e.Shallow {
			return failure{code: exitFailed, hint: "git fetch --unshallow; in a workflow: actions/checkout with fetch-depth: 0"}
		}
		return failure{code: exitFailed, hint: "git fetch origin, and name a commit that is here: --base origin/main"}
	}
	if e, ok := as[*pin.Disagreement](err); ok {
		return failure{code: exitFindings, hint: "payload lock " + e.Component}
	}
	if e, ok := as[*pin.MovedTagError](err); ok {
		return failure{code: exitFailed, hint: "if the move is meant: payload lock " + e.Component}
	}
	if e, ok := as[*pin.CopyError](err); ok {
		return failure{code: exitFailed, hint: "correct the copies of " + e.Component + " in " + config.FileName}
	}
	if e, ok := as[*search.UnorderedError](err); ok {
		return failure{code: exitFailed, hint: "name the ref itself, or the tags of " + e.Component + " that are versions, in " + config.FileName}
	}
	if _, ok := as[*search.NotListedError](err); ok {
		return failure{code: exitUsage, hint: "payload status"}
	}
	if e, ok := as[*search.BisectOpenError](err); ok {
		return failure{code: exitFailed, hint: "payload bisect " + e.Component + " --continue, or --abort to forget it"}
	}
	if e, ok := as[*search.NoBisectionError](err); ok {
		return failure{code: exitUsage, hint: "payload bisect " + e.Component + " OLD..NEW -- COMMAND"}
	}
	if e, ok := as[*search.BisectStopError](err); ok {
		return failure{code: exitFailed, hint: "less " + e.Log + "; payload bisect " + e.Component + " --continue asks that ref again"}
	}
	if e, ok := as[*search.BisectEndError](err); ok {
		return failure{code: exitFailed, hint: "payload bisect " + e.Component + " --abort, then choose another end"}
	}
	if e, ok := as[*patch.ConflictError](err); ok {
		return failure{code: exitConflict, hint: "payload patch check " + e.Report.Component}
	}
	if e, ok := as[*noPatchesError](err); ok {
		return failure{code: exitFailed, hint: "add \"patches: FOLDER\" to " + e.component + " in " + config.FileName}
	}
	if _, ok := as[*source.MergeError](err); ok {
		return failure{code: exitFailed, hint: "import the commits that it merged, one by one"}
	}
	if e, ok := as[*noCommitError](err); ok {
		return failure{code: exitFailed, hint: "import a file in its place, made where the commit is: git format-patch -1 " + e.commit}
	}
	if e, ok := as[*noSuchPatchError](err); ok {
		return failure{code: exitUsage, hint: "payload patch check " + e.component}
	}
	if e, ok := as[*patch.NoWorkFolderError](err); ok {
		return failure{code: exitFailed, hint: "payload patch new COMPONENT --title TITLE opens " + e.Dir}
	}
	if errors.Is(err, patch.ErrNothing) {
		return failure{code: exitFailed, hint: "edit the files of the work folder first"}
	}
	if e, ok := as[*patch.StaleError](err); ok {
		return failure{code: exitFailed, hint: "git -C " + e.Dir + " diff; then delete build/patch and open the series again: payload patch new"}
	}
	if e, ok := as[*patch.UntitledError](err); ok {
		return failure{code: exitFailed, hint: "git -C " + e.Dir + " commit -a"}
	}
	if e, ok := as[*patch.WorkError](err); ok {
		return failure{code: exitFailed, hint: "git -C " + e.Dir + " status; when nothing in it is needed any more, delete the folder"}
	}
	if e, ok := as[*update.ConflictError](err); ok && e.Conflict.Folder == "" {
		return failure{code: exitConflict, hint: "without --dry-run it is opened, to be resolved"}
	}
	if e, ok := as[*update.ConflictError](err); ok {
		return failure{code: exitConflict, hint: "resolve it in " + e.Conflict.Folder + " (git status, git add), then: payload update --continue; or: --skip --reason TEXT, --abort"}
	}
	if e, ok := as[*patch.UnresolvedError](err); ok {
		return failure{code: exitConflict, hint: "git -C " + e.Dir + " status; then: payload update --continue; or: --skip --reason TEXT, --abort"}
	}
	if e, ok := as[*update.OpenError](err); ok && !e.Busy {
		return failure{code: exitFailed, hint: "payload update --continue, or payload update --abort"}
	}
	if _, ok := as[*update.NoneOpenError](err); ok {
		return failure{code: exitUsage, hint: "payload update COMPONENT --ref REF"}
	}
	if e, ok := as[*update.ChangedError](err); ok {
		return failure{code: exitFailed, hint: "git diff -- " + strings.Join(e.Paths, " ") + "; put them back as they were, then run the command again; nothing was lost"}
	}
	if _, ok := as[*update.NotCommittableError](err); ok {
		return failure{code: exitFailed, hint: "git status; or leave --commit out"}
	}
	if _, ok := as[*update.BaseError](err); ok {
		return failure{code: exitUsage, hint: "git branch -a"}
	}
	if _, ok := as[*source.DigestError](err); ok {
		return failure{code: exitVerification, hint: "compare the digest in payload.yaml with the publisher's; nothing of the download was used"}
	}
	if e, ok := as[*source.MismatchError](err); ok {
		return failure{code: exitVerification, hint: "if the new content is meant: payload lock " + e.Component}
	}
	if e, ok := as[*source.DamagedError](err); ok && e.Override {
		return failure{code: exitVerification, hint: "keep " + e.Path + " still while it is built from"}
	}
	if e, ok := as[*source.DamagedError](err); ok {
		return failure{code: exitVerification, hint: "payload source " + e.Component + " --repair"}
	}
	if errors.Is(err, run.ErrDamaged) {
		return failure{code: exitVerification, hint: "payload cache prune --damaged; what is missing then is read from its sources again"}
	}
	if e, ok := as[*workspace.PrebuiltError](err); ok {
		return failure{code: exitFailed, hint: "compile it: payload build --preset " + e.Preset + " --provider source"}
	}
	if _, ok := as[*build.ProviderError](err); ok {
		return failure{code: exitUsage, hint: "leave --provider out"}
	}
	if e, ok := as[*build.NoCrossError](err); ok {
		return failure{code: exitUsage, hint: "payload build --preset " + e.Preset}
	}
	if _, ok := as[*config.UnknownToolchainError](err); ok {
		return failure{code: exitPrerequisite, hint: "add one for this machine to toolchains in " + config.FileName}
	}
	if e, ok := as[*doctor.MissingError](err); ok && e.Cross {
		return failure{code: exitPrerequisite, hint: "with a toolchain for this machine: payload build --preset " + e.Preset + " --cross"}
	}
	if e, ok := as[*doctor.MissingError](err); ok {
		return failure{code: exitPrerequisite, hint: howToGet(e.Missing, e.Preset)}
	}
	if e, ok := as[*doctor.NotRootError](err); ok {
		return failure{code: exitPrerequisite, hint: "as root: " + strings.ReplaceAll(pasteable(e.Commands), "sudo ", "")}
	}
	if e, ok := as[*launcherError](err); ok {
		return failure{code: exitUsage, hint: "payload build --launcher none, or install " + e.name}
	}
	if e, ok := as[*run.MissingError](err); ok {
		if !slices.Contains(doctor.Known(), e.Tool) && e.Tool != "python3" {
			return failure{code: exitPrerequisite, hint: "install " + e.Tool}
		}
		return failure{code: exitPrerequisite, hint: "payload doctor --fix"}
	}
	if e, ok := as[*source.NoSourceError](err); ok {
		return failure{code: exitFailed, hint: "with a folder of your own: payload source " + e.Component + " --source " + e.Component + "=DIR"}
	}
	if e, ok := as[*build.UnverifiedError](err); ok && e.NoDevice {
		return failure{code: exitVerification, hint: "choose a device with the variable of its driver, or build without running it: payload build --no-run --preset " + e.Preset}
	}
	if e, ok := as[*build.UnverifiedError](err); ok {
		return failure{code: exitVerification, hint: "payload verify " + e.Dir}
	}
	if _, ok := as[*verify.FolderError](err); ok {
		return failure{code: exitUsage, hint: "name a staged tree: payload verify dist/PRESET"}
	}
	if _, ok := as[*verify.NotAskableError](err); ok {
		return failure{code: exitFailed, hint: "name two staged payloads that this machine can run: --run OLDDIR,NEWDIR"}
	}
	if e, ok := as[*cmakerun.UnknownPresetError](err); ok {
		if len(e.Nearest) > 0 {
			return failure{code: exitUsage, hint: "payload build --preset " + e.Nearest[0]}
		}
		return failure{code: exitUsage, hint: "payload doctor lists the presets"}
	}
	if e, ok := as[*cmakerun.ConfigureError](err); ok && e.Missing != "" {
		return failure{code: exitPrerequisite, hint: "payload doctor --fix --preset " + e.Preset}
	}
	if e, ok := as[*cmakerun.UndeclaredOptionError](err); ok && e.Nearest != "" {
		return failure{code: exitFailed, hint: "set " + e.Nearest + " in the preset, if that is what is meant"}
	}
	if e, ok := as[*cmakerun.UnknownTargetError](err); ok && len(e.Nearest) > 0 {
		return failure{code: exitFailed, hint: "payload build --preset " + e.Preset + " --target " + e.Nearest[0]}
	}
	if e, ok := as[*cmakerun.NoTargetError](err); ok {
		return failure{code: exitFailed, hint: "the whole output: less " + e.Log}
	}
	if e, ok := as[*cmakerun.FolderError](err); ok {
		return failure{code: exitFailed, hint: "move " + e.Dir + " away, or give the preset another binaryDir"}
	}
	if errors.Is(err, run.ErrNoSpace) || errors.Is(err, syscall.ENOSPC) {
		return failure{code: exitFailed, hint: "free some space, or move the store with PAYLOAD_CACHE, then run the command again"}
	}
	if e, ok := as[*cmakerun.CompileError](err); ok && !errors.Is(err, run.ErrNoMemory) {
		return failure{code: exitFailed, hint: "the whole output: less " + e.Log}
	}
	if e, ok := as[*cmakerun.ConfigureError](err); ok {
		return failure{code: exitFailed, hint: "the whole output: less " + e.Log}
	}
	if _, ok := as[*source.StoreError](err); ok {
		return failure{code: exitFailed, hint: "PAYLOAD_CACHE=DIR names a folder for the store that can be written to"}
	}
	if errors.Is(err, run.ErrNoMemory) {
		return failure{code: exitFailed, hint: "run again with fewer jobs: --jobs 1"}
	}
	return failure{code: exitFailed}
}

func as[E error](err error) (E, bool) {
	var e E
	ok := errors.As(err, &e)
	return e, ok
}
