package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"payload/create"
	"payload/mlx"
	"payload/mlx/mlxthread"
	"payload/mlx/quant"
)

type createOptions struct {
	src, dst string
	quantize string
	dtype    string
	force    bool
	json     bool
}

func newCreateCmd(a *app, run func(context.Context, *app, createOptions) error) *cobra.Command {
	var o createOptions
	cmd := &cobra.Command{
		Use:   "create SRC DST",
		Short: "Make a checkpoint out of a Hugging Face folder or a GGUF file",
		Long: `Make the folder DST out of SRC: a folder in the Hugging Face layout (config.json,
tokenizer.json, safetensors), or a GGUF file. Without --quantize its weights are
plain. Quantising needs the MLX library, everything else does not.`,
		Args: args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.src, o.dst = args[0], args[1]
			return run(cmd.Context(), a, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.quantize, "quantize", "", "quantise matrices as `MODE:BITS:GROUP`: affine (2, 3, 4, 5, 6, 8 bits; groups of 32, 64, 128), mxfp4, mxfp8, nvfp4")
	f.StringVar(&o.dtype, "dtype", "", "convert plain weights to `TYPE`: float32, float16, bfloat16 (as the source has them; bfloat16 for GGUF)")
	f.BoolVar(&o.force, "force", false, "replace the checkpoint DST")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	return cmd
}

// createReport is mlxrunner.create/v1.
type createReport struct {
	Schema string `json:"schema"`
	Source string `json:"source"`
	Path   string `json:"path"`
	create.Result
}

func runCreate(ctx context.Context, a *app, o createOptions) error {
	how, err := o.options(a)
	if err != nil {
		return &usageError{err}
	}
	made, err := importTo(ctx, o, how)
	a.voice.clear()
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(a.stdout, createReport{"mlxrunner.create/v1", o.src, o.dst, made})
	}
	kind, files := made.Quantisation, "files"
	switch {
	case kind == "" && made.DType == "":
		kind = "stored"
	case kind == "":
		kind = made.DType
	}
	if len(made.Files) == 1 {
		files = "file"
	}
	fmt.Fprintf(a.stdout, "%s: %s, %d parameters as %s, %d bytes in %d tensors, %d %s\n", o.dst, made.Architecture, made.Parameters, kind, made.Bytes, made.Tensors, len(made.Files), files)
	return nil
}

// options reads what the flags say.
func (o createOptions) options(a *app) (create.Options, error) {
	how := create.Options{Force: o.force, Progress: func(done, total int64) { a.voice.progress("writing", done, total) }}
	var err error
	if o.dtype != "" {
		if how.DType, err = create.ParseDType(o.dtype); err != nil {
			return how, err
		}
	}
	if o.quantize != "" {
		p, err := quant.Parse(o.quantize)
		if err != nil {
			return how, err
		}
		how.Quantize = &p
	}
	return how, nil
}

// importTo runs the import, on a thread of MLX where it is needed.
func importTo(ctx context.Context, o createOptions, how create.Options) (create.Result, error) {
	if how.Quantize == nil {
		return create.Run(ctx, o.src, o.dst, how)
	}
	thread, err := startThread()
	if err != nil {
		return create.Result{}, err
	}
	made, err := mlxthread.Call(ctx, thread, func(ctx context.Context, scope *mlx.Scope) (create.Result, error) {
		how.Scope = scope
		return create.Run(ctx, o.src, o.dst, how)
	})
	if closed := thread.Close(); err == nil {
		err = closed
	}
	return made, err
}
