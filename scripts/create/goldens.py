"""Records what ggml's own Python package makes of quantised blocks.

    python -m pip install -r scripts/create/requirements.txt
    python scripts/create/goldens.py > create/testdata/dequantized.json

Each case: the type's number and name, blocks of random bytes with scales that
are numbers, and the elements as the bits of float32, both in base64.
"""

import base64
import json
import sys

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES

# Where a block's half floats lie.
HALVES = {
    T.F16: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0],
    T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
}  # fmt: skip
BLOCKS = 24

rng = np.random.default_rng(8)
cases = []
for t in [T.F32, T.F16, T.BF16, *(k for k in HALVES if k != T.F16)]:
    elements, size = GGML_QUANT_SIZES[t]
    n = BLOCKS if elements > 1 else 256
    blocks = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for at in HALVES.get(t, []):
        # Subnormals, signs and both ends of what weights have.
        scale = (rng.standard_normal(n) * 10.0 ** rng.integers(-7, 1, n)).astype(np.float16)
        blocks[:, at : at + 2] = scale.view(np.uint8).reshape(n, 2)
    if t == T.F32:
        blocks = rng.standard_normal(n).astype(np.float32).view(np.uint8).reshape(n, 4)
    if t == T.BF16:
        blocks[:, 1] &= 0xBF  # no infinities
    values = np.ascontiguousarray(quants.dequantize(blocks, t).astype(np.float32))
    assert values.size == n * elements and np.isfinite(values).all(), t
    b64 = lambda a: base64.b64encode(a.tobytes()).decode()
    cases.append({"type": int(t), "name": t.name, "blocks": b64(blocks), "values": b64(values)})
json.dump(cases, sys.stdout, indent=0)
sys.stdout.write("\n")
