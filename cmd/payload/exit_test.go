package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"

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

// TestFailures holds every known error to its exit code, however deep it is
// wrapped, and its hint to a command or a thing to do.
func TestFailures(t *testing.T) {
	compile := &cmakerun.CompileError{Preset: "p", Log: "build/x.log"}
	for _, c := range []struct {
		err  error
		code int
		hint string
	}{
		{errors.New("anything"), exitFailed, ""},
		{&usageError{err: errors.New("x"), command: "payload build"}, exitUsage, "payload build --help"},
		{config.ErrNoFile, exitUsage, "-C DIR"},
		{&config.UnknownComponentError{Name: "x"}, exitUsage, "payload status"},
		{&cmakerun.UnknownPresetError{Name: "x", Nearest: []string{"cpu"}}, exitUsage, "payload build --preset cpu"},
		{&cmakerun.UnknownPresetError{Name: "x"}, exitUsage, "payload doctor"},
		{&verify.NotAskableError{Dir: "x", Why: "y"}, exitFailed, "name two staged payloads that this machine can run: --run OLDDIR,NEWDIR"},
		{&verify.FolderError{Dir: "x", Err: errors.New("y")}, exitUsage, "payload verify dist/PRESET"},
		{&verify.FolderError{Dir: "x", Err: fmt.Errorf("y: %w", fs.ErrPermission)}, exitFailed, "chmod -R u+rX x"},
		{&pack.RefusedError{Reasons: []manifest.Allowed{{What: pack.AllowUnlocked, Preset: "p"}}}, exitFindings, "payload build --preset p; or package it all the same: --allow-unlocked"},
		{&pack.RefusedError{Reasons: []manifest.Allowed{{What: pack.AllowUnverified, Preset: "p"}}}, exitVerification, "--allow-unverified"},
		{&pack.RefusedError{Reasons: []manifest.Allowed{{What: pack.AllowChanged, Preset: "p"}}}, exitVerification, "payload build --preset p"},
		{&pack.RefusedError{Reasons: []manifest.Allowed{{What: pack.AllowFloor}}}, exitVerification, "build on an older system"},
		{&pack.RefusedError{Reasons: []manifest.Allowed{{What: pack.AllowCompressor}}}, exitPrerequisite, "install that version of zstd"},
		{&pack.NotStagedError{Presets: []string{"p", "q"}}, exitFailed, "payload build --preset p,q"},
		{&pack.UnknownGroupError{Name: "x"}, exitUsage, "payload package --help"},
		{&pack.KeyError{Path: "x", Password: true, Err: errors.New("y")}, exitFailed, "PAYLOAD_SIGN_PASSWORD"},
		{&pack.KeyError{Path: "x", Err: errors.New("y")}, exitUsage, "minisign -G"},
		{&archive.NotArchiveError{Path: "x"}, exitUsage, "payload verify dist/PRESET"},
		{&damagedReleaseError{path: "old.tgz", why: "y"}, exitVerification, "payload verify --no-run old.tgz"},
		{&launcherError{name: "nope", err: errors.New("x")}, exitUsage, "--launcher none"},
		{&drift.UnknownCheckError{ID: "x"}, exitUsage, "payload drift --explain"},
		{&universal.Error{Problems: []string{"x"}}, exitVerification, "under single"},
		{&codesign.Error{Path: "libx.dylib", Err: &machofile.RoomError{}}, exitFailed, "link libx.dylib with -Wl,-headerpad,0x1000"},
		{&codesign.Error{Path: "libx.dylib", Err: &codesign.TimestampError{}}, exitFailed, "--timestamp URL"},
		{&codesign.Error{Path: "libx.dylib", Err: errors.New("y")}, exitFailed, "payload build"},
		{&codesign.CertificateError{File: "x.p12", Err: errors.New("y")}, exitFailed, "PAYLOAD_CERTIFICATE_PASSWORD"},
		{&notary.TimeoutError{ID: "x"}, exitFailed, "payload package darwin --resume"},
		{&notary.NothingError{Dir: "x"}, exitFailed, "--notary-id ID"},
		{&notary.RefusedError{Doing: "x", Status: 401}, exitFailed, "--notary-key"},
		{&ci.NoBaseError{Base: "x"}, exitFailed, "git fetch origin"},
		{&ci.NoBaseError{Base: "x", Shallow: true}, exitFailed, "--unshallow"},
		{&pin.Disagreement{Component: "c"}, exitFindings, "payload lock c"},
		{&update.ConflictError{Conflict: update.Conflict{Folder: "build/update/c"}}, exitConflict, "build/update/c"},
		{&update.ConflictError{}, exitConflict, "--dry-run"},
		{&patch.UnresolvedError{Dir: "d"}, exitConflict, "git -C d status"},
		{&update.OpenError{Update: "c to r"}, exitFailed, "payload update --continue"},
		{&update.OpenError{Busy: true}, exitFailed, "payload status"},
		{update.ErrNoConflict, exitUsage, "payload update --continue"},
		{&update.NoneOpenError{}, exitUsage, "payload update COMPONENT"},
		{&update.ChangedError{Paths: []string{"f"}}, exitFailed, "git diff -- f"},
		{&update.ChangedError{Paths: strings.Split("a b c d e f g h i j", " ")}, exitFailed, "git diff -- a b c d e f g h; put"},
		{&update.ChangedError{Paths: []string{"f", "g"}, Kept: []string{"old/0", ""}}, exitFailed, "cp old/0 f && rm g"},
		{&update.NotCommittableError{Why: "x"}, exitFailed, "--commit"},
		{&update.BaseError{Err: errors.New("x")}, exitUsage, "git branch"},
		{&update.WrittenError{Err: &build.UnverifiedError{Dir: "d"}}, exitVerification, "payload verify d"},
		{&update.WrittenError{Err: errors.New("x")}, exitFailed, "payload update --continue"},
		{&pin.MovedTagError{Component: "c"}, exitFailed, "payload lock c"},
		{&pin.CopyError{Component: "c"}, exitFailed, "copies of c in payload.yaml"},
		{&search.UnorderedError{Component: "c"}, exitFailed, "tags of c"},
		{&search.NotListedError{Component: "c"}, exitUsage, "payload status"},
		{&search.RangeError{Component: "c", Old: "b2", New: "b1"}, exitUsage, "payload bisect c b1..b2"},
		{&search.BisectOpenError{Component: "c"}, exitFailed, "payload bisect c --continue"},
		{&search.NoBisectionError{Component: "c"}, exitUsage, "payload bisect c OLD..NEW"},
		{&search.BisectStopError{Component: "c", Log: "x.log"}, exitFailed, "less x.log"},
		{&search.BisectEndError{Component: "c"}, exitFailed, "payload bisect c --abort"},
		{&noCommitError{commit: "1234", err: &source.MergeError{}}, exitFailed, "one by one"},
		{&noCommitError{commit: "1234", err: errors.New("x")}, exitFailed, "git format-patch -1 1234"},
		{&noImportError{what: "x"}, exitUsage, "payload patch import --help"},
		{&patch.ConflictError{Report: patch.Report{Component: "c"}}, exitConflict, "payload patch check c"},
		{&patch.NoWorkFolderError{Dir: "d"}, exitFailed, "payload patch edit"},
		{&patch.WorkError{Dir: "d"}, exitFailed, "git -C d status"},
		{&patch.UntitledError{Dir: "d"}, exitFailed, "git -C d commit"},
		{patch.ErrNothing, exitFailed, "edit the files"},
		{&noPatchesError{component: "c"}, exitFailed, "patches: FOLDER"},
		{&source.DamagedError{Component: "c"}, exitVerification, "payload source c --repair"},
		{&source.DamagedError{Component: "c", Path: "mine", Override: true}, exitVerification, "keep mine still"},
		{&source.DigestError{}, exitVerification, "payload.yaml"},
		{&source.MismatchError{Component: "c"}, exitVerification, "payload lock c"},
		{&source.NoSourceError{Component: "c"}, exitFailed, "--source c=DIR"},
		{&source.NoSourceError{Component: "c", Tried: []source.Skipped{{From: "git", Err: run.ErrDamaged}}}, exitVerification, "payload cache prune --damaged"},
		{&source.NoSourceError{Component: "c", Ref: "b1", Tried: []source.Skipped{{From: "git", Err: &pin.NoRefError{Location: "u", Ref: "b1"}}}}, exitFailed, "latest ref of c"},
		{&source.StoreError{Doing: "opening the store", Err: fs.ErrPermission}, exitFailed, "PAYLOAD_CACHE=DIR"},
		{&source.StoreError{Doing: "opening the store", Err: syscall.ENOSPC}, exitFailed, "free some space"},
		{&build.UnverifiedError{Dir: "dist/x"}, exitVerification, "payload verify dist/x"},
		{&workspace.PrebuiltError{Preset: "p"}, exitFailed, "compile it: payload build --preset p --provider source"},
		{&build.ProviderError{}, exitUsage, "leave --provider out"},
		{&build.NoCrossError{Preset: "p"}, exitUsage, "payload build --preset p"},
		{&config.UnknownToolchainError{Name: "t"}, exitPrerequisite, "add one for this machine to toolchains in payload.yaml"},
		{&doctor.MissingError{Preset: "p", Cross: true}, exitPrerequisite, "with a toolchain for this machine: payload build --preset p --cross"},
		{&doctor.MissingError{Preset: "cpu", Missing: []doctor.Finding{{Name: "cmake", Packages: []string{"cmake"}}}}, exitPrerequisite, "payload doctor --fix --preset cpu"},
		{&doctor.NotRootError{Commands: []doctor.Command{{Args: []string{"sudo", "apt-get", "update"}}}}, exitPrerequisite, "as root: apt-get update"},
		{&run.MissingError{Tool: "cmake"}, exitPrerequisite, "payload doctor --fix"},
		{&run.MissingError{Tool: "frob"}, exitPrerequisite, "install frob"},
		{&doctor.MissingError{Preset: "m", Missing: []doctor.Finding{{Name: "machine", Get: "build m on a Mac"}}}, exitPrerequisite, "build m on a Mac"},
		{&build.UnverifiedError{Preset: "v", NoDevice: true}, exitVerification, "payload build --no-run --preset v"},
		{&cmakerun.ConfigureError{Preset: "p", Missing: "C++ compiler"}, exitPrerequisite, "payload doctor --fix --preset p"},
		{&cmakerun.ConfigureError{Preset: "p", Log: "build/c.log"}, exitFailed, "build/c.log"},
		{&cmakerun.UndeclaredOptionError{Option: "A", Nearest: "B"}, exitFailed, "set B"},
		{&cmakerun.UnknownTargetError{Preset: "p", Nearest: []string{"t"}}, exitFailed, "--target t"},
		{&cmakerun.NoTargetError{Log: "build/c.log"}, exitFailed, "build/c.log"},
		{&cmakerun.FolderError{Dir: "d"}, exitFailed, "move d away"},
		{compile, exitFailed, "build/x.log"},
		{fmt.Errorf("x: %w", run.ErrNoMemory), exitFailed, "--jobs 1"},
		{fmt.Errorf("x: %w", run.ErrNoSpace), exitFailed, "PAYLOAD_CACHE"},
	} {
		f := failureOf(t.Context(), fmt.Errorf("doing: %w", c.err))
		if f.code != c.code || !strings.Contains(f.hint, c.hint) || c.hint == "" && f.hint != "" {
			t.Errorf("%T (%v): code %d, hint %q; want %d, %q", c.err, c.err, f.code, f.hint, c.code, c.hint)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if f := failureOf(cancelled, fmt.Errorf("x: %w", context.Canceled)); f.code != exitInterrupted || f.hint != "" {
		t.Errorf("cancelled: %+v", f)
	}
}

// Flags reach the options; each verb's own work is left out.
func TestBuildFlags(t *testing.T) {
	var got buildOptions
	cmd := newBuildCmd(&app{}, func(_ context.Context, _ *app, o buildOptions) error {
		got = o
		return nil
	})
	cmd.SetArgs([]string{"--preset", "cpu,vulkan", "-j", "3", "--launcher", "none", "--target", "a,b", "-n", "--source", "x=/y", "--source-kinds", "store"})
	cmd.SetOut(io.Discard)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := "[cpu vulkan] 3 none [a b] true [x=/y] store\n"
	if s := fmt.Sprintln(got.presets, got.jobs, got.launcher, got.targets, got.dryRun, got.overrides, got.kinds); s != want {
		t.Errorf("%q, want %q", s, want)
	}
}
