#!/usr/bin/env python3
"""Accuracy of compressed networks by training recipe.

    ./run.py --write-data digits.npz                               where scikit-learn is
    ./run.py --data digits.npz --results DIR [--device cuda] [--seeds 5] [--epochs 50] [--jobs 8]
    ./report.py DIR/results.jsonl ../../docs/results/training.md

Resumes: a run whose result is in DIR is not repeated; an interrupt ends the runs in flight. Rates are chosen on the
validation images of seed 0. Needs `tdc-gen` on the path or in TDC_GEN.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import dataclasses
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import data
import torch
import training
from arms import BASE_RATE, KAPPA, RATES, WIDER, Experiment
from networks import NETWORKS
from results import RATE_OF, Job, Results

from tdc_torch import generator

ARMS = ("fine", *RATES, *RATE_OF)
METHODS = ("optimal", "uniform", "tdc")
ENOUGH = 0.915
"""Least accuracy of the dense networks on validation images at the difficulty that is chosen."""

Task = tuple[str, Callable[[], object]]


class Pool:
    """Threads that run tasks, each on a stream of its own, and report what ends and fails."""

    def __init__(self, jobs: int, device: str) -> None:
        self.failed = 0
        self.device = device
        self._pool = concurrent.futures.ThreadPoolExecutor(jobs)
        self._start = time.monotonic()

    def run(self, tasks: Iterable[Task]) -> None:
        """Runs tasks in this order, and waits for all."""
        todo = {self._pool.submit(self._on_stream, task): name for name, task in tasks}
        for done, future in enumerate(concurrent.futures.as_completed(todo), 1):
            error = future.exception()
            self.failed += error is not None
            state = f"failed: {type(error).__name__}: {error}" if error else "done"
            print(f"{time.monotonic() - self._start:.0f} s, {done}/{len(todo)}: {todo[future]} {state}", flush=True)

    def _on_stream(self, task: Callable[[], object]) -> None:
        with contextlib.ExitStack() as stack:
            if self.device == "cuda":
                stack.enter_context(torch.cuda.stream(training.stream_of_thread()))
            stack.enter_context(training.exclusive)
            if training.stop.is_set():
                raise training.Stopped
            task()

    def interrupt(self) -> None:
        """Ends what runs, within an epoch, and drops what waits."""
        training.stop.set()
        self._pool.shutdown(cancel_futures=True)


def tuning_jobs(network: str, cuts: list[float]) -> list[Job]:
    """The runs of seed 0 that choose the rates."""
    return [
        Job(network, arm, cut, 0, rate)
        for arm, rates in RATES.items()
        for cut in ([0.0] if arm == "dense" else cuts)
        for rate in rates
    ]


def chosen_rates(results: Results, jobs: list[Job]) -> dict[tuple[str, str, float], float]:
    """The rate of each network, arm and cut with the best accuracy on validation images."""
    best: dict[tuple[str, str, float], tuple[float, float]] = {}
    for job in jobs:
        key = (job.network, job.arm, job.cut)
        best[key] = max(best.get(key, (-1.0, 0.0)), (results.runs[job]["validation"], job.rate))
    return {key: rate for key, (_, rate) in best.items()}


def dense_jobs(results: Results, network: str, cuts: list[float], seed: int) -> list[Job]:
    """The runs of a seed that need no ranks, at the chosen rates."""
    networks = [("dense", 0.0), *(("narrow", cut) for cut in [*cuts, *WIDER.get(network, ())])]
    return [Job(network, arm, cut, seed, results.rate(network, arm, cut)) for arm, cut in networks]


def jobs_of_seed(results: Results, network: str, cuts: list[float], seed: int) -> list[Job]:
    """All runs of a seed at the chosen rates. Methods that found no ranks are left out."""
    jobs = []
    for cut in cuts:
        arms = ("direct", "admm", "control", "distilled", "half", *KAPPA)
        rates = {arm: results.rate(network, arm, cut) for arm in arms}
        jobs += [Job(network, arm, cut, seed, rate) for arm, rate in rates.items()]
        jobs.append(Job(network, "fine", cut, seed, 0.1 * BASE_RATE))
        jobs += [Job(network, "direct", cut, seed, rates["direct"], method) for method in METHODS[1:]]
    compressed = [job for job in jobs if results.plans.get(job.plan, {}).get("layers")]
    return dense_jobs(results, network, cuts, seed) + compressed


def choose_difficulty(experiment: Experiment, pool: Pool, networks: list[str], texts: list[str]) -> None:
    """Sets the hardest of the difficulties, which ascend, at which all dense networks are good enough."""
    choices = [data.Difficulty(int(clutter), float(noise)) for clutter, noise in (text.split(":") for text in texts)]
    if len(choices) > 1:
        found: dict[data.Difficulty, list[float]] = {choice: [] for choice in choices}

        def measure(choice: data.Difficulty, network: str) -> None:
            trial = dataclasses.replace(experiment, difficulty=choice, _parts={})
            found[choice].append(training.accuracy(trial.base(network, 0), trial.parts(0)["validation"]))

        pool.run((f"{n} at {choice}", partial(measure, choice, n)) for choice in choices for n in networks)
        for choice, values in found.items():
            print(f"{choice}: dense networks {', '.join(f'{100 * value:.1f}' for value in values)} %", flush=True)
        enough = [choice for choice in choices if min(found[choice]) >= ENOUGH]
        choices = enough[-1:] or choices[:1]
    experiment.difficulty = choices[0]


def run(
    experiment: Experiment,
    pool: Pool,
    networks: list[str],
    cuts: list[float],
    seeds: Sequence[int],
    only: Sequence[str] | None,
) -> None:
    """The whole experiment: base networks, plans of ranks, rates, all arms; or some arms only.

    Rates that are known are not chosen again.
    """

    def wanted(job: Job) -> bool:
        return only is None or job.arm in only

    def job_tasks(jobs: Iterable[Job]) -> list[Task]:
        return [(f"{job}", partial(experiment.run, job)) for job in jobs]

    results = experiment.results
    tuning = [job for network in networks for job in tuning_jobs(network, cuts)]
    # An arm that has the rate of another needs that one's.
    tuned = None if only is None else {RATE_OF.get(arm, arm) for arm in only}
    tuning = [
        job
        for job in tuning
        if results.rate(job.network, job.arm, job.cut) is None and (tuned is None or job.arm in tuned)
    ]
    pairs = [(network, seed) for seed in seeds for network in networks]
    # Rates are chosen by runs of seed 0.
    bases = dict.fromkeys([*((job.network, job.seed) for job in tuning), *pairs])
    pool.run((f"base {network} {seed}", partial(experiment.base, network, seed)) for network, seed in bases)
    keys = [Job(n, "direct", cut, s, 0.0, method).plan for n, s in bases for cut in cuts for method in METHODS]
    plans = [(f"{key}", partial(experiment.choose_ranks, key)) for key in dict.fromkeys(keys)]
    # Dense networks train on the device while ranks are chosen on the CPU.
    first = [job for job in tuning if job.arm in ("dense", "narrow")]
    first = first or [job for n, s in pairs for job in dense_jobs(results, n, cuts, s) if wanted(job)]
    pool.run([*plans, *job_tasks(first)])
    pool.run(job_tasks(job for job in tuning if job not in first))
    if any(job not in results.runs for job in tuning):
        print("runs that choose the rates have failed; the same command repeats them")
        return
    results.set_rates(chosen_rates(results, tuning))
    pool.run(job_tasks(job for n, s in pairs for job in jobs_of_seed(results, n, cuts, s) if wanted(job)))


def beside_others(run: Callable[..., str]) -> Callable[..., str]:
    """`tdc-gen` runs beside other tasks, but not what `compress` does before.

    While torch.fx traces a model, it changes how the modules of all threads are called.
    """

    def released(arguments: Sequence[str | Path]) -> str:
        with training.others_run():
            return run(arguments)

    return released


def rates_of(other: Results | None, settings: dict[str, object]) -> str:
    """Which runs choose the rates, for the page."""
    if other is None:
        return "runs of this experiment"
    if other.same_experiment(settings):
        return str(other.settings["rates"])
    return "shorter runs: {epochs} epochs, {clutter} pieces of clutter, noise {noise}".format(**other.settings)


def interrupted_once(*_: object) -> None:
    """Handles the first signal. More of them, as `timeout` sends, must not disturb the orderly end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write-data", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--cuts", type=float, nargs="+", default=[0.57, 0.84])
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds [default: 5]")
    parser.add_argument("--first-seed", type=int, default=0, help="needs --rates, as seed 0 chooses them [default: 0]")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--copies", type=int, default=12, help="renderings of each base image [default: 12]")
    parser.add_argument("--jobs", type=int, default=8, help="runs at a time [default: 8]")
    parser.add_argument(
        "--difficulty",
        nargs="+",
        default=[f"{data.Difficulty.clutter}:{data.Difficulty.noise}"],
        metavar="CLUTTER:NOISE",
        help="of several, easiest first, the hardest at which the dense networks are good enough",
    )
    parser.add_argument(
        "--rates",
        type=Path,
        metavar="RESULTS",
        help="take the rates that another experiment has chosen; from other seeds of this experiment, also their ranks",
    )
    parser.add_argument("--arms", nargs="+", choices=ARMS, metavar="ARM", help="only these arms; needs --rates")
    parser.add_argument("--bf16", action="store_true", help="autocast in training")
    parser.add_argument("--channels-last", action="store_true")
    options = parser.parse_args()
    if options.write_data:
        data.write_npz(options.write_data)
        return 0
    if options.first_seed and not options.rates:
        parser.error("--first-seed needs --rates")
    if options.arms and not options.rates:
        parser.error("--arms needs --rates")
    if options.epochs < 2:
        parser.error("--epochs must be at least 2: arms train before and after their decomposition")
    options.results.mkdir(parents=True, exist_ok=True)
    if options.device == "cuda":
        torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = True
    # PyTorch loads its linear algebra at the first call, which must not be that of two threads.
    torch.linalg.eigh(torch.eye(2, device=options.device))
    training.arithmetic = training.Arithmetic(options.bf16, options.channels_last)
    generator.run = beside_others(generator.run)
    results = Results(options.results / "results.jsonl")
    other = Results(options.rates) if options.rates else None
    experiment = Experiment(results, options.data, options.epochs, options.device, options.copies, data.Difficulty())
    pool = Pool(options.jobs, options.device)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted_once)
    try:
        choose_difficulty(experiment, pool, options.networks, options.difficulty)
        settings: dict[str, object] = {
            "device": torch.cuda.get_device_name() if options.device == "cuda" else "CPU",
            "torch": torch.__version__,
            "arithmetic": "bf16 autocast" if options.bf16 else "fp32" if options.device == "cpu" else "TF32",
            "epochs": options.epochs,
            "updates": training.UPDATES,
            "rates": None,
            "copies": options.copies,
            "clutter": experiment.difficulty.clutter,
            "noise": experiment.difficulty.noise,
        }
        results.set_settings({**settings, "rates": rates_of(other, settings)})
        if other is not None:
            results.set_rates(other.rates)
            if other.same_experiment(settings):
                results.add_plans(other.plans)
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        run(experiment, pool, options.networks, options.cuts, seeds, options.arms)
    except KeyboardInterrupt:
        pool.interrupt()
        print("interrupted; the same command resumes")
        return 130
    print(f"{pool.failed} runs failed" if pool.failed else "complete")
    return 1 if pool.failed else 0


if __name__ == "__main__":
    sys.exit(main())
