#!/usr/bin/env python3
"""Writes weights with a stated spectrum for a config, where no trained ones are at hand.

    ./synthetic_weights.py CONFIG OUT.safetensors [--tdc-gen target/release/tdc-gen] [--decay 0.6] [--seed 1]

Starts from the random weights of `tdc-gen pack --random`. A filter W [N, C, R, S] larger than 1x1 becomes Q1 D1 G D2 Q2 with Gaussian G, random
rotations Q1 [N, N] and Q2 [C, C], and D1, D2 with i^-decay on their diagonals: the singular values of both unfoldings fall as this power. Each
keeps its norm. Needs numpy and safetensors.
"""

import argparse
import pathlib
import subprocess
import tempfile

import numpy
from safetensors.numpy import load_file, save_file


def rotation(size, random):
    q, r = numpy.linalg.qr(random.standard_normal((size, size)))
    return q * numpy.sign(numpy.diag(r))


def with_spectrum(weight, decay, random):
    n, c = weight.shape[:2]
    core = random.standard_normal(weight.shape)
    core *= (numpy.arange(1, n + 1) ** -decay)[:, None, None, None]
    core *= (numpy.arange(1, c + 1) ** -decay)[None, :, None, None]
    core = numpy.tensordot(rotation(n, random), core, (1, 0))
    core = numpy.moveaxis(numpy.tensordot(rotation(c, random), core, (1, 1)), 0, 1)
    return (core * (numpy.linalg.norm(weight) / numpy.linalg.norm(core))).astype(numpy.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--tdc-gen", default="target/release/tdc-gen")
    parser.add_argument("--decay", type=float, default=0.6)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder) / "random.safetensors"
        packed = pathlib.Path(folder) / "weights.bin"
        command = [options.tdc_gen, "pack", options.config, "--dense", "--random", options.seed, "-o", packed, "--safetensors", base]
        subprocess.run([str(word) for word in command], check=True, capture_output=True)
        tensors = load_file(base)
    random = numpy.random.default_rng(options.seed)
    for name in sorted(tensors):
        tensor = tensors[name]
        if tensor.ndim == 4 and tensor.shape[2:] != (1, 1):
            tensors[name] = with_spectrum(tensor, options.decay, random)
    save_file(tensors, options.out)


if __name__ == "__main__":
    main()
