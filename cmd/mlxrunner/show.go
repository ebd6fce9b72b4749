package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"payload/mlxrunner/model"
	"payload/mlxrunner/server"
)

type showOptions struct {
	dir  string
	json bool
}

func newShowCmd(a *app, run func(context.Context, *app, showOptions) error) *cobra.Command {
	var o showOptions
	cmd := &cobra.Command{
		Use:   "show DIR",
		Short: "Tell what is in a checkpoint or a GGUF file, without loading it",
		Args:  args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.dir = args[0]
			return run(cmd.Context(), a, o)
		},
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON object, with every tensor")
	return cmd
}

func runShow(_ context.Context, a *app, o showOptions) error {
	if isFile(o.dir) {
		return showGGUF(a, o)
	}
	r, err := server.Show(o.dir)
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(a.stdout, r)
	}
	known := ""
	if !r.Known {
		known = " (not one that mlxrunner runs: " + strings.Join(model.Architectures(), ", ") + ")"
	}
	quantised := r.Quantisation
	if quantised == "" {
		quantised = "none"
	}
	fmt.Fprintf(a.stdout, "architecture  %s%s\nparameters    %d\nbytes         %d in %d tensors, %d files\n", r.Architecture, known, r.Parameters, r.Bytes, len(r.Tensors), len(r.Files))
	fmt.Fprintf(a.stdout, "quantisation  %s\ncontext       %d\nvocabulary    %d\nend ids       %v\n", quantised, r.Context, r.Vocabulary, r.EndIDs)
	for _, d := range r.Dropped {
		fmt.Fprintf(a.stdout, "not loaded    %s*: %d bytes in %d tensors, which text does not need\n", d.Prefix, d.Bytes, d.Tensors)
	}
	return nil
}
