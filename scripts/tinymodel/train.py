"""Trains the tiny llama model that the verify package embeds.

python train.py --out DIR     train and write every file into DIR
python train.py --check DIR   prove that the files in DIR agree with each other

See README.md for what the model is for and why it looks as it does.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import time

# One thread keeps the order of float additions fixed, so that a seed gives the
# same weights again on the same kind of processor. Must be set before jax loads.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
).strip()

import gguf
import jinja2
import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from tokenizers import processors, trainers

HERE = pathlib.Path(__file__).resolve().parent

# Every row count is a multiple of 64, so that tile kernels (rows in steps of
# 32) and interleaved kernels (rows in steps of 4 or 8) take all the matrices.
VOCAB = 512
HIDDEN = 128
FFN = 256
LAYERS = 3
HEADS = 2
KV_HEADS = 1
HEAD_DIM = 64
CONTEXT = 1024
EPS = 1e-5
THETA = 10000.0

BOS, TURN, EOS, PAD = "<|bos|>", "<|im_start|>", "<|im_end|>", "<|pad|>"
SPECIALS = [BOS, TURN, EOS, PAD]
BOS_ID, TURN_ID, EOS_ID, PAD_ID = range(4)

# The markers are those of ChatML, so a server that only knows built-in formats
# and recognises them by their markers builds the same text as the template.
TEMPLATE = (
    "{{- bos_token }}"
    "{%- for message in messages %}"
    "{{- '<|im_start|>' }}{{- message['role'] }}{{- '\\n' }}"
    "{{- message['content'] }}{{- '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)

SEED = 20
STEPS = 1300
TEXT_ROWS, CHAT_ROWS = 12, 8
PEAK_LR = 3e-3
MARGIN_GOAL = 10.0
NOISE = 1.0


# ---- corpus and tokenizer -------------------------------------------------


def read_corpus():
    """Returns the passages {name: text} and the chats {name: messages}."""
    texts, chats = {}, {}
    raw = (HERE / "corpus.txt").read_text(encoding="utf-8")
    for part in raw.split("### ")[1:]:
        head, body = part.split("\n", 1)
        kind, name = head.split(" ", 1)
        body = body.strip("\n")
        if kind == "text":
            texts[name] = body
            continue
        messages = []
        for line in body.split("\n"):
            role, content = line.split(": ", 1)
            messages.append({"role": role, "content": content.replace("\\n", "\n")})
        chats[name] = messages
    return texts, chats


def render(messages, add_generation_prompt):
    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    return env.from_string(TEMPLATE).render(
        messages=messages, bos_token=BOS, add_generation_prompt=add_generation_prompt
    )


def train_tokenizer(texts, chats):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=[AddedToken(s, special=True) for s in SPECIALS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    lines = list(texts.values())
    for messages in chats.values():
        lines += [m["role"] + "\n" for m in messages]
        lines += [m["content"] for m in messages]
    tok.train_from_iterator(lines, trainer)
    if tok.get_vocab_size() != VOCAB:
        raise SystemExit(f"vocabulary has {tok.get_vocab_size()} entries, want {VOCAB}")
    tok.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, BOS_ID)]
            ),
        ]
    )
    return tok


def encode(tok, text):
    """Token ids of text without the start token that a server would add."""
    return tok.encode(text, add_special_tokens=False).ids


# ---- weights: Q8_0 with power-of-two scales -------------------------------
#
# A scale of 2^k makes q * 2^k exact in float16, bfloat16 and float32, because
# |q| <= 127 needs 7 bits. So one set of weights serves every file and runtime.


def shapes():
    out = {"model.embed_tokens.weight": (VOCAB, HIDDEN)}
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        out[p + "input_layernorm.weight"] = (HIDDEN,)
        out[p + "self_attn.q_proj.weight"] = (HEADS * HEAD_DIM, HIDDEN)
        out[p + "self_attn.k_proj.weight"] = (KV_HEADS * HEAD_DIM, HIDDEN)
        out[p + "self_attn.v_proj.weight"] = (KV_HEADS * HEAD_DIM, HIDDEN)
        out[p + "self_attn.o_proj.weight"] = (HIDDEN, HEADS * HEAD_DIM)
        out[p + "post_attention_layernorm.weight"] = (HIDDEN,)
        out[p + "mlp.gate_proj.weight"] = (FFN, HIDDEN)
        out[p + "mlp.up_proj.weight"] = (FFN, HIDDEN)
        out[p + "mlp.down_proj.weight"] = (HIDDEN, FFN)
    out["model.norm.weight"] = (HIDDEN,)
    out["lm_head.weight"] = (VOCAB, HIDDEN)
    return out


def quantise(w):
    """Returns exponents (rows, blocks) and int8 values (rows, blocks, 32)."""
    blocks = w.reshape(w.shape[0], -1, 32)
    top = np.abs(blocks).max(axis=-1)
    k = np.ceil(np.log2(np.maximum(top, 1e-30) / 127)).clip(-14, 8).astype(np.int32)
    q = np.rint(np.ldexp(blocks, -k[..., None])).clip(-127, 127).astype(np.int8)
    return k, q


def round_norm(v):
    """Rounds to 8 significant bits."""
    m, e = np.frexp(v)
    return np.ldexp(np.rint(m * 256) / 256, e).astype(np.float32)


def dequantise(k, q):
    w = np.ldexp(q.astype(np.float32), k[..., None])
    return w.reshape(q.shape[0], -1)


# ---- reference forward pass, numpy only -----------------------------------


def forward(weights, ids, q8_activations=False):
    """Logits (len(ids), VOCAB). With q8_activations every matrix product gets
    its input rounded to 8 bits in blocks of 32, as integer kernels do."""

    def norm(x, w):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * w

    def matmul(x, name):
        if q8_activations:
            b = x.reshape(len(x), -1, 32)
            d = np.abs(b).max(-1, keepdims=True) / 127
            q = np.rint(b / np.where(d == 0, 1, d))
            x = (q * d.astype(np.float16).astype(np.float32)).reshape(x.shape)
        return x @ weights[name].T

    def rope(x):
        half = HEAD_DIM // 2
        freq = THETA ** (-np.arange(half, dtype=np.float32) / half)
        angle = np.arange(len(x), dtype=np.float32)[:, None] * freq
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    n = len(ids)
    weights = {k: v.astype(np.float32) for k, v in weights.items()}
    x = weights["model.embed_tokens.weight"][np.asarray(ids)]
    future = np.triu(np.ones((n, n), bool), 1)
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        h = norm(x, weights[p + "input_layernorm.weight"])
        q = rope(matmul(h, p + "self_attn.q_proj.weight").reshape(n, HEADS, HEAD_DIM))
        k = rope(matmul(h, p + "self_attn.k_proj.weight").reshape(n, KV_HEADS, HEAD_DIM))
        v = matmul(h, p + "self_attn.v_proj.weight").reshape(n, KV_HEADS, HEAD_DIM)
        k, v = (np.repeat(t, HEADS // KV_HEADS, axis=1) for t in (k, v))
        score = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(np.float32(HEAD_DIM))
        score = np.where(future, -np.inf, score)
        score = np.exp(score - score.max(-1, keepdims=True))
        score /= score.sum(-1, keepdims=True)
        out = np.einsum("hqk,khd->qhd", score, v).reshape(n, -1)
        x = x + matmul(out, p + "self_attn.o_proj.weight")
        h = norm(x, weights[p + "post_attention_layernorm.weight"])
        gate = matmul(h, p + "mlp.gate_proj.weight")
        up = matmul(h, p + "mlp.up_proj.weight")
        x = x + matmul(gate / (1 + np.exp(-gate)) * up, p + "mlp.down_proj.weight")
    return matmul(norm(x, weights["model.norm.weight"]), "lm_head.weight")


def margins(weights, prompt_ids, answer_ids, q8_activations=False):
    """Logit of each expected token less the best other one. All positive means
    that greedy decoding gives exactly answer_ids."""
    logits = forward(weights, prompt_ids + answer_ids[:-1], q8_activations)
    logits = logits[len(prompt_ids) - 1 :]
    rows = np.arange(len(answer_ids))
    right = logits[rows, answer_ids]
    logits[rows, answer_ids] = -np.inf
    return right - logits.max(-1)


# ---- training --------------------------------------------------------------


def train(tok, texts, chats, steps):
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(SEED)
    passages = [encode(tok, t) + [EOS_ID] for t in texts.values()]
    dialogues = []
    for messages in chats.values():
        text = render(messages, False)[len(BOS) :]
        ids = encode(tok, text)[:-1]  # less the line break after the last turn
        # Only the assistant's words are to be learnt.
        prompt = encode(tok, render(messages[:-1], True)[len(BOS) :])
        answer = [j >= len(prompt) for j in range(len(ids))]
        dialogues.append((ids, answer))
    text_len = max(map(len, passages)) + 2
    chat_len = max(len(d[0]) for d in dialogues) + 2
    print(f"{len(passages)} passages up to {text_len} tokens,", end=" ")
    print(f"{len(dialogues)} chats up to {chat_len}, {sum(map(len, passages))} tokens")

    # From here on a passage differs from every other one, so that only one
    # continuation is right and the margin may be widened.
    unique = []
    for a in passages:
        first = 1
        for b in passages:
            if a is not b:
                same = 0
                while same < min(len(a), len(b)) and a[same] == b[same]:
                    same += 1
                first = max(first, same + 1)
        unique.append(first)

    def start_tokens():
        # Mostly one start token; sometimes none or two, as careless servers do.
        return [BOS_ID] * int(rng.choice([0, 1, 2], p=[0.1, 0.85, 0.05]))

    def batch():
        text = np.full((TEXT_ROWS, text_len), PAD_ID, np.int32)
        text_ce = np.zeros((TEXT_ROWS, text_len), np.float32)
        text_wide = np.zeros((TEXT_ROWS, text_len), np.float32)
        picks = rng.permutation(len(passages))[:TEXT_ROWS]
        for r, d in enumerate(picks):
            ids, begin = passages[d], 0
            if rng.random() < 0.35:
                begin = int(rng.integers(0, len(ids) - 24))
            lead = start_tokens()
            row = lead + ids[begin:]
            text[r, : len(row)] = row
            text_ce[r, len(lead) + (4 if begin else 0) : len(row)] = 1
            if begin == 0:
                text_wide[r, len(lead) + unique[d] : len(row)] = 1
        chat = np.full((CHAT_ROWS, chat_len), PAD_ID, np.int32)
        chat_ce = np.zeros((CHAT_ROWS, chat_len), np.float32)
        for r, d in enumerate(rng.permutation(len(dialogues))[:CHAT_ROWS]):
            ids, answer = dialogues[d]
            lead = start_tokens()
            chat[r, : len(lead) + len(ids)] = lead + ids
            chat_ce[r, len(lead) : len(lead) + len(ids)] = answer
        return (text, text_ce, text_wide), (chat, chat_ce, chat_ce)

    @jax.custom_vjp
    def as_stored(w):
        if w.ndim == 1:  # norms: 8 significant bits, exact in every float type
            return w.astype(jnp.bfloat16).astype(jnp.float32)
        b = w.reshape(w.shape[0], -1, 32)
        top = jnp.maximum(jnp.abs(b).max(-1, keepdims=True), 1e-30)
        s = jnp.exp2(jnp.clip(jnp.ceil(jnp.log2(top / 127)), -14, 8))
        return (jnp.clip(jnp.round(b / s), -127, 127) * s).reshape(w.shape)

    # The gradient passes straight through the rounding.
    as_stored.defvjp(lambda w: (as_stored(w), None), lambda _, g: (g,))

    def norm(x, w):
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + EPS) * w

    def logits_of(p, ids, key, noise):
        count = [0]

        def matmul(x, name):
            # Noise of twice what rounding to 8 bits does, so that the rounding
            # of no kernel changes a decision. Much more would teach the model
            # to bear real faults as well.
            count[0] += 1
            b = jax.lax.stop_gradient(x).reshape(*x.shape[:-1], -1, 32)
            step = jnp.abs(b).max(-1, keepdims=True) / 127
            u = jax.random.uniform(
                jax.random.fold_in(key, count[0]), b.shape, minval=-1.0, maxval=1.0
            )
            return (x + (u * step * noise).reshape(x.shape)) @ p[name].T

        half = HEAD_DIM // 2
        n = ids.shape[1]
        freq = THETA ** (-jnp.arange(half) / half)
        angle = jnp.arange(n)[:, None] * freq
        cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]

        def rope(x):
            a, b = x[..., :half], x[..., half:]
            return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

        x = p["model.embed_tokens.weight"][ids]
        past = jnp.tril(jnp.ones((n, n), bool))
        for i in range(LAYERS):
            m = f"model.layers.{i}."
            h = norm(x, p[m + "input_layernorm.weight"])
            q = matmul(h, m + "self_attn.q_proj.weight")
            k = matmul(h, m + "self_attn.k_proj.weight")
            v = matmul(h, m + "self_attn.v_proj.weight")
            q = rope(q.reshape(*ids.shape, HEADS, HEAD_DIM))
            k = rope(k.reshape(*ids.shape, KV_HEADS, HEAD_DIM))
            v = v.reshape(*ids.shape, KV_HEADS, HEAD_DIM)
            k, v = (jnp.repeat(t, HEADS // KV_HEADS, axis=2) for t in (k, v))
            score = jnp.einsum("bqhd,bkhd->bhqk", q, k) / HEAD_DIM**0.5
            score = jax.nn.softmax(jnp.where(past, score, -1e30))
            out = jnp.einsum("bhqk,bkhd->bqhd", score, v).reshape(*ids.shape, -1)
            x = x + matmul(out, m + "self_attn.o_proj.weight")
            h = norm(x, p[m + "post_attention_layernorm.weight"])
            gate = matmul(h, m + "mlp.gate_proj.weight")
            up = matmul(h, m + "mlp.up_proj.weight")
            x = x + matmul(jax.nn.silu(gate) * up, m + "mlp.down_proj.weight")
        return matmul(norm(x, p["model.norm.weight"]), "lm_head.weight")

    def loss_of(params, parts, key, noise, push):
        p = {k: as_stored(v) for k, v in params.items()}
        loss, low = 0.0, []
        for j, (ids, ce, wide) in enumerate(parts):
            logits = logits_of(p, ids[:, :-1], jax.random.fold_in(key, j), noise)
            goal, ce, wide = ids[:, 1:], ce[:, 1:], wide[:, 1:]
            right = jnp.take_along_axis(logits, goal[..., None], -1)[..., 0]
            loss += (ce * (jax.nn.logsumexp(logits, -1) - right)).sum() / ce.sum()
            other = jnp.where(jax.nn.one_hot(goal, VOCAB, dtype=bool), -1e30, logits)
            gap = right - other.max(-1)
            short = jax.nn.relu(MARGIN_GOAL - gap)
            loss += push * (wide * short).sum() / wide.sum()
            low.append(jnp.where(wide > 0, gap, 1e30).min())
        return loss, jnp.stack(low)

    def update(params, m, v, parts, step):
        done = step / steps
        lr = PEAK_LR * jnp.minimum(1, (step + 1) / 60)
        lr = lr * (0.02 + 0.98 * 0.5 * (1 + jnp.cos(jnp.pi * done)))
        noise = NOISE * jnp.clip((done - 0.3) * 5, 0, 1)
        push = 0.1 * jnp.clip((done - 0.3) * 5, 0, 1)
        key = jax.random.fold_in(jax.random.key(SEED), step)
        (loss, low), g = jax.value_and_grad(loss_of, has_aux=True)(
            params, parts, key, noise, push
        )
        size = jnp.sqrt(sum((x * x).sum() for x in g.values()))
        scale = jnp.minimum(1, 1 / (size + 1e-9))
        t = step + 1
        new, nm, nv = {}, {}, {}
        for k in params:
            gk = g[k] * scale
            nm[k] = 0.9 * m[k] + 0.1 * gk
            nv[k] = 0.98 * v[k] + 0.02 * gk * gk
            d = nm[k] / (1 - 0.9**t) / (jnp.sqrt(nv[k] / (1 - 0.98**t)) + 1e-8)
            decay = 0.02 if params[k].ndim == 2 else 0.0
            new[k] = params[k] - lr * (d + decay * params[k])
        return new, nm, nv, loss, low

    update = jax.jit(update, donate_argnums=(0, 1, 2))
    params = {}
    for name, shape in shapes().items():
        if len(shape) == 1:
            w = np.ones(shape)
        else:
            w = rng.normal(size=shape) * shape[1] ** -0.5
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                w *= (2 * LAYERS) ** -0.5
        params[name] = jnp.asarray(w, jnp.float32)
    m = {k: jnp.zeros_like(x) for k, x in params.items()}
    v = {k: jnp.zeros_like(x) for k, x in params.items()}
    began = time.time()
    for step in range(steps):
        params, m, v, loss, low = update(params, m, v, batch(), step)
        if step % 50 == 0 or step == steps - 1:
            low = np.asarray(low)
            print(
                f"step {step} loss {float(loss):.5f} least margin under noise "
                f"{low[0]:.2f} (text) {low[1]:.2f} (chat) {time.time() - began:.0f}s",
                flush=True,
            )
    return {k: np.asarray(x) for k, x in params.items()}


# ---- files -----------------------------------------------------------------


def gguf_name(name):
    if name == "lm_head.weight":
        return "output.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    _, _, layer, rest = name.split(".", 3)
    part = {
        "input_layernorm.weight": "attn_norm",
        "self_attn.q_proj.weight": "attn_q",
        "self_attn.k_proj.weight": "attn_k",
        "self_attn.v_proj.weight": "attn_v",
        "self_attn.o_proj.weight": "attn_output",
        "post_attention_layernorm.weight": "ffn_norm",
        "mlp.gate_proj.weight": "ffn_gate",
        "mlp.up_proj.weight": "ffn_up",
        "mlp.down_proj.weight": "ffn_down",
    }[rest]
    return f"blk.{layer}.{part}.weight"


def rope_rows(name):
    """Order in which GGUF holds the rows of a matrix that the Hugging Face
    layout holds in plain order: llama graphs rotate neighbouring rows, the
    Hugging Face ones rotate the first half of a head against the second."""
    rows = np.arange(shapes()[name][0])
    if "q_proj" in name or "k_proj" in name:
        rows = rows.reshape(-1, 2, HEAD_DIM // 2).swapaxes(1, 2).reshape(-1)
    return rows


def write_gguf(path, params, tok):
    w = gguf.GGUFWriter(str(path), "llama")
    w.add_name("payload tiny")
    w.add_description("memorises a short text to show that an engine computes correctly")
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    w.add_vocab_size(VOCAB)
    w.add_context_length(CONTEXT)
    w.add_embedding_length(HIDDEN)
    w.add_block_count(LAYERS)
    w.add_feed_forward_length(FFN)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_key_length(HEAD_DIM)
    w.add_value_length(HEAD_DIM)
    w.add_layer_norm_rms_eps(EPS)
    w.add_rope_dimension_count(HEAD_DIM)
    w.add_rope_freq_base(THETA)
    model = json.loads(tok.to_str())["model"]
    by_id = sorted(tok.get_vocab().items(), key=lambda e: e[1])
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list([t for t, _ in by_id])
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    w.add_token_types([control if i < len(SPECIALS) else normal for _, i in by_id])
    w.add_token_merges([" ".join(m) for m in model["merges"]])
    w.add_bos_token_id(BOS_ID)
    w.add_eos_token_id(EOS_ID)
    w.add_eot_token_id(EOS_ID)
    w.add_pad_token_id(PAD_ID)
    w.add_add_bos_token(True)
    w.add_add_eos_token(False)
    w.add_chat_template(TEMPLATE)
    for name, value in params.items():
        if value.ndim == 1:
            w.add_tensor(gguf_name(name), value.astype(np.float32))
            continue
        k, q = quantise(value)
        rows = rope_rows(name)
        k, q = k[rows], q[rows]
        scale = np.ldexp(np.float32(1), k).astype(np.float16)
        raw = np.concatenate([scale[..., None].view(np.uint8), q.view(np.uint8)], -1)
        w.add_tensor(
            gguf_name(name),
            np.ascontiguousarray(raw.reshape(raw.shape[0], -1)),
            raw_dtype=gguf.GGMLQuantizationType.Q8_0,
        )
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write_json(path, value):
    text = json.dumps(value, ensure_ascii=False, indent=2)
    # Lists of numbers read better, and differ less, on one line.
    text = re.sub(r"\[[\d\s,]+\]", lambda m: str(json.loads(m[0])), text)
    path.write_text(text + "\n", encoding="utf-8")


def write_safetensors(folder, params, tok):
    folder.mkdir(parents=True, exist_ok=True)
    stored = {}
    for name, value in params.items():
        exact = value if value.ndim == 1 else dequantise(*quantise(value))
        stored[name] = exact.astype(np.float16)
        if not np.array_equal(stored[name].astype(np.float32), exact):
            raise SystemExit(f"{name} is not exact in float16")
    save_file(stored, str(folder / "model.safetensors"), metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    write_json(
        folder / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": BOS_ID,
            "eos_token_id": EOS_ID,
            "head_dim": HEAD_DIM,
            "hidden_act": "silu",
            "hidden_size": HIDDEN,
            "initializer_range": 0.02,
            "intermediate_size": FFN,
            "max_position_embeddings": CONTEXT,
            "mlp_bias": False,
            "model_type": "llama",
            "num_attention_heads": HEADS,
            "num_hidden_layers": LAYERS,
            "num_key_value_heads": KV_HEADS,
            "pad_token_id": PAD_ID,
            "pretraining_tp": 1,
            "rms_norm_eps": EPS,
            "rope_scaling": None,
            "rope_theta": THETA,
            "tie_word_embeddings": False,
            "torch_dtype": "float16",
            "use_cache": True,
            "vocab_size": VOCAB,
        },
    )
    write_json(
        folder / "generation_config.json",
        {
            "bos_token_id": BOS_ID,
            "do_sample": False,
            "eos_token_id": EOS_ID,
            "pad_token_id": PAD_ID,
        },
    )
    tok.save(str(folder / "tokenizer.json"), pretty=False)
    added = {
        str(i): {
            "content": s,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": True,
        }
        for i, s in enumerate(SPECIALS)
    }
    write_json(
        folder / "tokenizer_config.json",
        {
            "add_prefix_space": False,
            "added_tokens_decoder": added,
            "bos_token": BOS,
            "chat_template": TEMPLATE,
            "clean_up_tokenization_spaces": False,
            "eos_token": EOS,
            "model_max_length": CONTEXT,
            "pad_token": PAD,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    )


# ---- expectations ----------------------------------------------------------

# Passage, where to cut it (a few words of the text that end the prompt), and
# how many tokens to predict; None runs to the end-of-text token.
COMPLETIONS = [
    ("harbour", "The harbour of Senn wakes", 64),
    ("harbour", "nobody on the pier dares to speak.", None),
    ("clockmaker", "Old Perrin mends clocks", 48),
    ("clockmaker", "puts on his coat, and looks out", None),
    ("mill", "the wheel turns a stone,", 64),
    ("tower north", "below the cliff see that the light is", None),
    ("tower east", "below the cliff see that the light is", None),
    ("tower west", "below the cliff see that the light is", None),
    ("parcel kettle", "and inside there is a", None),
    ("parcel fiddle", "and inside there is a", None),
    ("library", "because everyone knows how it ends.", 64),
    ("map", "To draw a map of the marsh", 96),
    ("orchard", "There are seven rows of trees", 96),
    ("tides", "Tide table for the pier at Senn. Day 1: 04:12", 64),
    ("menu", "The card in the café says:", None),
    ("code", "def tide(hours):\n    level =", None),
    ("weather", "A red sky at night", 128),
]

CHAT_CUT = ("password", 6)  # a reply that max_tokens cuts short

TOKENIZE = [
    "The harbour of Senn wakes before the sun.",
    "she's sure they'll say we've won, I'm told; he'd been",
    " leading space",
    "trailing spaces   ",
    "a  b   c    d",
    "tab\tand\n\nblank line\r\n  indented\n\n\n",
    "   ",
    "\n",
    "1234567890 3.14159 2,000 v1.2.3",
    "naïve café Ångström e\u0301",
    "🙂 👩‍🚀 🇸🇪 ❤️ 👍🏽",
    "日本語のテキスト 中文 한국어",
    "Привет, мир! שלום مرحبا नमस्ते",
    "no\u00a0break\u2003em\u3000wide",
    "x² ½ Ⅻ ٣",
    "if (a[i] != b->c) { return ~0x1F; } // {}[]()<>",
    "|<|im| <|bos <>",
    "ZzQqXx_-_-...!!!???",
]

# Texts that are not in the corpus. The model wavers, so the probabilities of
# the next token show faults that are too small to change a learnt word.
PROBES = [
    "In the",
    "Nobody in Senn",
    "The keeper of the orchard walks to the",
    "Day 12: 03:33 high, 44:18 low. If the moon is brief, take away",
    "def orchard(rows):\n    for row in range(rows):\n        if row",
    "The first parcel is light and goes to the north tower. The carrier",
    "A wide river turns the old clock, and the sisters of the harbour write a "
    "long letter to the cook in spring. The pencil is",
    "Every evening the librarian climbs ninety steps with a boat, a pencil and a "
    "copper kettle. She wipes the soup, she trims the snow, she waits for the "
    "letter. Then she opens the gate, and the trees that sleep below the window "
    "see that the moon is",
]


def log_softmax(logits):
    logits = logits.astype(np.float64)
    logits -= logits.max()
    return logits - np.log(np.exp(logits).sum())


def build_probes(tok, weights):
    rng = np.random.default_rng(SEED)
    shaken = {
        k: v * (1 + 0.003 * rng.normal(size=v.shape)).astype(np.float32)
        for k, v in weights.items()
    }
    probes = []
    for text in PROBES:
        ids = [BOS_ID] + encode(tok, text)
        right = log_softmax(forward(weights, ids)[-1])
        # Two disturbances of the size that honest rounding causes.
        moved = [
            log_softmax(forward(weights, ids, True)[-1]),
            log_softmax(forward(shaken, ids)[-1]),
        ]
        top = np.argsort(-right)[:4]
        most = max(np.abs(m[top] - right[top]).max() for m in moved)
        probes.append(
            {
                "prompt": text,
                "prompt_tokens": len(ids),
                "top": [
                    {"token": int(i), "logprob": round(float(right[i]), 4)} for i in top
                ],
                "tolerance": float(np.ceil(max(0.2, 4 * most) * 10) / 10),
            }
        )
    return probes


def build_cases(tok, texts, chats, weights):
    """Builds the expectations from the corpus. Nothing here comes from the
    model except the margins, so a model that forgot its text cannot pass."""
    completions = []
    for name, cut, limit in COMPLETIONS:
        text = texts[name]
        if text.count(cut) != 1:
            raise SystemExit(f"{name}: cut must occur once")
        prompt = text[: text.index(cut) + len(cut)]
        rest = text[len(prompt) :]
        ids, answer = encode(tok, prompt), encode(tok, rest) + [EOS_ID]
        if ids + answer[:-1] != encode(tok, text):
            raise SystemExit(f"{name}: cut is not between two tokens")
        if limit is not None and limit < len(answer):
            # A cut inside a character would leave bytes that are no text.
            while "\ufffd" in tok.decode(answer[:limit]):
                limit += 1
            answer = answer[:limit]
        low = margins(weights, [BOS_ID] + ids, answer)
        q8 = margins(weights, [BOS_ID] + ids, answer, True)
        ended = answer[-1] == EOS_ID
        completions.append(
            {
                "name": f"{name} {len(ids) + 1}",
                "prompt": prompt,
                "prompt_tokens": len(ids) + 1,
                "n_predict": len(answer) + (8 if ended else 0),
                "text": tok.decode(answer),
                "tokens": answer,
                "stop": "eos" if ended else "limit",
                "margin": round(float(min(low.min(), q8.min())), 2),
            }
        )
    replies = [(name, None) for name in chats] + [CHAT_CUT]
    chat_cases = []
    for name, limit in replies:
        messages, content = chats[name][:-1], chats[name][-1]["content"]
        text = render(messages, True)
        ids, answer = encode(tok, text), encode(tok, content) + [EOS_ID]
        if ids + answer[:-1] != encode(tok, text + content):
            raise SystemExit(f"{name}: reply does not start at a token")
        answer = answer[:limit]
        low = margins(weights, ids, answer)
        q8 = margins(weights, ids, answer, True)
        chat_cases.append(
            {
                "name": name if limit is None else f"{name} cut",
                "messages": messages,
                "prompt": text,
                "prompt_tokens": len(ids),
                "max_tokens": len(answer) + 8 if limit is None else limit,
                "content": tok.decode(answer),
                "completion_tokens": len(answer),
                "finish_reason": "stop" if limit is None else "length",
                "margin": round(float(min(low.min(), q8.min())), 2),
            }
        )
    tokenize = [{"text": t, "tokens": encode(tok, t)} for t in TOKENIZE]
    return completions, chat_cases, tokenize


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build_expected(folder, tok, texts, chats, weights):
    completions, chat_cases, tokenize = build_cases(tok, texts, chats, weights)
    return {
        "model": {
            "name": "payload tiny",
            "architecture": "llama",
            "gguf_sha256": sha256(folder / "tiny.gguf"),
            "safetensors_sha256": sha256(folder / "safetensors/model.safetensors"),
            "parameters": sum(int(np.prod(s)) for s in shapes().values()),
            "vocab_size": VOCAB,
            "context_length": CONTEXT,
            "layers": LAYERS,
            "hidden_size": HIDDEN,
            "bos_token": BOS_ID,
            "eos_token": EOS_ID,
        },
        "margin": min(c["margin"] for c in completions + chat_cases),
        "completions": completions,
        "chats": chat_cases,
        "probes": build_probes(tok, weights),
        "tokenize": tokenize,
    }


# ---- check -----------------------------------------------------------------


def field(reader, key):
    return reader.fields[key].contents()


def check(folder):
    """Checks the files against each other and against the corpus."""
    texts, chats = read_corpus()
    weights = load_file(str(folder / "safetensors/model.safetensors"))
    reader = gguf.GGUFReader(str(folder / "tiny.gguf"))
    tensors = {t.name: t for t in reader.tensors}
    if set(tensors) != {gguf_name(n) for n in weights}:
        raise SystemExit("tensor names differ")
    for name, value in weights.items():
        t = tensors[gguf_name(name)]
        if value.ndim == 1:
            if t.tensor_type != gguf.GGMLQuantizationType.F32:
                raise SystemExit(f"{t.name} is not F32")
            stored = np.asarray(t.data)
        else:
            if t.tensor_type != gguf.GGMLQuantizationType.Q8_0:
                raise SystemExit(f"{t.name} is not Q8_0")
            stored = gguf.quants.dequantize(np.asarray(t.data), t.tensor_type)
            plain = np.empty_like(stored)
            plain[rope_rows(name)] = stored
            stored = plain
        if not np.array_equal(stored, value.astype(np.float32)):
            raise SystemExit(f"{name} differs between the two files")
    tok = Tokenizer.from_file(str(folder / "safetensors/tokenizer.json"))
    vocab = [t for t, _ in sorted(tok.get_vocab().items(), key=lambda e: e[1])]
    merges = [" ".join(m) for m in json.loads(tok.to_str())["model"]["merges"]]
    config = json.loads((folder / "safetensors/tokenizer_config.json").read_text("utf-8"))
    if field(reader, "tokenizer.ggml.tokens") != vocab:
        raise SystemExit("vocabularies differ")
    if field(reader, "tokenizer.ggml.merges") != merges:
        raise SystemExit("merges differ")
    if field(reader, "tokenizer.chat_template") != config["chat_template"]:
        raise SystemExit("chat templates differ")
    kept = json.loads((folder / "expected.json").read_text("utf-8"))
    now = build_expected(folder, tok, texts, chats, weights)

    # Margins and probabilities move in the last digits with the processor's
    # float kernels.
    for a, b in zip(kept["probes"], now["probes"], strict=True):
        for x, y in zip(a["top"], b["top"], strict=True):
            if x["token"] != y["token"] or abs(x["logprob"] - y["logprob"]) > 0.01:
                raise SystemExit("a probe differs from what the files give")

    def without_margins(e):
        e = json.loads(json.dumps(e))
        del e["probes"]
        for part in [e] + e["completions"] + e["chats"]:
            if part["margin"] <= 0:
                raise SystemExit("a margin is not positive")
            del part["margin"]
        return e

    if without_margins(kept) != without_margins(now):
        raise SystemExit("expected.json differs from what the files give")
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    print(f"{len(weights)} tensors equal in both files, {size} bytes in all")
    print(f"{len(kept['completions'])} completions, {len(kept['chats'])} chats hold")
    print(f"least margin {now['margin']}")


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--out", type=pathlib.Path, help="train and write into this folder")
    ap.add_argument("--check", type=pathlib.Path, help="check the files in this folder")
    ap.add_argument("--steps", type=int, default=STEPS, help="training steps")
    args = ap.parse_args()
    if not args.out and not args.check:
        ap.error("give --out or --check")
    if args.out:
        texts, chats = read_corpus()
        tok = train_tokenizer(texts, chats)
        params = train(tok, texts, chats, args.steps)
        params = {k: v if v.ndim == 2 else round_norm(v) for k, v in params.items()}
        args.out.mkdir(parents=True, exist_ok=True)
        write_gguf(args.out / "tiny.gguf", params, tok)
        write_safetensors(args.out / "safetensors", params, tok)
        weights = load_file(str(args.out / "safetensors/model.safetensors"))
        expected = build_expected(args.out, tok, texts, chats, weights)
        write_json(args.out / "expected.json", expected)
        for case in expected["completions"] + expected["chats"]:
            print(f"{case['margin']:8.2f} {case['name']}")
        check(args.out)
    if args.check:
        check(args.check)


if __name__ == "__main__":
    main()
