"""Writes what MLX's Python package gives for each operation that a transformer uses."""

import json
import sys

import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
rng = np.random.default_rng(7)
cases = []


def normal(*shape, dtype=mx.float32):
    return mx.array(rng.standard_normal(shape).astype(np.float32)).astype(dtype)


def positive(*shape):
    return mx.array((rng.random(shape) + 0.1).astype(np.float32))


def flat(a):
    """The elements as JSON holds them exactly: half floats as the float32 of their value."""
    if a.dtype in (mx.float16, mx.bfloat16):
        a = a.astype(mx.float32)
    if a.dtype == mx.bool_:
        return [int(v) for v in np.array(a).reshape(-1)]
    if a.dtype == mx.float32:
        return ["nan" if np.isnan(v) else "inf" if v == np.inf else "-inf" if v == -np.inf else float(str(v))
                for v in np.array(a).reshape(-1)]
    return [int(v) for v in np.array(a).reshape(-1)]


def pack(a):
    return {"dtype": str(a.dtype).removeprefix("mlx.core.").removesuffix("_"), "shape": list(a.shape), "data": flat(a)}


def case(name, inputs, f, abs=1e-6, rel=1e-5):
    out = f(*inputs)
    out = list(out) if isinstance(out, (list, tuple)) else [out]
    mx.eval(out)
    cases.append({"name": name, "abs": abs, "rel": rel,
                  "in": [pack(a) for a in inputs], "out": [pack(a) for a in out]})


x, y = normal(2, 3, 4), normal(2, 3, 4)
for name in "abs exp expm1 negative sigmoid sign sin cos sinh cosh tan tanh square floor ceil erf arcsinh_ isnan isfinite reciprocal stop_gradient trunc_".split():
    if not name.endswith("_"):
        case(name, [x], getattr(mx, name))
for name in "log log1p log2 log10 sqrt rsqrt".split():
    case(name, [positive(3, 4)], getattr(mx, name))
case("erfinv", [mx.array([-0.9, -0.3, 0.0, 0.5, 0.99])], mx.erfinv)
case("logical_not", [x > 0], mx.logical_not)
for name in "add subtract multiply divide maximum minimum equal not_equal less less_equal greater greater_equal logaddexp".split():
    case(name, [x, y], getattr(mx, name))
case("add_broadcast", [normal(2, 1, 4), normal(3, 1)], mx.add)
case("power", [positive(4), normal(4)], mx.power)
case("remainder", [x, positive(4)], mx.remainder)
case("floor_divide", [mx.array([7, -7, 8]), mx.array([2, 2, 3])], mx.floor_divide)
case("logical_and", [x > 0, y > 0], mx.logical_and)
case("logical_or", [x > 0, y > 0], mx.logical_or)
case("bitwise_and", [mx.array([12, 10], dtype=mx.uint32), mx.array([10, 6], dtype=mx.uint32)], mx.bitwise_and)
case("left_shift", [mx.array([1, 3], dtype=mx.uint32), mx.array([4, 1], dtype=mx.uint32)], mx.left_shift)
case("right_shift", [mx.array([16, 7], dtype=mx.uint32), mx.array([2, 1], dtype=mx.uint32)], mx.right_shift)
case("infinite", [mx.array([np.inf, -np.inf, np.nan, 1.0])], lambda a: [mx.isinf(a), mx.nan_to_num(a, nan=5, posinf=9, neginf=-9)])

for name in "sum mean prod max min logsumexp".split():
    case(name + "_axis", [x], lambda a, f=getattr(mx, name): f(a, axis=1, keepdims=True))
    case(name + "_all", [x], lambda a, f=getattr(mx, name): f(a))
case("all_any", [x > -1], lambda a: [mx.all(a, axis=-1), mx.any(a, axis=0)])
case("var_std", [x], lambda a: [mx.var(a, axis=-1, ddof=1), mx.std(a, axis=0)])
case("softmax", [x], lambda a: mx.softmax(a, axis=-1))
case("softmax_precise", [normal(2, 5, dtype=mx.float16)], lambda a: mx.softmax(a, axis=-1, precise=True), abs=1e-3, rel=2e-3)
case("argmax_argmin", [x], lambda a: [mx.argmax(a, axis=-1), mx.argmin(a, axis=1, keepdims=True)])
case("sort_argsort", [x], lambda a: [mx.sort(a, axis=-1), mx.argsort(a, axis=1)])
# What stands where among the smaller and the larger is not fixed: sums are.
case("partition", [normal(9)], lambda a: [mx.partition(a, 4)[4], mx.sum(mx.partition(a, 4)[:4]), mx.sum(mx.take(a, mx.argpartition(a, 4)[:4])), mx.sort(mx.topk(a, 3))])
case("cumsum", [x], lambda a: [mx.cumsum(a, axis=1), mx.cumsum(a, axis=-1, reverse=True, inclusive=False)])
case("cumprod_cummax", [x], lambda a: [mx.cumprod(a, axis=1), mx.cummax(a, axis=-1), mx.logcumsumexp(a, axis=-1)])

case("reshape", [x], lambda a: mx.reshape(a, (4, -1)))
case("transpose", [x], lambda a: [mx.transpose(a), mx.transpose(a, (1, 0, 2)), mx.swapaxes(a, 0, 2), mx.moveaxis(a, 0, 2)])
case("expand_squeeze", [normal(3, 1, 2)], lambda a: [mx.expand_dims(a, (0, 2)), mx.squeeze(a, 1), mx.squeeze(a)])
case("flatten", [x], lambda a: [mx.flatten(a, 1, 2), mx.unflatten(a, 2, (2, 2))])
case("broadcast_tile_repeat", [normal(1, 3)], lambda a: [mx.broadcast_to(a, (2, 3)), mx.tile(a, (2, 2)), mx.repeat(a, 2, 1)])
case("concatenate_stack", [normal(2, 3), normal(2, 3)], lambda a, b: [mx.concatenate([a, b], axis=1), mx.stack([a, b], axis=1)])
case("split", [normal(2, 6)], lambda a: mx.split(a, 3, axis=1) + mx.split(a, [1, 4], axis=1))
case("pad_roll_flip", [normal(2, 3)], lambda a: [mx.pad(a, [(0, 1), (2, 0)], constant_values=3), mx.roll(a, 1, 1)])
case("slice", [normal(4, 5)], lambda a: [a[1:3, 0:5:2], a[:, 2:4], a[-2:, :]])
case("slice_update", [normal(4, 5), normal(2, 2)], lambda a, b: mx.slice_update(a, b, mx.array([1, 2]), axes=(0, 1)))
case("slice_dynamic", [normal(4, 5), mx.array([1, 2])], lambda a, i: mx.slice(a, i, axes=(0, 1), slice_size=(2, 3)))
case("take", [normal(5, 3), mx.array([[0, 4], [2, 2]])], lambda a, i: mx.take(a, i, axis=0))
case("take_along_axis", [normal(2, 4), mx.array([[3, 0], [1, 1]])], lambda a, i: mx.take_along_axis(a, i, axis=1))
case("put_along_axis", [normal(2, 4), mx.array([[3], [1]]), normal(2, 1)], lambda a, i, v: mx.put_along_axis(a, i, v, axis=1))
case("scatter_add", [normal(4, 2), mx.array([0, 2]), normal(2, 2)], lambda a, i, u: a.at[i].add(u))
case("where_clip", [x, y], lambda a, b: [mx.where(a > b, a, b), mx.clip(a, -0.5, 0.5)])
case("tril_triu", [normal(3, 4)], lambda a: [mx.tril(a, 1), mx.triu(a, -1)])
case("round_diag", [normal(3, 3)], lambda a: [mx.round(a, 1), mx.diag(a, 1)])
case("astype", [normal(2, 3)], lambda a: [a.astype(mx.float16), a.astype(mx.bfloat16), a.astype(mx.int32), a.astype(mx.bool_)])
case("view", [mx.array([1, 2**31 + 5], dtype=mx.uint32)], lambda a: [a.view(mx.uint16), a.view(mx.int32)])
case("make", [], lambda: [mx.zeros((2, 2)), mx.ones((3,), dtype=mx.int32), mx.full((2,), 1.5), mx.arange(1, 9, 3, dtype=mx.float32),
                          mx.linspace(0, 1, 5), mx.tri(3, 4, 1), mx.eye(2, 3, k=1)])

case("matmul", [normal(2, 3, 4), normal(2, 4, 5)], mx.matmul)
case("matmul_float16", [normal(3, 8, dtype=mx.float16), normal(8, 4, dtype=mx.float16)], mx.matmul, abs=4e-3, rel=4e-3)
case("matmul_bfloat16", [normal(3, 8, dtype=mx.bfloat16), normal(8, 4, dtype=mx.bfloat16)], mx.matmul, abs=3e-2, rel=3e-2)
case("addmm", [normal(3, 5), normal(3, 4), normal(4, 5)], lambda c, a, b: mx.addmm(c, a, b, 0.5, 2.0))
case("gather_mm", [normal(3, 2, 4), normal(3, 4, 5), mx.array([2, 0], dtype=mx.uint32)], lambda a, b, i: mx.gather_mm(a, b, rhs_indices=i, lhs_indices=mx.array([0, 1], dtype=mx.uint32)))
case("einsum", [normal(2, 3, 4), normal(2, 5, 4)], lambda a, b: mx.einsum("bqd,bkd->bqk", a, b))
case("conv1d", [normal(1, 8, 4), normal(6, 3, 4)], lambda a, w: mx.conv1d(a, w, 1, 1))
case("conv2d", [normal(1, 6, 7, 4), normal(2, 3, 2, 4)], lambda a, w: mx.conv2d(a, w, (2, 1), (1, 0), (1, 2)))
case("conv_general", [normal(1, 6, 7, 4), normal(4, 3, 2, 2)], lambda a, w: mx.conv_general(a, w, (2, 1), ([1, 0], [0, 1]), (1, 2), (1, 1), 2, True))
case("close", [normal(4)], lambda a: [mx.allclose(a, a + 1e-9), mx.array_equal(a, a + 1)])

w = normal(8, 64)
case("rms_norm", [normal(2, 3, 16), normal(16)], lambda a, w: [mx.fast.rms_norm(a, w, 1e-5), mx.fast.rms_norm(a, None, 1e-5)])
case("rms_norm_float16", [normal(2, 16, dtype=mx.float16), normal(16, dtype=mx.float16)], lambda a, w: mx.fast.rms_norm(a, w, 1e-5), abs=4e-3, rel=4e-3)
case("layer_norm", [normal(2, 3, 16), normal(16), normal(16)], lambda a, w, b: [mx.fast.layer_norm(a, w, b, 1e-5), mx.fast.layer_norm(a, None, None, 1e-5)])
q = normal(1, 2, 4, 16)
case("rope", [q], lambda a: [mx.fast.rope(a, 16, traditional=False, base=10000.0, scale=1.0, offset=3),
                             mx.fast.rope(a, 8, traditional=True, base=500000.0, scale=0.5, offset=0)], abs=1e-5)
case("rope_freqs", [q, positive(8) * 100], lambda a, f: mx.fast.rope(a, 16, traditional=False, base=None, scale=1.0, offset=5, freqs=f), abs=1e-5)
case("rope_at", [normal(2, 2, 4, 16), mx.array([3, 9], dtype=mx.int32)], lambda a, o: mx.fast.rope(a, 16, traditional=False, base=10000.0, scale=1.0, offset=o), abs=1e-5)
qkv = [normal(1, 4, 3, 8), normal(1, 2, 5, 8), normal(1, 2, 5, 8)]
sdpa = mx.fast.scaled_dot_product_attention
case("attention", qkv, lambda q, k, v: [sdpa(q, k, v, scale=0.35), sdpa(q, k, v, scale=0.35, mask="causal")])
case("attention_mask", qkv + [mx.array(rng.random((1, 1, 3, 5)) > 0.3), normal(3, 5)], lambda q, k, v, b, m: [sdpa(q, k, v, scale=0.35, mask=b), sdpa(q, k, v, scale=0.35, mask=m)])
case("attention_sinks", qkv + [normal(4)], lambda q, k, v, s: sdpa(q, k, v, scale=0.35, sinks=s))

for mode, group, bits in (("affine", 32, 4), ("affine", 64, 8), ("affine", 64, 2), ("affine", 32, 3), ("affine", 32, 6), ("mxfp4", 32, 4), ("mxfp8", 32, 8), ("nvfp4", 16, 4)):
    def quantized(w, a, mode=mode, group=group, bits=bits):
        q = mx.quantize(w, group, bits, mode)
        d = mx.dequantize(*q, group_size=group, bits=bits, mode=mode, dtype=mx.float32)
        m = mx.quantized_matmul(a, *q, transpose=True, group_size=group, bits=bits, mode=mode)
        return list(q) + [d, m]
    case(f"quantize_{mode}_{group}_{bits}", [w, normal(2, 64)], quantized, abs=1e-5, rel=1e-4)


def gather_qmm(w, a, left, right, mode, group, bits):
    q = mx.quantize(w, group, bits, mode)
    return mx.gather_qmm(a, *q, lhs_indices=left, rhs_indices=right, transpose=True, group_size=group, bits=bits, mode=mode)


experts = [normal(3, 8, 64), normal(2, 1, 64), mx.array([0, 1], dtype=mx.uint32), mx.array([2, 0], dtype=mx.uint32)]
case("gather_qmm", experts, lambda w, a, i, j: [gather_qmm(w, a, i, j, "affine", 64, 4), gather_qmm(w, a, i, j, "mxfp4", 32, 4)], abs=1e-5, rel=1e-4)
case("fp8", [normal(6)], lambda a: [mx.to_fp8(a), mx.from_fp8(mx.to_fp8(a), dtype=mx.float32)])

key = mx.random.key(42)
case("random", [], lambda: [mx.random.key(42), mx.random.split(key, 3), mx.random.uniform(-1, 1, (4,), key=key), mx.random.normal((4,), key=key),
                            mx.random.randint(0, 100, (5,), key=key), mx.random.gumbel((3,), key=key),
                            mx.random.bernoulli(0.5, (8,), key=key), mx.random.truncated_normal(-1.0, 1.0, (3,), key=key)])
case("categorical", [normal(4, 9)], lambda a: mx.random.categorical(a, axis=-1, key=key))
case("cross_entropy", [normal(3, 7), mx.array([1, 6, 0])], lambda a, t: mx.logsumexp(a, axis=-1) - mx.take_along_axis(a, t[:, None], axis=-1)[:, 0])
case("gradient", [normal(5)], lambda a: list(mx.value_and_grad(lambda v: mx.sum(mx.tanh(v) * v))(a)))

case("arcs", [mx.array([-0.9, -0.2, 0.3, 0.8])], lambda a: [mx.arcsin(a), mx.arccos(a), mx.arctan(a), mx.arctan2(a, a[::-1])])
case("bits", [mx.array([12, 10], dtype=mx.uint32), mx.array([10, 6], dtype=mx.uint32)], lambda a, b: [mx.bitwise_or(a, b), mx.bitwise_xor(a, b), mx.bitwise_invert(a)])
case("products", [normal(3), normal(3)], lambda a, b: [mx.inner(a, b), mx.outer(a, b), mx.kron(a, b)])
case("flip_like", [normal(2, 3)], lambda a: [a[:, ::-1], a[::-1, ::-1], mx.zeros_like(a), mx.ones_like(a)])
case("gather", [normal(5, 3), mx.array([4, 0, 4], dtype=mx.uint32)], lambda a, i: a[i][:, None, :])
case("scatter", [normal(5, 3), mx.array([4, 1], dtype=mx.uint32), normal(2, 1, 3)], lambda a, i, u: mx.put_along_axis(a, mx.broadcast_to(i[:, None], (2, 3)), u[:, 0, :], axis=0))
case("slice_update_dynamic", [normal(4, 5), normal(2, 2), mx.array([1, 2])], lambda a, u, i: mx.slice_update(a, u, i, axes=(0, 1)))
case("permutation", [mx.arange(9)], lambda a: mx.random.permutation(a, key=key))
case("qqmm", [normal(1, 64), normal(8, 64)], lambda a, w: [mx.qqmm(a, *mx.quantize(w, mode="mxfp8"), mode="mxfp8"), mx.qqmm(a, *mx.quantize(w, mode="nvfp4"), mode="nvfp4")], abs=1e-4, rel=1e-3)

json.dump({"mlx": mx.__version__, "cases": cases}, sys.stdout, separators=(",", ":"))
sys.stdout.write("\n")
