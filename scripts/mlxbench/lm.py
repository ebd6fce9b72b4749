"""Does what `mlxrunner run` does, with mlx-lm: MODEL PROMPT MAX_TOKENS [--json]. Prints something at the first token."""

import json
import resource
import sys
import time

import mlx.core as mx
from mlx_lm import load, stream_generate

mx.set_default_device(mx.cpu)
folder, prompt, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
model, tokenizer = load(folder)
tokens, times = [], [time.perf_counter()]
for r in stream_generate(model, tokenizer, prompt, max_tokens=limit):
    times.append(time.perf_counter())
    tokens.append(r.token)
    if not sys.argv[4:]:
        print(".", end="", flush=True)
    prompt_tokens = r.prompt_tokens
if sys.argv[4:]:
    resident, shared = map(int, open("/proc/self/statm").read().split()[1:3])
    print(json.dumps({
        "footprint_bytes": (resident - shared) * resource.getpagesize(),
        "tokens": tokens,
        "prompt_tokens": prompt_tokens,
        "first_token_ms": (times[1] - times[0]) * 1000,
        "decode_tps": (len(tokens) - 1) / (times[-1] - times[1]),
    }))
