package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

type versionOptions struct{}

func newVersionCmd(a *app, do func(context.Context, *app, versionOptions) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Print which payload this is", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return do(cmd.Context(), a, versionOptions{}) },
	}
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

func runVersion(_ context.Context, a *app, _ versionOptions) error {
	v := struct {
		Schema  string `json:"schema"`
		Version string `json:"version"`
		Commit  string `json:"commit,omitempty"`
		Changed bool   `json:"changed,omitempty"` // built with uncommitted changes
		Go      string `json:"go"`
		OS      string `json:"os"`
		Arch    string `json:"arch"`
	}{Schema: "payload.version/v1", Version: toolVersion(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Commit = s.Value
			case "vcs.modified":
				v.Changed = s.Value == "true"
			}
		}
	}
	if a.json {
		return a.printJSON(v)
	}
	line := "payload " + v.Version
	if v.Commit != "" {
		line += " (" + v.Commit[:min(12, len(v.Commit))]
		if v.Changed {
			line += ", changed"
		}
		line += ")"
	}
	fmt.Fprintf(a.stdout, "%s %s %s/%s\n", line, v.Go, v.OS, v.Arch)
	return nil
}

// toolVersion is which version of payload this is; devel where it was built from
// a folder.
func toolVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
