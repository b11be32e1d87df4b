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
from arms import KAPPA
from data import TEST_COPIES
from results import Job, LatencyKey, Results
from training import TEMPERATURE

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
    ("distilled", "direct"),
    ("distilled", "dense"),
    ("distilled", "admm"),
    ("distilled", "narrow"),
    ("half", "direct"),
    ("half", "admm"),
    ("rising, untrained", "direct, untrained"),
    ("rising, untrained", "rising, own dense weights"),
    ("rising", "control"),
    ("rising", "fine"),
    ("rising", "admm"),
    ("rising", "dense"),
    ("rising", "narrow"),
    ("rising and distilled", "distilled"),
    ("rising and distilled", "rising"),
    ("rising and distilled", "dense"),
    ("rising and distilled", "narrow"),
]
RECIPES = ("direct", "distilled", "admm", "half", "rising", "rising and distilled")
"""Those that are compared with narrow networks of equal latency."""

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
- **rising**: as admm, but its pull grows from kappa = {first:g} to {last:g}, by the same factor in each dual update.
- **half**: as admm, but half of the epochs each, the second half at the rate of `direct`.
- **distilled**: as direct, at its rate; half of the loss is the divergence from the base network's classes, softened
  by a temperature of {temperature:g}.
- **rising and distilled**: as rising, with the loss of distilled in both spans.
- **narrow**: a dense network with fewer channels and about as many operations, trained for both spans.

Rates to choose from: {grids}.

*Train* is the accuracy on the images of the training at the end."""

LATENCY = """
*us* is the measured time of the generated network for one image, in fp32, with the ranks of seed 0."""
EQUAL = """\
Networks with the same measured latency, in fp32. *Predicted* is the time by `tdc-gen plan`. A compressed network is
compared with the fastest narrow one that is not faster, so that the narrow one has at least as much time. Narrow
networks have the rate that was tuned for the nearest number of operations."""


@dataclass
class Arm:
    """Results of one arm, by seed."""

    test: dict[int, list[float]] = field(default_factory=dict)
    """The fraction of correct renderings of each base image."""
    train: dict[int, float] = field(default_factory=dict)
    gaps: dict[int, float] = field(default_factory=dict)
    """The largest gap of a layer to its ranks after training with ADMM."""
    rate: float | None = None
    us: float | None = None


Table = dict[str, Arm]


def tables(results: Results) -> dict[tuple[str, float], Table]:
    """By network and cut: the arms, at their chosen rates, with the seeds that all of them have."""
    found: dict[tuple[str, float], Table] = defaultdict(lambda: defaultdict(Arm))
    for job, run in results.runs.items():
        if job.arm == "fine" or results.rate(job.network, job.arm, job.cut) == job.rate:
            add(found[job.network, job.cut], job, run)
            form = job.arm if job.arm in ("dense", "narrow") else job.method
            found[job.network, job.cut][label(job)].us = results.latencies.get(LatencyKey(job.network, form, job.cut))
    whole = {}
    for (network, cut), table in sorted(found.items()):
        if "direct" in table:
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
    if "own_dense" in run and job.arm in ("admm", *KAPPA):
        counts[f"{job.arm}, own dense weights"] = run["own_dense"]
    for name, digits in counts.items():
        table[name].test[job.seed] = [int(digit) / TEST_COPIES for digit in str(digits)]
    table[label(job)].train[job.seed] = run["train"]
    table[label(job)].rate = job.rate
    if run.get("largest_residual") is not None:
        table[label(job)].gaps[job.seed] = run["largest_residual"]


def finished(table: Table) -> Table:
    """Only the seeds that all arms have, so that their means compare the same images."""
    seeds = sorted(set.intersection(*(set(arm.test) for arm in table.values())))
    if not seeds:
        sys.exit("no seed has finished in all arms; run run.py again to resume")

    def of_seeds(values: dict) -> dict:
        return {seed: values[seed] for seed in seeds if seed in values}

    return {
        name: Arm(of_seeds(arm.test), of_seeds(arm.train), of_seeds(arm.gaps), arm.rate, arm.us)
        for name, arm in table.items()
    }


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


def largest_gaps(table: Table) -> list[str]:
    """Says how far the weights were from their ranks before the decomposition."""
    lines = []
    for name, arm in sorted(table.items()):
        if arm.gaps:
            each = " ".join(f"{gap:.3f}" for _, gap in sorted(arm.gaps.items()))
            lines.append(f"- **{name}**: largest gap of a layer to its ranks when it is decomposed, each seed: {each}")
    return [*lines, ""] if lines else []


def equal_latency(results: Results, network: str, batch: int) -> list[str]:
    """A section that compares compressed with narrow networks of equal latency, if compression has a gain."""
    times = {key: us for key, us in results.latencies.items() if (key.network, key.batch) == (network, batch)}
    dense = times.get(LatencyKey(network, "dense", 0.0, batch))
    compressed = [key for key, us in times.items() if key.form == "optimal" and dense and us < dense]
    if batch == 1 or not compressed:
        return []
    table: dict[LatencyKey, dict[str, Arm]] = defaultdict(lambda: defaultdict(Arm))
    for job, run in results.runs.items():
        key = LatencyKey(job.network, job.arm if job.arm in ("dense", "narrow") else job.method, job.cut, batch)
        known = job.arm in (*RECIPES, "dense", "narrow")
        if known and key in times and results.rate(job.network, job.arm, job.cut) == job.rate:
            table[key][job.arm].test[job.seed] = [int(digit) / TEST_COPIES for digit in str(run["test"])]
    wanted = [key for key in table if key.form in ("dense", "narrow") or key in compressed]
    seeds = set.intersection(*(set(arm.test) for key in wanted for arm in table[key].values()))
    if not seeds:
        return []
    values = {
        (key, name): numpy.array([arm.test[seed] for seed in sorted(seeds)])
        for key in wanted
        for name, arm in table[key].items()
    }
    lines = [f"## {network}, {batch} images, equal latency", "", EQUAL, ""]
    columns = ["network", "operations cut (%)", "us", "predicted", "test (%)", "interval"]
    lines += [row(columns), "|" + "---|" * len(columns)]
    for (key, name), tests in sorted(values.items(), key=lambda item: (times[item[0][0]], item[0][1])):
        mean, low, high = interval(tests)
        cells = [name, f"{100 * key.cut:.0f}", f"{times[key]:.1f}", f"{results.predicted[key]:.1f}"]
        lines.append(row([*cells, f"{mean:.1f}", f"{low:.1f} to {high:.1f}"]))
    lines += ["", "| difference | points | interval |", "|---|---|---|"]
    uncompressed = sorted((key for key in wanted if key.form in ("dense", "narrow")), key=lambda key: times[key])
    for key, name in values:
        if key.form == "optimal":
            # The dense network is slower than every network of the list.
            rival = next(other for other in uncompressed if times[other] >= times[key])
            mean, low, high = interval(values[key, name] - values[rival, rival.form])
            one, other = f"{name}, {100 * key.cut:.0f} % cut", f"{rival.form}, {100 * rival.cut:.0f} % cut"
            lines.append(f"| {one}, minus {other} | {mean:.1f} | {low:.1f} to {high:.1f} |")
    return [*lines, ""]


def left_out(results: Results) -> list[str]:
    """Says which methods found no ranks."""
    missing = sorted({(key.method, key.network, key.cut) for key, plan in results.plans.items() if not plan["layers"]})
    return [f"- `{m}` found no ranks for {n} at {100 * cut:.0f} %; its arm is left out." for m, n, cut in missing]


def at_ends(results: Results) -> list[str]:
    """Says which chosen rates are at an end of their grid."""
    grids, ends = results.grids(), []
    for (network, arm, cut), rate in sorted(results.rates.items()):
        grid = grids.get(arm, [])
        if len(grid) > 1 and rate in (min(grid), max(grid)):
            ends.append(f"{arm} of {network}" + (f" at {100 * cut:.0f} %" if cut else "") + f" ({rate:g})")
    return [f"At an end of its grid is the chosen rate of {'; '.join(ends)}.", ""] if ends else []


def page(results: Results) -> str:
    """The page."""
    lines = ["# Accuracy by training recipe", "", "Written by `python/experiments/report.py`; do not edit.", ""]
    grids = "; ".join(f"{arm} {', '.join(f'{rate:g}' for rate in rates)}" for arm, rates in results.grids().items())
    first, last = KAPPA["rising"]
    introduction = INTRODUCTION.format(**results.settings, temperature=TEMPERATURE, grids=grids, first=first, last=last)
    lines += [introduction, *([LATENCY] if results.latencies else []), ""]
    lines += [line for note in results.notes for line in (note, "")]
    lines += at_ends(results)
    reasons = left_out(results)
    lines += [*reasons, ""] if reasons else []
    for (network, cut), table in tables(results).items():
        lines += [f"## {network}, {100 * cut:.0f} % of the operations cut", ""]
        lines += [*arms(table), "", *largest_gaps(table), *differences(table), ""]
    for network, batch in sorted({(key.network, key.batch) for key in results.latencies}):
        lines += equal_latency(results, network, batch)
    return "\n".join(lines)


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(page(Results(Path(sys.argv[1]))))
