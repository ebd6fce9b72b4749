"""Writes what mlx-lm computes for tiny models of each architecture: see README.md."""

import json
import math
import sys
import zlib

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models.cache import QuantizedKVCache
from mlx_lm.models.rope_utils import initialize_rope
from mlx_lm.utils import _get_classes

mx.set_default_device(mx.cpu)

# mlx-lm 0.32.2 passes an argument that MLX 0.32.2 does not have, always None here.
gather_qmm = mx.gather_qmm
mx.gather_qmm = lambda *args, global_scale=None, **named: gather_qmm(*args, **named)

LENGTH = 24
BASE = {
    "vocab_size": 40,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
# The strength of a model's distortion of positions shows within 24 tokens only where
# the original length is short.
ROPES = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
}
# The caps of the cases are low, or nothing would reach them.
GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 24, "tie_word_embeddings": True}
# 24 tokens take 72 experts, which mlx-lm sorts; smaller chunks it does not.
MOE = {
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [1],
    "moe_intermediate_size": 32,
}
GPT_OSS = {
    "num_local_experts": 8,
    "num_experts_per_tok": 3,
    "sliding_window": 8,
    "rope_theta": 150000.0,
    "rope_scaling": ROPES["yarn"],
    "layer_types": ["sliding_attention", "full_attention"],
}


def case(name, model_type, packed=None, **extra):
    """packed: how keys and values are held in the cache."""
    return {"name": name, "config": {"model_type": model_type, **BASE, **extra}, **({"packed": packed} if packed else {})}


def quantised(name, **quantization):
    return case(name, "llama", intermediate_size=128, quantization=quantization)


CASES = [
    case("llama", "llama"),
    case("llama tied", "llama", tie_word_embeddings=True),
    case("llama with biases", "llama", attention_bias=True, mlp_bias=True, num_key_value_heads=4),
    *[case("llama rope " + n, "llama", rope_scaling=r) for n, r in ROPES.items()],
    case("llama sliding", "llama", layer_types=["full_attention", "sliding_attention"], sliding_window=8),
    case("mistral", "mistral", num_key_value_heads=1, rope_theta=1e6),
    case("qwen2", "qwen2", rope_theta=1e6, use_sliding_window=False, sliding_window=4096, max_window_layers=2),
    case("qwen2 tied", "qwen2", tie_word_embeddings=True),
    case("qwen3", "qwen3", rope_theta=1e6, head_dim=32),
    case("qwen3 tied", "qwen3", tie_word_embeddings=True),
    case("qwen3_moe", "qwen3_moe", **MOE, norm_topk_prob=True),
    case("qwen3_moe packed", "qwen3_moe", **MOE, norm_topk_prob=False, quantization={"group_size": 32, "bits": 8}),
    case("phi3", "phi3", partial_rotary_factor=0.5),
    case(
        "phi3 long",
        "phi3",
        original_max_position_embeddings=16,
        rope_scaling={
            "type": "longrope",
            "short_factor": [1.0 + i / 8 for i in range(8)],
            "long_factor": [1.0 + i for i in range(8)],
        },
    ),
    case("phi3 packed", "phi3", intermediate_size=128, quantization={"group_size": 32, "bits": 4}),
    case("seed_oss", "seed_oss", head_dim=32, attention_bias=True, rope_scaling={"rope_type": "default"}),
    case("gpt_oss", "gpt_oss", **GPT_OSS),
    case("gpt_oss packed", "gpt_oss", **GPT_OSS, quantization={"group_size": 32, "bits": 4, "mode": "mxfp4"}),
    case("gemma2", "gemma2", **GEMMA, attn_logit_softcapping=2.0, final_logit_softcapping=3.0, sliding_window=4096),
    case("gemma3", "gemma3_text", **GEMMA, rope_local_base_freq=10000.0, sliding_window=8, sliding_window_pattern=2),
    case(
        "gemma3 scaled",
        "gemma3_text",
        **GEMMA,
        rope_local_base_freq=10000.0,
        rope_scaling=ROPES["linear"],
        sliding_window=5,
        sliding_window_pattern=2,
    ),
    case("keys in 8 bits", "qwen3", packed={"bits": 8, "group_size": 32}, head_dim=32),
    case("keys in 4 bits", "llama", packed={"bits": 4, "group_size": 64}, head_dim=64),
    *[
        case(name + " packed", name, intermediate_size=128, quantization={"group_size": 32, "bits": bits}, **extra)
        for name, bits, extra in (
            ("mistral", 4, {}),
            ("qwen2", 4, {}),
            ("qwen3", 6, {"head_dim": 32}),
            ("seed_oss", 8, {"attention_bias": True}),
            ("gemma2", 4, {**GEMMA, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0, "sliding_window": 4096}),
            ("gemma3_text", 8, {**GEMMA, "rope_local_base_freq": 10000.0, "sliding_window": 8, "sliding_window_pattern": 2}),
        )
    ],
    quantised("affine 4", group_size=32, bits=4),
    quantised("affine 3", group_size=64, bits=3),
    quantised("affine 8", group_size=32, bits=8, mode="affine"),
    quantised("mxfp4", group_size=32, bits=4, mode="mxfp4"),
    quantised("mxfp8", group_size=32, bits=8, mode="mxfp8"),
    quantised("nvfp4", group_size=16, bits=4, mode="nvfp4"),
    quantised(
        "mixed",
        group_size=32,
        bits=4,
        **{
            "model.embed_tokens": False,
            "model.layers.1.mlp.down_proj": {"group_size": 64, "bits": 6},
            "lm_head": {"group_size": 32, "bits": 8},
        },
    ),
]


def numbers(name, shape):
    """Numbers in [-0.5, 0.5) that the Go test makes too: a 32-bit mixer of name and place."""
    x = (np.arange(math.prod(shape), dtype=np.uint64) + zlib.crc32(name.encode())) & 0xFFFFFFFF
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ((x ^ (x >> shift)) * factor) & 0xFFFFFFFF
    x ^= x >> 16
    return (x.astype(np.float64) / 2**32 - 0.5).reshape(shape)


def weight(name, shape):
    n = numbers(name, shape)
    if len(shape) > 1:
        n = n * (2 if "embed" in name else 4 / math.sqrt(shape[-1]))
    elif name.endswith("norm.weight"):
        n = 1 + n
    return mx.array(n.astype(np.float32))


def round_all(values):
    return [float(f"{v:.7g}") for v in values]


def logits(c):
    config = c["config"]
    model_class, args_class = _get_classes(config)
    model = model_class(args_class.from_dict(config))
    shapes = {name: list(a.shape) for name, a in tree_flatten(model.parameters())}
    if config["tie_word_embeddings"]:
        shapes.pop("lm_head.weight", None)
    weights = {name: weight(name, shape) for name, shape in shapes.items()}
    if hasattr(model, "sanitize"):
        weights = model.sanitize(weights)
    model.load_weights(list(weights.items()))
    if q := config.get("quantization"):
        layers = {k: v for k, v in q.items() if k not in ("group_size", "bits", "mode")}
        nn.quantize(
            model,
            group_size=q["group_size"],
            bits=q["bits"],
            mode=q.get("mode", "affine"),
            class_predicate=lambda p, m: layers.get(p, hasattr(m, "to_quantized")),
        )
    tokens = [(7 * i * i + 3 * i + 1) % config["vocab_size"] for i in range(LENGTH)]
    cache = [QuantizedKVCache(**c["packed"]) for _ in model.layers] if "packed" in c else None
    out = model(mx.array([tokens]), cache).astype(mx.float32)
    return {**c, "tensors": shapes, "tokens": tokens, "logits": round_all(np.array(out).ravel().tolist())}


def ropes():
    """64 rotated ones, at three places; YaRN's multiplier is in them."""
    published = {
        "default": None,
        "linear": {"rope_type": "linear", "factor": 4.0},
        # Llama 3.2's
        "llama3": {
            "rope_type": "llama3",
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        # Qwen 2.5's and gpt-oss's
        "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
        "yarn untouched ends": {
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "original_max_position_embeddings": 4096,
        },
    }
    out = []
    for name, scaling in published.items():
        rope = initialize_rope(64, 500000.0, False, scaling, 131072)
        for offset in (0, 8192, 60000):
            y = rope(mx.ones((1, 1, 1, 64)), offset=offset)
            out.append({"name": name, "scaling": scaling, "offset": offset, "values": round_all(np.array(y).ravel().tolist())})
    return out


json.dump({"cases": [logits(c) for c in CASES], "ropes": ropes()}, sys.stdout, separators=(",", ":"))
sys.stdout.write("\n")
