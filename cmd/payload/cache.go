package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"payload/internal/cmakerun"
	"payload/internal/source"
	"payload/internal/voice"
)

type cacheOptions struct{}

func newCacheCmd(a *app, do func(context.Context, *app, cacheOptions) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "Show, verify and prune the store of sources",
		Long: `Show what the store of sources holds: the git objects and each tree, its size,
when it was last used, and whether a build folder uses it. PAYLOAD_CACHE names
the store; all repositories of a machine share it.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return do(cmd.Context(), a, cacheOptions{}) },
	}
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	cmd.AddCommand(newCacheVerifyCmd(a, runCacheVerify), newCachePruneCmd(a, runCachePrune))
	return cmd
}

// openStore opens the store alone: it's there without a repository, too.
func openStore(ctx context.Context) (*source.Store, error) {
	dir, err := source.DefaultDir()
	if err != nil {
		return nil, err
	}
	return source.Open(ctx, dir)
}

type cacheReport struct {
	Schema string       `json:"schema"`
	Store  string       `json:"store"`
	Bytes  int64        `json:"bytes"` // all of the store
	Git    int64        `json:"git_bytes"`
	Other  int64        `json:"other_bytes"` // temporaries, downloads, locks, indexes of overrides
	Trees  []cachedTree `json:"trees"`
}

type cachedTree struct {
	Path      string    `json:"path"`
	Component string    `json:"component"`
	Ref       string    `json:"ref"`
	Commit    string    `json:"commit"`
	Pristine  string    `json:"pristine"`
	Patched   string    `json:"patched"`
	From      string    `json:"from"`
	Patches   int       `json:"patches"`
	Bytes     int64     `json:"bytes"`
	Used      time.Time `json:"last_used,omitzero"`
	Builds    []string  `json:"builds"` // build folders that use it
	Why       string    `json:"why,omitempty"`
}

func listTree(t source.Stored) cachedTree {
	return cachedTree{
		Path: t.Path, Component: t.Component, Ref: t.Ref, Commit: t.Commit, Pristine: t.Pristine, Patched: t.Patched,
		From: t.From, Patches: t.Patches, Bytes: t.Bytes, Used: t.Used.UTC(), Builds: append([]string{}, t.Builds...),
	}
}

func runCache(ctx context.Context, a *app, _ cacheOptions) error {
	store, err := openStore(ctx)
	if err != nil {
		return err
	}
	size, err := store.Size(cmakerun.TreesIn)
	if err != nil {
		return err
	}
	if a.json {
		report := cacheReport{
			Schema: "payload.cache/v1", Store: store.Dir(), Bytes: size.Total(), Git: size.Git, Other: size.Other, Trees: []cachedTree{},
		}
		for _, t := range size.Trees {
			report.Trees = append(report.Trees, listTree(t))
		}
		return a.printJSON(report)
	}
	table := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "COMPONENT\tREF\tCOMMIT\tPATCHES\tSIZE\tLAST USED\tIN USE")
	for _, t := range size.Trees {
		used, inUse := "unknown", "no"
		if !t.Used.IsZero() {
			used = t.Used.Format(time.DateOnly)
		}
		if len(t.Builds) > 0 {
			inUse = "yes"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", orDash(t.Component), orDash(t.Ref), orDash(t.Commit[:min(12, len(t.Commit))]), t.Patches, voice.Size(t.Bytes), used, inUse)
	}
	for _, row := range []struct {
		name  string
		bytes int64
	}{{"git objects", size.Git}, {"other files", size.Other}, {"total", size.Total()}} {
		fmt.Fprintf(table, "%s\t\t\t\t%s\t\t\n", row.name, voice.Size(row.bytes))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("writing the size: %w", err)
	}
	fmt.Fprintf(a.stdout, "in %s\n", store.Dir())
	return nil
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func newCacheVerifyCmd(a *app, do func(context.Context, *app, cacheOptions) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check every stored tree and the git objects",
		Long: `Check that every stored tree is what it was stored as and that the git objects,
upstream's commits too, are whole, and print what is damaged. Exit 5: something is.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return do(cmd.Context(), a, cacheOptions{}) },
	}
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

type cacheVerifyReport struct {
	Schema  string        `json:"schema"`
	Store   string        `json:"store"`
	Trees   int           `json:"trees"` // that were checked
	Damaged []damagedTree `json:"damaged"`
}

type damagedTree struct {
	Component string   `json:"component,omitempty"` // empty for the git objects, and where a tree's record is lost
	Ref       string   `json:"ref,omitempty"`
	Path      string   `json:"path"`
	Files     []string `json:"files"` // changed, missing and extra ones; git's words for the git objects
}

func runCacheVerify(ctx context.Context, a *app, _ cacheOptions) error {
	store, err := openStore(ctx)
	if err != nil {
		return err
	}
	checked, damaged, err := store.Verify(ctx)
	if err != nil {
		return err
	}
	report := cacheVerifyReport{Schema: "payload.cache-verify/v1", Store: store.Dir(), Trees: checked, Damaged: []damagedTree{}}
	for _, d := range damaged {
		report.Damaged = append(report.Damaged, damagedTree{Component: d.Component, Ref: d.Ref, Path: d.Path, Files: d.Files})
	}
	if a.json {
		if err := a.printJSON(report); err != nil {
			return err
		}
	} else {
		for _, d := range report.Damaged {
			fmt.Fprintln(a.stdout, strings.TrimSpace(d.Component+" "+d.Ref+" "+d.Path))
			for _, f := range d.Files {
				fmt.Fprintf(a.stdout, "  %s\n", f)
			}
		}
	}
	if len(damaged) > 0 {
		a.voice.Say("%s: %d damaged\nhint: payload cache prune --damaged", store.Dir(), len(damaged))
		return &reported{code: exitVerification}
	}
	a.voice.Say("%s: nothing is damaged; checked: the git objects, trees: %d", store.Dir(), checked)
	return nil
}

type cachePruneOptions struct {
	older   int
	all     bool
	damaged bool
	dryRun  bool
}

func newCachePruneCmd(a *app, do func(context.Context, *app, cachePruneOptions) error) *cobra.Command {
	var opts cachePruneOptions
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Delete stored trees that no build uses",
		Long: `Delete the stored trees that no build folder names, of any repository on this
machine, and that no process holds, and what killed processes left half-made.
The git objects stay, so that a tree is laid out again without a download.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			wrong := ""
			switch {
			case cmd.Flags().Changed("older") && opts.older < 1:
				wrong = fmt.Sprintf("--older %d: at least one day", opts.older)
			case opts.all && opts.older > 0:
				wrong = "--all and --older exclude each other"
			case opts.damaged && (opts.all || opts.older > 0):
				wrong = "--damaged goes with neither --all nor --older"
			}
			if wrong != "" {
				return &usageError{err: fmt.Errorf("%s", wrong), command: cmd.CommandPath()}
			}
			return do(cmd.Context(), a, opts)
		},
	}
	f := cmd.Flags()
	f.IntVar(&opts.older, "older", 0, "only trees that were not used for `DAYS` days")
	f.BoolVar(&opts.all, "all", false, "also the indexes that make reading an overriding folder quick")
	f.BoolVar(&opts.damaged, "damaged", false, "only what payload cache verify finds damaged, also where a build names it")
	f.BoolVarP(&opts.dryRun, "dry-run", "n", false, "tell what would go and delete nothing")
	f.BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

type cachePruneReport struct {
	Schema  string       `json:"schema"`
	Store   string       `json:"store"`
	DryRun  bool         `json:"dry_run"`
	Bytes   int64        `json:"bytes"` // that were freed
	Removed []cachedTree `json:"removed"`
	Spared  []cachedTree `json:"spared"`
	Files   []prunedFile `json:"files"` // temporaries and whatever else is no tree
	Records int          `json:"records"`
}

type prunedFile struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

func runCachePrune(ctx context.Context, a *app, opts cachePruneOptions) error {
	store, err := openStore(ctx)
	if err != nil {
		return err
	}
	pruned, err := store.Prune(ctx, source.PruneOptions{
		TreesOf: cmakerun.TreesIn, Older: time.Duration(opts.older) * 24 * time.Hour,
		All: opts.all, Damaged: opts.damaged, DryRun: opts.dryRun,
	})
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(reportPrune(store, pruned, opts))
	}
	removed, freed := "removed", "freed"
	if opts.dryRun {
		removed, freed = "would remove", "would free"
	}
	for _, t := range pruned.Trees {
		fmt.Fprintf(a.stdout, "%s %s, %d patches, %s: %s\n", removed, t.Name(), t.Patches, voice.Size(t.Bytes), t.Path)
	}
	for _, f := range pruned.Files {
		fmt.Fprintf(a.stdout, "%s %s, %s\n", removed, f.Path, voice.Size(f.Bytes))
	}
	for _, t := range pruned.Spared {
		fmt.Fprintf(a.stdout, "spared %s, %d patches: %s\n", t.Name(), t.Patches, t.Why)
	}
	a.voice.Say("%s: %s %s", store.Dir(), freed, voice.Size(pruned.Bytes()))
	return nil
}

func reportPrune(store *source.Store, pruned source.Pruned, opts cachePruneOptions) cachePruneReport {
	report := cachePruneReport{
		Schema: "payload.cache-prune/v1", Store: store.Dir(), DryRun: opts.dryRun, Bytes: pruned.Bytes(), Records: pruned.Records,
		Removed: []cachedTree{}, Spared: []cachedTree{}, Files: []prunedFile{},
	}
	for _, t := range pruned.Trees {
		report.Removed = append(report.Removed, listTree(t))
	}
	for _, t := range pruned.Spared {
		tree := listTree(t.Stored)
		tree.Why = t.Why
		report.Spared = append(report.Spared, tree)
	}
	for _, f := range pruned.Files {
		report.Files = append(report.Files, prunedFile(f))
	}
	return report
}
