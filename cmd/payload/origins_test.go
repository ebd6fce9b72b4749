package main

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"payload/internal/config"
)

// licenceTexts are words by which the licences of the modules here are told apart.
var licenceTexts = []struct{ words, licence string }{
	{"Apache License", "Apache-2.0"},
	{"Redistribution and use", "BSD-3-Clause"},
	{"Permission is hereby granted", "MIT"},
}

// TestOriginsOfModules holds payload.yaml's origins against the licences of what
// is linked into the payload's own programs, on every system.
func TestOriginsOfModules(t *testing.T) {
	f, err := config.Load("../..")
	if err != nil {
		t.Fatal(err)
	}
	programs := 0
	for _, c := range f.Components {
		for _, p := range c.Programs {
			programs++
			folders := map[string]string{"go": goroot(t)}
			for _, goos := range config.Systems {
				cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}", "./"+p.Package)
				cmd.Dir, cmd.Env = f.Root, append(os.Environ(), "GOOS="+goos, "GOARCH=amd64", "CGO_ENABLED=0")
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("go list for %s: %v", goos, err)
				}
				for line := range strings.Lines(string(out)) {
					if name, dir, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
						folders[strings.ReplaceAll(name, "/", "_")] = dir
					}
				}
			}
			for name, dir := range folders {
				file := path.Join("licenses", path.Base(p.Package), name, "LICENSE")
				i := slices.IndexFunc(f.Packages.Origins, func(o config.Origin) bool { return config.Matches(o.Files, file) })
				if want := licenceIn(t, dir); f.Packages.Origins[i].License != want || f.Packages.Origins[i].Component != "" {
					t.Errorf("%s is licensed under %s, payload.yaml has it among %+v", file, want, f.Packages.Origins[i])
				}
			}
		}
	}
	if programs == 0 {
		t.Error("there are no programs")
	}
}

// TestOriginsOfSDKs holds payload.yaml's origins against the names that files of
// SDKs have in their own packages: none of them may pass as another project's.
func TestOriginsOfSDKs(t *testing.T) {
	f, err := config.Load("../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string][]string{
		"cuda": {
			"cuda_v12/libcudart.so.12", "cuda_v12/libcublas.so.12", "cuda_v12/libcublasLt.so.12", "cuda_v12/libnvrtc.so.12", "cuda_v12/libnvrtc-builtins.so.12.9",
			"cuda_jetpack6/libcublas.so.12", "cuda_v13/cudart64_13.dll", "cuda_v13/cublasLt64_13.dll", "cuda_v13/nvrtc64_130_0.dll", "licenses/cuda_v12/EULA.txt",
			"mlx_cuda_v13/lib/libcublas.so.13", "mlx_cuda_v13/lib/libnvrtc-builtins.so.13.0", "mlx_cuda_v13/lib/libcufft.so.12", "mlx_cuda_v13/nvrtc64_130_0.dll",
			"nvidia/cu13/include/cuda_fp16.h", "licenses/mlx_cuda_v13/lib/EULA.txt",
		},
		"cudnn":   {"mlx_cuda_v13/lib/libcudnn.so.9", "mlx_cuda_v13/lib/libcudnn_graph.so.9", "mlx_cuda_v13/cudnn64_9.dll"},
		"nccl":    {"mlx_cuda_v13/lib/libnccl.so.2"},
		"cutlass": {"mlx_cuda_v13/include/cute/tensor.hpp", "mlx_cuda_v13/include/cutlass/cutlass.h"},
		"cccl":    {"mlx_cuda_v13/include/cccl/cuda/std/array", "nvidia/cu13/include/cccl/cub/cub.cuh"},
		"rocr":    {"rocm_v7_2/libhsa-runtime64.so.1", "rocm_v7_2/libamd_comgr.so.3", "rocm_v7_1/amd_comgr0701.dll"},
		"rocm": {
			"rocm_v7_2/libamdhip64.so.7", "rocm_v7_2/librocblas.so.5", "rocm_v7_2/libhipblas.so.3", "rocm_v7_2/libhipblaslt.so.1", "rocm_v7_2/librocprofiler-register.so.0",
			"rocm_v7_2/rocblas/library/Kernels.so-000-gfx1100.hsaco", "rocm_v7_2/rocblas/library/TensileLibrary_lazy_gfx1100.dat", "rocm_v7_2/hipblaslt/library/extop_gfx942.co",
			"rocm_v7_1/rocblas.dll", "rocm_v7_1/libhipblas.dll", "rocm_v7_1/amdhip64_7.dll", "licenses/rocm_v7_2/rocblas/LICENSE.md",
		},
		"rocsolver": {"rocm_v7_2/librocsolver.so.0", "rocm_v7_1/rocsolver.dll"},
		"llama.cpp": {"cuda_v12/libggml-cuda.so", "cuda_v12/ggml-cuda.dll", "rocm_v7_2/libggml-hip.so", "rocm_v7_1/ggml-hip.dll", "libllama.so"},
		"mlx":       {"mlx_cuda_v13/lib/libmlx.so", "licenses/mlx/LICENSE"},
		"mlx-c":     {"mlx_cuda_v13/lib/libmlxc.so", "mlx_cuda_v13/mlxc.dll"},
	} {
		for _, file := range files {
			i := slices.IndexFunc(f.Packages.Origins, func(o config.Origin) bool { return config.Matches(o.Files, file) })
			if i < 0 || f.Packages.Origins[i].Name+f.Packages.Origins[i].Component != name {
				t.Errorf("%s is of %s, payload.yaml has it among %+v", file, name, f.Packages.Origins[max(i, 0)])
			}
		}
	}
}

func goroot(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func licenceIn(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "LICENSE*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no licence: %v", dir, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range licenceTexts {
		if strings.Contains(string(text), l.words) {
			return l.licence
		}
	}
	t.Fatalf("%s: no known licence", files[0])
	return ""
}
