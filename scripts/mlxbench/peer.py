"""Does what mlx/internal/bench does, with MLX's Python package: evaluations a second of processor time."""

import json
import time

import mlx.core as mx

mx.set_default_device(mx.cpu)
big = mx.random.uniform(shape=(1 << 20,), key=mx.random.key(1))
square = mx.random.uniform(shape=(512, 512), key=mx.random.key(2))
row = mx.random.uniform(shape=(1, 512), key=mx.random.key(3))
mx.eval(big, square, row)


def small():
    y = row
    for _ in range(25):
        y = y * row + row
    return y


def rate(f, least=0.3):
    for _ in range(3):
        mx.eval(f())
    before, n = time.process_time(), 0
    while time.process_time() - before < least:
        mx.eval(f())
        n += 1
    return n / (time.process_time() - before)


print(json.dumps({"Throughput": {
    "elements of 4 MiB": rate(lambda: big * big + big),
    "matmul 512x512": rate(lambda: square @ square),
    "50 small ops, one eval": rate(small),
}}))
