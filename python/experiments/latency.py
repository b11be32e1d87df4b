#!/usr/bin/env python3
"""Latency of the generated networks of an experiment: ./latency.py RESULTS.jsonl [--batches 1 64] [--gpu h200]

Generates code for the dense, the narrow and the compressed networks with the ranks of seed 0, compiles it with nvcc,
runs the programs in turn, and appends the medians to the results. Needs a GPU, nvcc and `tdc-gen`. With --folder what
is compiled stays and is not compiled again; --compile-only needs no GPU if --arch names one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import statistics
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import torch
from arms import WIDER, new
from data import SIZE
from networks import NETWORKS
from results import LatencyKey, Results
from torch import nn

import tdc_torch as tdc
from tdc_torch import generator


def models(results: Results, networks: list[str], batches: list[int]) -> dict[LatencyKey, nn.Module]:
    """The networks, with random weights, on which the latency does not depend."""
    forms = forms_of(results, networks)
    return {replace(key, batch=batch): model for batch in batches for key, model in forms.items()}


def forms_of(results: Results, networks: list[str]) -> dict[LatencyKey, nn.Module]:
    """The networks for one image."""
    found: dict[LatencyKey, nn.Module] = {}
    for key, plan in results.plans.items():
        if key.seed != 0 or key.network not in networks or not plan["layers"]:
            continue
        dense = new(key.network, 1.0, 0)
        found[LatencyKey(key.network, "dense", 0.0)] = dense
        for cut in (key.cut, *WIDER.get(key.network, ())):
            found[LatencyKey(key.network, "narrow", cut)] = new(key.network, (1 - cut) ** 0.5, 0)
        factorised = tdc.decompose(dense, tdc.Plan.from_ranks(plan["layers"]))
        found[LatencyKey(key.network, key.method, key.cut)] = factorised
    return found


def generate(model: nn.Module, batch: int, folder: Path, gpu: str) -> list[Path]:
    """Writes a network's code and weights; its sources."""
    if not (folder / "generated" / "weights.bin").exists():
        tdc.export(model.eval(), folder, torch.zeros(batch, 1, SIZE, SIZE), gpu=gpu, name="network")
    return sorted((folder / "generated").rglob("*.cu"))


def predicted(folder: Path) -> float:
    """The time of a network by its plan, microseconds."""
    return json.loads(generator.run(["plan", folder / "network.yaml", "--json"]))["variants"][0]["predicted_us"]


def compile_source(source: Path, arch: str) -> None:
    """Compiles one file to an object in the same folder, unless it is there."""
    if source.with_suffix(".o").exists():
        return
    include = next(parent / "include" for parent in source.parents if (parent / "include").is_dir())
    command = ["nvcc", "-std=c++17", "-O3", f"-arch={arch}", f"-I{include}", f"-I{include.parent / 'src'}"]
    temporary = source.with_suffix(".tmp")
    subprocess.run([*command, "-c", source, "-o", temporary], check=True, capture_output=True)
    temporary.rename(source.with_suffix(".o"))


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
    parser.add_argument("--batches", type=int, nargs="+", default=[1])
    parser.add_argument("--gpu", default="h200", help="that the code is planned for [default: h200]")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each program [default: 7]")
    parser.add_argument("--runs", type=int, default=500, help="runs of the network in a program's run [default: 500]")
    parser.add_argument("--arch", default="native")
    parser.add_argument("--folder", type=Path, help="where the programs are kept [default: nowhere]")
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--jobs", type=int, default=16, help="compilers at a time [default: 16]")
    options = parser.parse_args()
    results = Results(options.results)
    found = models(results, options.networks, options.batches)
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(options.jobs))
        work = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folders = {key: work / f"{key.network}-{key.form}-{key.cut:g}-{key.batch}" for key in found}
        sources = [
            source for key, folder in folders.items() for source in generate(found[key], key.batch, folder, options.gpu)
        ]
        list(pool.map(lambda source: compile_source(source, options.arch), sources))
        programs = dict(
            zip(folders, pool.map(lambda folder: link(folder, options.arch), folders.values()), strict=True)
        )
        if options.compile_only:
            return
        rounds = [
            {key: microseconds(program, options.runs) for key, program in programs.items()}
            for _ in range(options.rounds)
        ]
        predictions = {key: predicted(folder) for key, folder in folders.items()}
    for key in found:
        times = [times[key] for times in rounds]
        results.add_latency(key, statistics.median(times), predictions[key])
        spread = f"{min(times):.2f} to {max(times):.2f}"
        print(f"{key}: {statistics.median(times):.2f} us, {spread}; predicted {predictions[key]:.2f}", flush=True)


if __name__ == "__main__":
    main()
