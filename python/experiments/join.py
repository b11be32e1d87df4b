#!/usr/bin/env python3
"""Joins the results of parts of one experiment, such as of its networks: ./join.py OUT.jsonl PART.jsonl..."""

from __future__ import annotations

import sys
from pathlib import Path

from results import Results


def join(out: Path, parts: list[Path]) -> None:
    """Writes what all parts have, each run once.

    Raises:
        ValueError: the settings differ, or `out` has other results.
    """
    joined = Results(out)
    for part in parts:
        results = Results(part)
        if joined.settings and not joined.same_experiment(results.settings):
            raise ValueError(f"{part} has other settings than {parts[0]}")
        joined.set_settings(joined.settings or results.settings)
        for note in results.notes:
            joined.add_note(note)
        joined.set_rates(results.rates)
        joined.add_plans(results.plans)
        for job, run in results.runs.items():
            if job not in joined.runs:
                joined.add_run(job, {key: value for key, value in run.items() if key != "job"})
        for key, us in results.latencies.items():
            joined.add_latency(key, us, results.predicted[key])


if __name__ == "__main__":
    join(Path(sys.argv[1]), [Path(part) for part in sys.argv[2:]])
