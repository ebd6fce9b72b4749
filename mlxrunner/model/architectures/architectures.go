// Package architectures makes every architecture known. It is the only list:
// a new one is a folder beside this one and a line here.
package architectures

import (
	_ "payload/mlxrunner/model/gemma2"
	_ "payload/mlxrunner/model/gemma3"
	_ "payload/mlxrunner/model/gptoss"
	_ "payload/mlxrunner/model/llama"
	_ "payload/mlxrunner/model/phi3"
	_ "payload/mlxrunner/model/qwen2"
	_ "payload/mlxrunner/model/qwen3"
	_ "payload/mlxrunner/model/qwen3moe"
	_ "payload/mlxrunner/model/seedoss"
)
