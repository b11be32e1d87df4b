#!/usr/bin/env python3
"""Writes the page of the results of run.py: ./report.py DIR PAGE.md

Intervals are 95 % by bootstrap over the base images of the test, paired where two arms are compared.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy

SAMPLES = 2000
COMPARED = [
    ("admm, untrained", "direct, untrained"),
    ("admm, untrained", "admm, own dense weights"),
    ("admm", "control"),
    ("admm", "fine"),
    ("admm", "direct"),
    ("direct", "dense"),
    ("direct", "narrow"),
    ("direct", "direct, uniform ranks"),
    ("direct", "direct, tdc ranks"),
]

INTRODUCTION = """\
Cluttered digits on {device}, PyTorch {torch}. Rates are chosen on validation images of seed 0, except that of `fine`.
Intervals are 95 % by bootstrap over the base images of the test, paired if two arms are compared. A table has the seeds
for which all of its arms have finished. Ranks are those of `tdc-gen compress --method optimal`, unless the arm names
another method.

The base network is a dense network after {epochs} epochs. Every arm trains as many epochs again:

- **dense**: the base network, trained on.
- **direct**: decomposed, then trained. **untrained** means directly after decomposition, in every arm.
- **fine**: as direct, at 0.1 times the base rate.
- **admm**: four fifths of the epochs with ADMM (**own dense weights**: accuracy then), the rest decomposed.
- **control**: as admm, without its pull towards low rank.
- **narrow**: a dense network with fewer channels and about as many operations, trained for both spans."""

Table = dict[str, dict[int, list[float]]]


def read(folder: Path, rates: dict[str, list[tuple[str, float, float]]]) -> dict[tuple[str, float], Table]:
    """By network and cut: by arm the fractions of correct renderings of all base images, a list for each seed.

    `rates` has the chosen rate by network, arm and cut.
    """
    tuned = {(network, arm, cut): rate for network, found in rates.items() for arm, cut, rate in found}
    found: dict[tuple[str, float], Table] = defaultdict(lambda: defaultdict(dict))
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text())
        job = result.get("job")
        if job is None:
            continue
        arm, place = job["arm"], (job["network"], job["cut"])
        if arm != "fine" and tuned[job["network"], arm, job["cut"]] != job["rate"]:
            continue
        label = arm if job["method"] == "optimal" else f"{arm}, {job['method']} ranks"
        rows = {label: result["test"]}
        if job["method"] == "optimal" and "untrained" in result and arm != "fine":
            rows[f"{label}, untrained"] = result["untrained"]
        if arm == "admm":
            rows["admm, own dense weights"] = result["own_dense"]
        for name, correct in rows.items():
            found[place][name][job["seed"]] = [correct[key] for key in sorted(correct, key=int)]
    for (network, cut), table in found.items():
        if cut:
            table["dense"] = found[network, 0.0]["dense"]
    return {place: finished(table) for place, table in found.items() if place[1]}


def finished(table: Table) -> Table:
    """Only the seeds that all arms have, so that their means compare the same images."""
    seeds = set.intersection(*(set(rows) for rows in table.values()))
    if not seeds:
        sys.exit("no seed has finished in all arms; run run.py again to resume")
    return {arm: {seed: rows[seed] for seed in sorted(seeds)} for arm, rows in table.items()}


def interval(values: numpy.ndarray) -> tuple[float, float, float]:
    """Mean over seeds and base images in percent, and the ends of its interval."""
    images = values.mean(0)
    picks = numpy.random.default_rng(0).integers(0, len(images), (SAMPLES, len(images)))
    low, high = numpy.percentile(images[picks].mean(1), [2.5, 97.5])
    return 100 * images.mean(), 100 * low, 100 * high


def page(folder: Path) -> str:
    """The page."""
    settings = json.loads((folder / "rates.json").read_text())
    lines = ["# Accuracy by training recipe", "", "Written by `python/experiments/report.py`; do not edit.", ""]
    lines += [INTRODUCTION.format(**settings), ""]
    for (network, cut), table in read(folder, settings["rates"]).items():
        lines += [f"## {network}, {100 * cut:.0f} % of the operations cut", ""]
        lines += ["| arm | accuracy (%) | interval | each seed |", "|---|---|---|---|"]
        for arm, seeds in sorted(table.items()):
            values = numpy.array([seeds[seed] for seed in sorted(seeds)])
            mean, low, high = interval(values)
            each = " ".join(f"{100 * row.mean():.1f}" for row in values)
            lines.append(f"| {arm} | {mean:.1f} | {low:.1f} to {high:.1f} | {each} |")
        lines += ["", "| difference | points | interval |", "|---|---|---|"]
        for one, other in COMPARED:
            seeds = sorted(set(table.get(one, {})) & set(table.get(other, {})))
            if seeds:
                gaps = numpy.array([table[one][s] for s in seeds]) - numpy.array([table[other][s] for s in seeds])
                mean, low, high = interval(gaps)
                lines.append(f"| {one} minus {other} | {mean:.1f} | {low:.1f} to {high:.1f} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(page(Path(sys.argv[1])))
