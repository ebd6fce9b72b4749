"""Copies a checkpoint, its weights as float32: FROM TO."""

import glob
import json
import os
import shutil
import sys

import mlx.core as mx

mx.set_default_device(mx.cpu)
source, target = sys.argv[1:]
shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors"))
for path in glob.glob(os.path.join(source, "*.safetensors")):
    weights = {name: w.astype(mx.float32) for name, w in mx.load(path).items()}
    mx.save_safetensors(os.path.join(target, os.path.basename(path)), weights, {"format": "pt"})
config = os.path.join(target, "config.json")
with open(config) as f:
    settings = json.load(f)
settings["torch_dtype"] = "float32"
with open(config, "w") as f:
    json.dump(settings, f, indent=2)
