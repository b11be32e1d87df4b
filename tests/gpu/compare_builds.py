#!/usr/bin/env python3
"""Times two builds of one network, or of any pairs of generated folders, interleaved in one run on one GPU.

    ./compare_builds.py BEFORE AFTER [BEFORE AFTER ...] [--rounds 15] [--limit 1.01] [--arch sm_90a] [--json FILE]

Each folder is one that `tdc-gen` generated. All are compiled first; then the programs run in turn, BEFORE, AFTER, AFTER, BEFORE, and so on,
so that clocks and temperature affect both alike. A time is the program's own median over a CUDA graph, with random weights; the result is the
median over the rounds and the ratio of the medians. Exits with 1 if a ratio is above the limit.

Needs nvcc and a GPU; Python's standard library only.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

from nvcc_program import compiled


def time_us(program: pathlib.Path) -> float:
    """The time per run that the program prints, in microseconds."""
    output = subprocess.run([str(program.resolve()), "--random", "1"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"([0-9.]+) us (?:per|a) run", output)
    if found is None:
        sys.exit(f"{program} printed no time per run:\n{output}")
    return float(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=15, help="runs of each program [default: 15]")
    parser.add_argument("--limit", type=float, default=1.01, help="largest ratio after/before [default: 1.01]")
    parser.add_argument("--arch", default="sm_90a", help="architecture to compile for [default: sm_90a]")
    parser.add_argument("--json", type=pathlib.Path, help="file for the report")
    options = parser.parse_args()
    if len(options.folders) % 2 or options.rounds < 1:
        parser.error("give pairs of folders, BEFORE AFTER, and at least one round")

    pairs = list(zip(options.folders[::2], options.folders[1::2]))
    programs = [[compiled(folder, options.arch) for folder in pair] for pair in pairs]
    times = [[[], []] for _ in pairs]
    for round_index in range(options.rounds):
        for pair, of_pair in zip(programs, times):
            # The order alternates, so that neither build always runs after the other.
            for side in (0, 1) if round_index % 2 == 0 else (1, 0):
                of_pair[side].append(time_us(pair[side]))

    report, slower = [], False
    for (before, after), of_pair in zip(pairs, times):
        before_us, after_us = (statistics.median(of_side) for of_side in of_pair)
        ratio = after_us / before_us
        slower = slower or ratio > options.limit
        report.append({"before": str(before), "after": str(after), "before_us": before_us, "after_us": after_us, "ratio": ratio})
        print(f"{before} {before_us:.2f} us, {after} {after_us:.2f} us, ratio {ratio:.4f}")
    if options.json:
        options.json.write_text(json.dumps({"rounds": options.rounds, "pairs": report}, indent=2) + "\n")
    sys.exit(1 if slower else 0)


if __name__ == "__main__":
    main()
