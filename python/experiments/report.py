#!/usr/bin/env python3
"""Writes the page of the results of run.py: ./report.py RESULTS.jsonl PAGE.md

Intervals are 95 % by bootstrap over the base images of the test, paired where two arms are compared.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy
from data import TEST_COPIES
from results import Job, LatencyKey, Results

SAMPLES = 2000
COMPARED = [
    ("admm, untrained", "direct, untrained"),
    ("admm, untrained", "admm, own dense weights"),
    ("admm", "control"),
    ("admm", "fine"),
    ("admm", "direct"),
    ("admm", "dense"),
    ("direct", "dense"),
    ("control", "dense"),
    ("direct", "narrow"),
    ("admm", "narrow"),
    ("direct", "direct, uniform ranks"),
    ("direct", "direct, tdc ranks"),
]

INTRODUCTION = """\
Cluttered digits, {clutter} pieces of clutter, noise {noise}, {copies} renderings of each of the 1,047 base images of
the training; trained on {device}, PyTorch {torch}, {arithmetic}. Rates are chosen on validation images of seed 0,
except that of `fine`, by {rates}. Intervals are 95 % by bootstrap over the base images of the test, paired if two
arms are compared. A table has the seeds for which all of its arms have finished. Ranks are those of `tdc-gen compress
--method optimal`, unless the arm names another method.

The base network is a dense network after {epochs} epochs. Every arm trains as many epochs again:

- **dense**: the base network, trained on.
- **direct**: decomposed, then trained. **untrained** means directly after decomposition, in every arm.
- **fine**: as direct, at 0.1 times the base rate.
- **admm**: four fifths of the epochs with ADMM (**own dense weights**: accuracy then; dual updates in an epoch:
  {updates}), the rest decomposed.
- **control**: as admm, without its pull towards low rank.
- **narrow**: a dense network with fewer channels and about as many operations, trained for both spans.

*Train* is the accuracy on the images of the training at the end."""

LATENCY = """
*us* is the measured time of the generated network for one image, in fp32, with the ranks of seed 0."""


@dataclass
class Arm:
    """Results of one arm, by seed."""

    test: dict[int, list[float]] = field(default_factory=dict)
    """The fraction of correct renderings of each base image."""
    train: dict[int, float] = field(default_factory=dict)
    rate: float | None = None
    us: float | None = None


Table = dict[str, Arm]


def tables(results: Results) -> dict[tuple[str, float], Table]:
    """By network and cut: the arms, at their chosen rates, with the seeds that all of them have."""
    found: dict[tuple[str, float], Table] = defaultdict(lambda: defaultdict(Arm))
    for job, run in results.runs.items():
        if job.arm == "fine" or results.rates.get((job.network, job.arm, job.cut)) == job.rate:
            add(found[job.network, job.cut], job, run)
            form = job.arm if job.arm in ("dense", "narrow") else job.method
            found[job.network, job.cut][label(job)].us = results.latencies.get(LatencyKey(job.network, form, job.cut))
    whole = {}
    for (network, cut), table in sorted(found.items()):
        if cut:
            whole[network, cut] = finished({**table, "dense": found[network, 0.0]["dense"]})
    return whole


def label(job: Job) -> str:
    """The name of an arm in the tables."""
    return job.arm if job.method == "optimal" else f"{job.arm}, {job.method} ranks"


def add(table: Table, job: Job, run: dict[str, object]) -> None:
    """Enters a run: what it reached, and what it was before its training and between the spans of it."""
    counts = {label(job): run["test"]}
    if job.method == "optimal" and "untrained" in run and job.arm != "fine":
        counts[f"{label(job)}, untrained"] = run["untrained"]
    if job.arm == "admm":
        counts["admm, own dense weights"] = run["own_dense"]
    for name, digits in counts.items():
        table[name].test[job.seed] = [int(digit) / TEST_COPIES for digit in str(digits)]
    table[label(job)].train[job.seed] = run["train"]
    table[label(job)].rate = job.rate


def finished(table: Table) -> Table:
    """Only the seeds that all arms have, so that their means compare the same images."""
    seeds = sorted(set.intersection(*(set(arm.test) for arm in table.values())))
    if not seeds:
        sys.exit("no seed has finished in all arms; run run.py again to resume")

    def of_seeds(values: dict) -> dict:
        return {seed: values[seed] for seed in seeds if seed in values}

    return {name: Arm(of_seeds(arm.test), of_seeds(arm.train), arm.rate, arm.us) for name, arm in table.items()}


def interval(values: numpy.ndarray) -> tuple[float, float, float]:
    """Mean over seeds and base images in percent, and the ends of its interval."""
    images = values.mean(0)
    picks = numpy.random.default_rng(0).integers(0, len(images), (SAMPLES, len(images)))
    low, high = numpy.percentile(images[picks].mean(1), [2.5, 97.5])
    return 100 * images.mean(), 100 * low, 100 * high


def row(cells: list[str]) -> str:
    """A row of a table."""
    return "| " + " | ".join(cells) + " |"


def arms(table: Table) -> list[str]:
    """The table of all arms."""
    timed = any(arm.us is not None for arm in table.values())
    columns = ["arm", *(["us"] if timed else []), "rate", "train (%)", "test (%)", "interval", "each seed"]
    lines = [row(columns), "|" + "---|" * len(columns)]
    for name, arm in sorted(table.items()):
        values = numpy.array(list(arm.test.values()))
        mean, low, high = interval(values)
        each = " ".join(f"{100 * seed.mean():.1f}" for seed in values)
        rate = f"{arm.rate:g}" if arm.rate is not None else ""
        train = f"{100 * sum(arm.train.values()) / len(arm.train):.1f}" if arm.train else ""
        us = f"{arm.us:.1f}" if arm.us is not None else ""
        times = [us] if timed else []
        lines.append(row([name, *times, rate, train, f"{mean:.1f}", f"{low:.1f} to {high:.1f}", each]))
    return lines


def differences(table: Table) -> list[str]:
    """The table of the paired differences."""
    lines = ["| difference | points | interval |", "|---|---|---|"]
    for one, other in COMPARED:
        if one in table and other in table:
            pairs = [numpy.array(list(table[name].test.values())) for name in (one, other)]
            mean, low, high = interval(pairs[0] - pairs[1])
            lines.append(f"| {one} minus {other} | {mean:.1f} | {low:.1f} to {high:.1f} |")
    return lines


def left_out(results: Results) -> list[str]:
    """Says which methods found no ranks."""
    missing = sorted({(key.method, key.network, key.cut) for key, plan in results.plans.items() if not plan["layers"]})
    return [f"- `{m}` found no ranks for {n} at {100 * cut:.0f} %; its arm is left out." for m, n, cut in missing]


def page(results: Results) -> str:
    """The page."""
    lines = ["# Accuracy by training recipe", "", "Written by `python/experiments/report.py`; do not edit.", ""]
    lines += [INTRODUCTION.format(**results.settings), *([LATENCY] if results.latencies else []), ""]
    reasons = left_out(results)
    lines += [*reasons, ""] if reasons else []
    for (network, cut), table in tables(results).items():
        lines += [f"## {network}, {100 * cut:.0f} % of the operations cut", ""]
        lines += [*arms(table), "", *differences(table), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(page(Results(Path(sys.argv[1]))))
