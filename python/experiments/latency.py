#!/usr/bin/env python3
"""Latency of the generated networks of an experiment: ./latency.py RESULTS.jsonl [--runs 500] [--arch native]

Generates code for the dense, the narrow and the compressed networks with the ranks of seed 0, compiles it with nvcc,
runs the programs in turn, and appends the medians to the results. Needs a GPU, nvcc and `tdc-gen`.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from arms import new
from data import SIZE
from networks import NETWORKS
from results import LatencyKey, Results
from torch import nn

import tdc_torch as tdc

ROUNDS = 7


def models(results: Results, networks: list[str]) -> dict[LatencyKey, nn.Module]:
    """The networks, with random weights, on which the latency does not depend."""
    found: dict[LatencyKey, nn.Module] = {}
    for key, plan in results.plans.items():
        if key.seed != 0 or key.network not in networks or not plan["layers"]:
            continue
        dense = new(key.network, 1.0, 0)
        found[LatencyKey(key.network, "dense", 0.0)] = dense
        found[LatencyKey(key.network, "narrow", key.cut)] = new(key.network, (1 - key.cut) ** 0.5, 0)
        factorised = tdc.decompose(dense, tdc.Plan.from_ranks(plan["layers"]))
        found[LatencyKey(key.network, key.method, key.cut)] = factorised
    return found


def generate(model: nn.Module, folder: Path) -> list[Path]:
    """Writes a network's code and weights; its sources."""
    tdc.export(model.eval(), folder, torch.zeros(1, 1, SIZE, SIZE), gpu="h200", name="network")
    return sorted((folder / "generated").rglob("*.cu"))


def compile_source(source: Path, arch: str) -> None:
    """Compiles one file to an object beside it."""
    include = next(parent / "include" for parent in source.parents if (parent / "include").is_dir())
    command = ["nvcc", "-std=c++17", "-O3", f"-arch={arch}", f"-I{include}", f"-I{include.parent / 'src'}"]
    subprocess.run([*command, "-c", source, "-o", source.with_suffix(".o")], check=True, capture_output=True)


def link(folder: Path, arch: str) -> Path:
    """Links the objects of a folder to its program."""
    program = folder / "app"
    objects = sorted((folder / "generated").rglob("*.o"))
    subprocess.run(["nvcc", f"-arch={arch}", *objects, "-o", program], check=True, capture_output=True)
    return program


def microseconds(program: Path, runs: int) -> float:
    """The time of a run, as the program measures it with a CUDA graph."""
    weights = program.parent / "generated" / "weights.bin"
    command = [program, "--weights", weights, "--runs", str(runs)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(re.findall(r"([0-9.]+) us per run", output)[0])


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--arch", default="native")
    parser.add_argument("--jobs", type=int, default=16, help="compilers at a time [default: 16]")
    options = parser.parse_args()
    results = Results(options.results)
    found = models(results, options.networks)
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(options.jobs) as pool:
        folders = {key: Path(temporary) / str(index) for index, key in enumerate(found)}
        sources = [source for key, folder in folders.items() for source in generate(found[key], folder)]
        list(pool.map(lambda source: compile_source(source, options.arch), sources))
        programs = dict(
            zip(folders, pool.map(lambda folder: link(folder, options.arch), folders.values()), strict=True)
        )
        rounds = [
            {key: microseconds(program, options.runs) for key, program in programs.items()} for _ in range(ROUNDS)
        ]
    for key in found:
        times = [times[key] for times in rounds]
        results.add_latency(key, statistics.median(times))
        print(f"{key}: {statistics.median(times):.2f} us, {min(times):.2f} to {max(times):.2f}")


if __name__ == "__main__":
    main()
