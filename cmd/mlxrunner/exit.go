package main

import (
	"context"
	"errors"
	"io/fs"

	"payload/create"
	"payload/fs/safetensors"
	"payload/mlx"
	"payload/mlxrunner/chat"
	"payload/mlxrunner/generate"
	"payload/mlxrunner/model"
)

// The exit codes, for every verb.
const (
	exitDone         = 0
	exitFailed       = 1
	exitUsage        = 2
	exitPrerequisite = 6
	exitInterrupted  = 130
)

// failure is what the caller's shell and the person get to see of an error.
type failure struct {
	code int
	hint string
}

// failureOf maps the known errors of a verb, named as it is called, to exit
// codes and hints. It is the one place that does.
func failureOf(ctx context.Context, err error, verb string) failure {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return failure{code: exitInterrupted}
	}
	if is[*usageError](err) {
		return failure{exitUsage, verb + " --help"}
	}
	if is[*mlx.LoadError](err) {
		return failure{exitPrerequisite, "put mlxrunner beside its payload, or name the folder of libmlxc: " + mlx.PathVariable + "=DIR mlxrunner …"}
	}
	if is[*mlx.VersionError](err) || is[*mlx.SymbolError](err) {
		return failure{exitPrerequisite, "use the mlxrunner and the libraries of one payload"}
	}
	if is[*model.UnknownArchitectureError](err) {
		return failure{exitFailed, "mlxrunner show DIR tells what is in a checkpoint without loading it"}
	}
	if is[*model.TensorError](err) {
		return failure{exitFailed, "mlxrunner show DIR --json lists the tensors; fetch the checkpoint again if files are missing"}
	}
	if is[*generate.DraftError](err) {
		return failure{exitFailed, "take a draft of the same family, with the same tokenizer"}
	}
	if is[*generate.MemoryError](err) {
		return failure{exitFailed, "ask for less (--max-tokens, a shorter prompt), hold it in less (--kv-bits 8), or give more: --memory-budget SIZE"}
	}
	if is[*generate.ContextError](err) {
		return failure{exitFailed, "give a shorter prompt"}
	}
	if errors.Is(err, chat.ErrNoTemplate) {
		return failure{exitFailed, "complete a text instead: mlxrunner run --model DIR --prompt TEXT"}
	}
	var refused *create.SourceError
	if errors.As(err, &refused) {
		return failure{exitFailed, refused.Hint}
	}
	if errors.Is(err, create.ErrExists) {
		return failure{exitFailed, "name another folder, or replace the checkpoint: mlxrunner create --force SRC DST"}
	}
	if is[*keyError](err) {
		return failure{exitFailed, "put a key of your choice into a file, on one line, and name that: --api-key-file FILE"}
	}
	if errors.Is(err, safetensors.ErrNoWeights) || errors.Is(err, fs.ErrNotExist) {
		return failure{exitFailed, "name a folder that holds config.json, tokenizer.json and model*.safetensors"}
	}
	return failure{code: exitFailed}
}

func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}
