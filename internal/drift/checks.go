package drift

import (
	"context"

	"payload/internal/report"
)

// Check is one thing that has to hold.
type Check struct {
	ID          string
	Title       string
	Explanation string // what goes wrong otherwise, and what to do
	Upstream    bool   // asks upstream, so it runs only when that is asked for

	run func(context.Context, *repo) ([]report.Finding, error)
	fix func(context.Context, *repo) ([]string, error) // nil: a person decides
}

// Fixable says whether --fix can cure what the check finds.
func (c Check) Fixable() bool { return c.fix != nil }

// Checks are all checks, in the order of their findings.
func Checks() []Check {
	return []Check{
		{
			ID: "lock", Title: "Pins, series and payload.lock agree",
			Explanation: "payload.lock holds what was reviewed: each pin's commit, each patch's digest, the tree of every source and the tree that the series makes of it. " +
				"A pin or a patch that changed without it is built by nobody until the lock is written anew: payload lock.",
			run: checkLock, fix: fixLock,
		},
		{
			ID: "copies", Title: "Every declared copy of a pin says the same",
			Explanation: "A Dockerfile or a workflow that names the ref itself goes on building the old one after a bump. The copies are declared in payload.yaml, and payload update rewrites them.",
			run:         checkCopies, fix: fixCopies,
		},
		{
			ID: "coupled", Title: "Components that go together are pinned together",
			Explanation: "A component's own sources name the ref of another one that they were made for. Pinned apart, they compile against headers that they don't fit.",
			run:         checkCoupled,
		},
		{
			ID: "series", Title: "The series applies, is complete, and exports to itself",
			Explanation: "Each patch applies where it says, has a number of its own without gaps, tells who made it, why (Upstream-Status) and until when (Drop-When), and is byte for byte what payload patch export writes. " +
				"A series that doesn't export to itself changes in every update, and hides what was really changed.",
			run: checkSeries, fix: fixSeries,
		},
		{
			ID: "generated", Title: "Generated and vendored files are what their source makes now",
			Explanation: "A file that a command writes, or that was copied from a component, is made again in memory and compared. One that was edited by hand, or not made again after a bump, says something that is no longer true.",
			run:         checkGenerated, fix: fixGenerated,
		},
		{
			ID: "options", Title: "Presets set options that somebody declares",
			Explanation: "CMake warns once of an option that nothing reads, and never again in the same build folder; then the payload is built without what was asked for. " +
				"Declared is what the pinned sources or the project declare or read, by their CMake files; payload build asks a real configure.",
			run: checkOptions,
		},
		{
			ID: "targets", Title: "Presets name targets and components that exist",
			Explanation: "What a preset compiles and stages is named in it. A target that upstream renamed fails late; a component that nothing installs stages nothing.",
			run:         checkTargets,
		},
		{
			ID: "native", Title: "Release presets do not build for the machine that builds",
			Explanation: "Code for the build machine's own processor dies with an illegal instruction on older ones. payload.yaml's \"required\" names the options that presets have to set, and those that may do otherwise.",
			run:         checkNative,
		},
		{
			ID: "filters", Title: "Workflow path filters match files, and all inputs",
			Explanation: "A filter for a folder that was deleted or renamed matches nothing, and so do ./folder/** and folder/: GitHub compares the whole path, from the top, without a dot. Its job never runs again and nothing says so. " +
				"A filter that takes some inputs of a project has to take all: pin, lock, patches, CMake files.",
			run: checkFilters,
		},
		{
			ID: "cache-keys", Title: "Workflow caches of builds have keys that cover all inputs",
			Explanation: "A build folder that is restored under a key without the patches is used as if they were in it. One that is restored by the beginning of a key (restore-keys) brings an old CMakeCache.txt back, with defaults that upstream has changed since. payload cache-key prints a key that covers everything.",
			run:         checkCacheKeys,
		},
		{
			ID: "workflows", Title: "Workflows name files and presets that exist",
			Explanation: "A script, a local action, a Dockerfile or a preset that a workflow names has to be there.",
			run:         checkWorkflows,
		},
		{
			ID: "docker", Title: "Dockerfiles copy files that exist, and all inputs",
			Explanation: "A stage that copies some inputs of a project has to copy all. A patch that a list leaves out is missing from that image alone.",
			run:         checkDocker,
		},
		{
			ID: "depguard", Title: "Rules of the linter name files and packages that exist",
			Explanation: "A rule for a folder that was renamed holds nothing, and the linter is silent about it.",
			run:         checkDepguard,
		},
		{
			ID: "layout", Title: "The documented tree is true",
			Explanation: "The document that shows the repository's tree names what is there, and every folder that payload.yaml says it has to.",
			run:         checkLayout,
		},
		{
			ID: "waivers", Title: "Waivers are in force and needed",
			Explanation: "A waiver has a reason and a last day. After it, the finding counts again. One that waives nothing any more is to be deleted.",
			run:         func(context.Context, *repo) ([]report.Finding, error) { return nil, nil }, // see waive
		},
		{
			ID: "upstream", Title: "Upstream holds the pin, and the series fits what comes", Upstream: true,
			Explanation: "How far behind the pin is, whether its tag moved, which patches upstream has merged, and whether the series applies to the newest ref. Asked only with --upstream.",
			run:         checkUpstream,
		},
	}
}
