#!/usr/bin/env python3
"""Accuracy of compressed networks by training recipe.

    ./run.py --write-data digits.npz                               where scikit-learn is
    ./run.py --data digits.npz --results DIR [--device cuda] [--seeds 5] [--epochs 50] [--jobs 14]
    ./report.py DIR ../../docs/results/training.md

Resumes: a run whose result is in DIR is not repeated. Rates are chosen on the validation images of seed 0. Needs
`tdc-gen` on the path or in TDC_GEN.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import multiprocessing
import time
from dataclasses import replace
from pathlib import Path

import arms
import data
import torch
from arms import Job


def jobs_of(network: str, cuts: list[float], seed: int, tuned: dict[tuple[str, float], float] | None) -> list[Job]:
    """All jobs of a seed; without tuned rates those that tune, for which only `optimal` ranks matter."""
    jobs = []
    for cut in cuts:
        for arm in arms.TUNED:
            cut_of_arm = 0.0 if arm == "dense" else cut
            rates = arms.RATES if tuned is None else (tuned[arm, cut_of_arm],)
            jobs += [Job(network, arm, cut_of_arm, seed, rate) for rate in rates]
        if tuned is not None:
            jobs.append(Job(network, "fine", cut, seed, 0.1 * arms.BASE_RATE))
            jobs += [Job(network, "direct", cut, seed, tuned["direct", cut], method) for method in ("uniform", "tdc")]
    return list(dict.fromkeys(jobs))


def chosen(folder: Path, jobs: list[Job]) -> dict[tuple[str, float], float]:
    """The rate of each arm and cut with the best accuracy on validation images."""
    best: dict[tuple[str, float], tuple[float, float]] = {}
    for job in jobs:
        validation = json.loads((folder / f"{job.key}.json").read_text())["validation"].values()
        accuracy = sum(validation) / len(validation)
        best[job.arm, job.cut] = max(best.get((job.arm, job.cut), (-1.0, 0.0)), (accuracy, job.rate))
    return {key: rate for key, (_, rate) in best.items()}


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write-data", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--networks", nargs="+", default=list(arms.NETWORKS))
    parser.add_argument("--cuts", type=float, nargs="+", default=[0.57, 0.84])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--copies", type=int, default=12, help="renderings of each base image [default: 12]")
    parser.add_argument("--jobs", type=int, default=14, help="processes at a time [default: 14]")
    options = parser.parse_args()
    if options.write_data:
        data.write_npz(options.write_data)
        return
    options.results.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    context = multiprocessing.get_context("spawn")
    failed = 0
    with concurrent.futures.ProcessPoolExecutor(options.jobs, mp_context=context) as pool:

        def run(jobs: list[Job]) -> int:
            todo = {
                pool.submit(
                    arms.run, job, options.results, options.data, options.epochs, options.device, options.copies
                ): job
                for job in jobs
            }
            wrong = 0
            for done, future in enumerate(concurrent.futures.as_completed(todo), 1):
                error = future.exception()
                wrong += error is not None
                state = f"failed: {error}" if error else "done"
                print(f"{time.monotonic() - start:.0f} s, {done}/{len(todo)}: {todo[future].key} {state}", flush=True)
            return wrong

        # Base networks first, one job for each, so that no two processes train the same.
        first = [Job(n, "dense", 0.0, seed, arms.RATES[0]) for n in options.networks for seed in range(options.seeds)]
        failed += run([job for job in first if job.seed == 0])
        tuning = {network: jobs_of(network, options.cuts, 0, None) for network in options.networks}
        failed += run([job for jobs in tuning.values() for job in jobs])
        rates = {network: chosen(options.results, jobs) for network, jobs in tuning.items()}
        # Before the remaining runs, so that report.py can read those of an interrupted experiment.
        summary = {network: [[*key, rate] for key, rate in found.items()] for network, found in rates.items()}
        machine = {
            "device": torch.cuda.get_device_name() if options.device == "cuda" else "CPU",
            "torch": torch.__version__,
        }
        arms.write(options.results / "rates.json", {"rates": summary, "epochs": options.epochs} | machine)
        failed += run([replace(job, rate=rates[job.network]["dense", 0.0]) for job in first])
        failed += run(
            [
                job
                for network in options.networks
                for seed in range(options.seeds)
                for job in jobs_of(network, options.cuts, seed, rates[network])
            ]
        )
    print(f"{failed} runs failed" if failed else "complete")


if __name__ == "__main__":
    main()
