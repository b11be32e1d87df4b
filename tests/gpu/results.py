#!/usr/bin/env python3
"""Makes the results page of a GPU, and the README's table of results, from JSON reports.

    results.py page [--check]              writes docs/results/*.md and the README's table; --check only compares
    results.py add FOLDER NAME REPORT      adds a report of `tdc-gen bench --json` as FOLDER/NAME.json
    results.py profile FOLDER NAME KIND PROFILE...
                                           adds outputs of `main.cu --profile`, files named profile_NETWORK.txt or
                                           profile_NETWORK_dense.txt; KIND is tucker or dense

FOLDER is docs/results/<gpu>. `add` and `profile` record how the numbers were measured: --command, --machine, --note, --commit
(default: HEAD) and --date (default: today). FOLDER/page.json lists the sections of the page.

A report has `provenance` and one of:
  problems    as `tdc-gen bench --json` writes them, without the candidates of cuDNN that were not timed in full
  networks    a list of {network, kind, us, sum_of_layers_us, layers}; kind is tucker, dense, pytorch_fp32 or pytorch_tf32
  rows        with `columns` and optionally `totals`: any other table
Needs Python 3.8 and nothing else.
"""

import argparse
import datetime
import difflib
import json
import math
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
README = ROOT / "README.md"
BEGIN, END = "<!-- results: made by tests/gpu/results.py -->", "<!-- end of results -->"
# The GPU whose results the README shows.
README_GPU = "h200"

# cuDNN's times of equal accuracy, by the precision of the generated kernels.
REFERENCE = {"fp32": "same_bound", "tf32": "same_bound", "fp16": "fp16", "bf16": "fp16"}
REFERENCE_TITLE = {
    "fp32": "cuDNN, fp32 bound",
    "tf32": "cuDNN TF32",
    "fp16": "cuDNN fp16",
    "bf16": "cuDNN fp16",
}
NETWORK_KINDS = {
    "tucker": "Tucker ranks",
    "dense": "dense",
    "pytorch_fp32": "PyTorch, dense, fp32",
    "pytorch_tf32": "PyTorch, dense, TF32",
}


def read(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}")
    except ValueError as error:
        sys.exit(f"{path}: not JSON: {error}")


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def time(us):
    """Microseconds with two decimals below 1000, none above."""
    if us is None:
        return ""
    return f"{us:.2f}" if us < 1000 else f"{us:.0f}"


def cell(value):
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}" if 0 < value < 0.1 else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(header, rows):
    lines = ["| " + " | ".join(row) + " |" for row in [header, *rows]]
    lines.insert(1, "|" + "---|" * len(header))
    return lines


class Problem:
    """One problem of a report of `tdc-gen bench`."""

    def __init__(self, problem, published):
        self.data = problem
        self.published = published

    def candidates(self):
        return [c for c in self.data["candidates"] if "us" in c]

    def plan(self):
        planned = [c for c in self.data["candidates"] if "plan" in c["selected_by"]]
        if planned:
            return planned[0] if "us" in planned[0] else None
        return min(self.candidates(), key=lambda c: c["us"], default=None)

    def plan_us(self):
        plan = self.plan()
        return plan and plan["us"]

    def of_scheme(self, kind, paper):
        """The tile of a scheme that its paper chooses, or the fastest; `kind` is a scheme, or a scheme and `atomic`."""
        scheme, _, reduce = kind.partition(" ")
        found = [
            c
            for c in self.candidates()
            if c["scheme"] == scheme
            and c["reduce"] == (reduce or "ordered")
            and (not paper or "paper" in c["selected_by"])
        ]
        return min(found, key=lambda c: c["us"], default={}).get("us")

    def cudnn(self, name, key="us"):
        best = (self.data.get("cudnn") or {}).get(name)
        return best and best.get(key)

    def reference_us(self):
        return self.cudnn(REFERENCE[self.data["precision"]])

    def ratio(self):
        plan, reference = self.plan_us(), self.reference_us()
        return reference / plan if plan and reference else None

    def published_us(self):
        """Published times, scaled by cuDNN's times here and there."""
        here = self.cudnn("fp32_arithmetic")
        label = self.data["label"].replace(" ", "_")
        for row in self.published["rows"] if self.published and here else []:
            if row["shape"] == label:
                return [us and us * here / row["cudnn_us"] for us in row["us"]]
        return [None] * len(self.published["titles"]) if self.published else []


class Report:
    """A report of `tdc-gen bench`."""

    def __init__(self, data):
        self.data = data
        self.problems = [Problem(p, data.get("published")) for p in data["problems"]]

    def precision(self):
        return self.problems[0].data["precision"]

    def ratios(self):
        return [ratio for ratio in (p.ratio() for p in self.problems) if ratio]

    def column(self, name):
        """Title and cells of a column, as a list of columns: `published` is several."""
        problems = self.problems
        kind, _, scheme = name.partition(":")
        if kind == "published":
            titles = (self.data.get("published") or {"titles": []})["titles"]
            return [(t, [time(p.published_us()[i]) for p in problems]) for i, t in enumerate(titles)]
        if kind in ("best", "paper"):
            title = f"`{scheme}`" + (" as published" if kind == "paper" else "")
            return [(title, [time(p.of_scheme(scheme, kind == "paper")) for p in problems])]
        plans = [p.plan() or {} for p in problems]
        error = lambda value: "" if value is None else f"{value:.1e}".replace("e-0", "e-")
        columns = {
            "shape": lambda: ("C,N,H,W", [p.data["label"] for p in problems]),
            "floor": lambda: ("floor", [time(p.data["floor_us"]) for p in problems]),
            "lanes": lambda: ("fp32 lanes' floor", [time(p.data["fp32_lanes_floor_us"]) for p in problems]),
            "plan": lambda: ("plan", [f"**{time(c.get('us'))}**" for c in plans]),
            "cold": lambda: ("plan, cold", [time(c.get("cold_us")) for c in plans]),
            "error": lambda: ("error", [error(c.get("relative_error")) for c in plans]),
            "reference": lambda: (REFERENCE_TITLE[self.precision()], [time(p.reference_us()) for p in problems]),
            "ratio": lambda: ("ratio", [time(p.ratio()) for p in problems]),
            "fp32": lambda: ("cuDNN, Winograd and FFT", [time(p.cudnn("fp32_arithmetic")) for p in problems]),
            "tf32": lambda: ("cuDNN, any fp32", [time(p.cudnn("fp32_data")) for p in problems]),
            "fp16": lambda: ("cuDNN fp16", [time(p.cudnn("fp16")) for p in problems]),
            "scheme": lambda: ("scheme", [f"`{c['scheme']}`" if c else "" for c in plans]),
            "tile": lambda: ("scheme and tile", [f"`{c['scheme']} {c['tile']}`" if c else "" for c in plans]),
        }
        if name not in columns:
            sys.exit(f"page.json: there is no column `{name}`")
        return [columns[name]()]

    def lines(self, names):
        columns = [column for name in names for column in self.column(name)]
        rows = zip(*(cells for _, cells in columns))
        return table([title for title, _ in columns], [list(row) for row in rows])

    def means(self):
        """What sums the report up, one line each."""
        lines = []
        ratios = self.ratios()
        if ratios:
            slower = [p.data["label"] for p in self.problems if (p.ratio() or 1) < 1]
            lines.append(
                f"{REFERENCE_TITLE[self.precision()]} / plan: geometric mean **{geometric_mean(ratios):.2f}**, "
                f"least {min(ratios):.2f}, over {len(ratios)}; the plan is slower for "
                + ("none." if not slower else ", ".join(slower) + ".")
            )
        others = [("cuDNN with Winograd and FFT", "fp32_arithmetic"), ("cuDNN on any fp32 data, TF32 included", "fp32_data"), ("cuDNN fp16", "fp16")]
        for title, name in others:
            both = [(p.cudnn(name), p.plan_us()) for p in self.problems]
            pairs = [cudnn / plan for cudnn, plan in both if cudnn and plan]
            if pairs and name != REFERENCE[self.precision()]:
                lines.append(f"{title} / plan: geometric mean {geometric_mean(pairs):.2f}; faster than the plan for {sum(r < 1 for r in pairs)} of {len(pairs)}.")
        for index, title in enumerate((self.data.get("published") or {"titles": []})["titles"]):
            pairs = [(p.published_us()[index], p.plan_us()) for p in self.problems]
            pairs = [published / plan for published, plan in pairs if published and plan]
            if pairs:
                lines.append(f"{title} / plan: geometric mean {geometric_mean(pairs):.2f}, least {min(pairs):.2f}.")
        return [f"- {line}" for line in lines]


def provenance(data):
    """Where a report's numbers come from, one line."""
    about = data.get("provenance", {})
    environment = data.get("environment", {})
    parts = [f"`{about['command']}`"] if about.get("command") else []
    parts += [about[key] for key in ("machine", "date") if about.get(key)]
    parts += [f"commit {about['commit']}"] if about.get("commit") else ["commit not recorded"]
    names = [("driver", "driver"), ("nvrtc", "NVRTC"), ("cudnn", "cuDNN")]
    parts += [f"{title} {environment[key]}" for key, title in names if environment.get(key)]
    note = about.get("note", "")
    return f"Measured with {', '.join(parts)}. {note}".strip()


def network_rows(folder, names):
    """Times by network and kind."""
    rows = {}
    for name in names:
        for row in read(folder / f"{name}.json")["networks"]:
            rows[row["network"], row["kind"]] = row
    return rows


def network_lines(rows, networks):
    header = ["network"]
    kinds = [kind for kind in NETWORK_KINDS if any(key[1] == kind for key in rows)]
    for kind in kinds:
        header += [f"{NETWORK_KINDS[kind]}, us"]
        if not kind.startswith("pytorch"):
            header += ["layers", "sum of layers, us"]
    body = []
    for network in networks:
        line = [network]
        for kind in kinds:
            row = rows.get((network, kind), {})
            shown = row.get("us")
            line += ["" if shown is None else f"{shown:.0f}" if kind.startswith("pytorch") else f"**{shown:.0f}**"]
            if not kind.startswith("pytorch"):
                line += [cell(row.get("layers")), cell(row.get("sum_of_layers_us"))]
        body.append(line)
    # Leave out columns that no network has.
    used = [i for i, title in enumerate(header) if any(line[i] for line in body)]
    return table([header[i] for i in used], [[line[i] for i in used] for line in body])


def summary_lines(folder, names):
    rows = []
    for name in names:
        report = Report(read(folder / f"{name}.json"))
        ratios = report.ratios()
        if not ratios:
            continue
        plans = [(p.plan_us(), p.data["fp32_lanes_floor_us"]) for p in report.problems]
        near = sum(us <= max(1.8 * lanes, lanes + 2) for us, lanes in plans if us)
        rows.append(
            [
                f"`{name}`",
                str(len(ratios)),
                f"**{geometric_mean(ratios):.2f}**",
                f"{min(ratios):.2f}",
                f"{max(ratios):.2f}",
                str(sum(ratio < 1 for ratio in ratios)),
                f"{near} of {len(plans)}",
            ]
        )
    return table(["report", "problems", "cuDNN / plan, geometric mean", "least", "most", "plan slower", "near the fp32 lanes' floor"], rows)


# What reports of problems have in common.
PROBLEMS = [
    "A problem is one convolution, without what a network would fuse into it. 50 runs in one CUDA",
    "graph, median of 25 replays, each queued behind another, so that the latency of starting a graph is not in it. Inputs are random",
    "and nonzero, and every result is checked against float64 before its time counts.",
    "",
    "- **plan**: the tile of the plan that `tdc-gen` makes by default. **cold**: on buffers that rotate over more than twice the L2 cache.",
    "- **error**: relative error (L2 norm) against float64.",
    "- **floor**: the least time that the GPU's best arithmetic rate for the precision, its bandwidth and an empty launch allow.",
    "  **fp32 lanes' floor**: the same without tensor cores; near it is within `max(1.8 floor, floor + 2 us)`.",
    "- **cuDNN**: the fastest of all algorithms of both of its APIs, in any layout, by measured error: within the error bound of the",
    "  generated kernels' precision; with Winograd and FFT (2e-5); any fp32 data, TF32 included (1e-3); fp16 (5e-3).",
    "- **ratio**: cuDNN of equal accuracy over the plan.",
]


def make_page(folder):
    page = read(folder / "page.json")
    command = "python3 tests/gpu/results.py page"
    lines = [
        f"<!-- Made from docs/results/{folder.name}/*.json by `{command}`; do not edit. -->",
        f"# {page['title']}",
        "",
        "Times are microseconds.",
        *(PROBLEMS if page["summary"] else []),
        "",
        f"This page is made from the JSON reports in `docs/results/{folder.name}/` by `{command}`. Each section",
        "says how its numbers were measured; [how to measure](../how-to/measure.md) has the commands.",
    ]
    if page["summary"]:
        lines += ["", "## Summary", "", *summary_lines(folder, page["summary"])]
    for section in page["sections"]:
        lines += ["", f"## {section['title']}", "", section["text"], ""]
        if "networks" in section:
            lines += network_lines(network_rows(folder, section["networks"]), page["networks"])
            lines += ["", *(f"- `{name}`: {provenance(read(folder / f'{name}.json'))}" for name in section["networks"])]
        elif "report" in section:
            data = read(folder / f"{section['report']}.json")
            report = Report(data)
            means = report.means()
            lines += [*report.lines(section["columns"]), "", *means, *([""] if means else []), provenance(data)]
        else:
            data = read(folder / f"{section['table']}.json")
            rows = [*data["rows"], *([data["totals"]] if "totals" in data else [])]
            lines += [*table(data["columns"], [[cell(value) for value in row] for row in rows]), "", provenance(data)]
    return "\n".join(lines) + "\n"


def readme_table(folder):
    """The README's table: the generated code's times beside those of others."""
    page = read(folder / "page.json")
    rows = []
    for name, workload in [
        ("core-shapes-fp32", "18 core convolutions of the TDC paper, fp32"),
        ("core-shapes-tf32", "the same, tf32"),
        ("core-shapes-fp16", "the same, fp16"),
        ("beyond-paper", "123 layers of GoogLeNet, MobileNet-v2, ResNet-50, AlexNet, fp32"),
    ]:
        report = Report(read(folder / f"{name}.json"))
        ratios, plans = report.ratios(), [us for us in (p.plan_us() for p in report.problems) if us]
        rows.append(
            [
                workload,
                f"{min(plans):.1f} to {max(plans):.1f}",
                REFERENCE_TITLE[report.precision()] + ": fastest algorithm",
                f"**{geometric_mean(ratios):.1f}** ({min(ratios):.1f} to {max(ratios):.1f})",
            ]
        )
    names = next(section["networks"] for section in page["sections"] if "networks" in section)
    times = network_rows(folder, names)
    for network in page["networks"]:
        tucker, dense, pytorch = (times.get((network, kind), {}).get("us") for kind in ("tucker", "dense", "pytorch_fp32"))
        if dense and pytorch:
            ranks = f", with Tucker ranks {tucker:.0f}" if tucker else ""
            rows.append([f"`{network}`, fp32", f"{dense:.0f}{ranks}", f"PyTorch, CUDA graph: {pytorch:.0f}", f"**{pytorch / dense:.1f}**"])
    return "\n".join(table(["H200, batch 1", "tdc, us", "compared with, us", "speedup"], rows))


def outputs():
    """Every file that is made, and its text."""
    made = {RESULTS / f"{folder.name}.md": make_page(folder) for folder in sorted(RESULTS.iterdir()) if folder.is_dir()}
    readme = README.read_text(encoding="utf-8")
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{README}: `{BEGIN}` and `{END}` must mark where the table is")
    made[README] = f"{before}{BEGIN}\n{readme_table(RESULTS / README_GPU)}\n{END}{after}"
    return made


def page(args):
    stale = 0
    for path, text in outputs().items():
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if old == text:
            continue
        stale += 1
        if args.check:
            name = str(path.relative_to(ROOT))
            diff = difflib.unified_diff(old.splitlines(), text.splitlines(), name, "made from JSON", lineterm="", n=1)
            print("\n".join(list(diff)[:40]))
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    if args.check and stale:
        sys.exit("out of date; run python3 tests/gpu/results.py page")


def origin(args):
    head = lambda: subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    found = {
        "command": args.command,
        "commit": args.commit or head() or None,
        "date": args.date or datetime.date.today().isoformat(),
        "machine": args.machine,
        "note": args.note,
    }
    return {key: value for key, value in found.items() if value}


def write(folder, name, data):
    path = folder / f"{name}.json"
    path.write_text(dump(data) + "\n", encoding="utf-8")
    print(f"wrote {path}; list it in {folder / 'page.json'}, then run results.py page")


def dump(value, indent=0):
    """JSON in which what fits a line is one."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + indent <= 150 or not isinstance(value, (dict, list)):
        return flat
    pad = " " * (indent + 1)
    if isinstance(value, dict):
        items = [f"{pad}{json.dumps(key)}: {dump(item, indent + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(items) + "\n" + " " * indent + "}"
    return "[\n" + ",\n".join(pad + dump(item, indent + 1) for item in value) + "\n" + " " * indent + "]"


def add(args):
    report = read(args.report)
    for problem in report.get("problems", []):
        # Some 500 algorithms a problem, timed only to find the fastest.
        (problem.get("cudnn") or {}).pop("candidates", None)
    write(args.folder, args.name, {"provenance": origin(args), **report})


def profile(args):
    networks = []
    for path in args.profiles:
        text = path.read_text(encoding="utf-8")
        total, layers = re.search(r"([0-9.]+) us (?:a|per) run", text), re.search(r"([0-9.]+)  sum", text)
        if not total or not layers:
            sys.exit(f"{path}: not the output of a generated network with --profile")
        network = re.sub(r"^profile_|_dense$", "", path.stem)
        _, _, profile_table = text.partition("alone  layer")
        layer_count = len(re.findall(r"^ *-?[0-9.]+ +[0-9.]+  \S", profile_table, re.MULTILINE)) - 1  # without the sum
        networks.append(
            {"network": network, "kind": args.kind, "us": float(total[1]), "sum_of_layers_us": float(layers[1]), "layers": layer_count}
        )
    write(args.folder, args.name, {"provenance": origin(args), "networks": networks})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    making = commands.add_parser("page", help="make the pages")
    making.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is out of date")
    making.set_defaults(run=page)
    adding = commands.add_parser("add", help="add a report of tdc-gen bench")
    profiling = commands.add_parser("profile", help="add the outputs of generated networks with --profile")
    for command, run in [(adding, add), (profiling, profile)]:
        command.add_argument("folder", type=Path)
        command.add_argument("name")
        command.add_argument("--command", help="the command that measured")
        command.add_argument("--commit")
        command.add_argument("--date")
        command.add_argument("--machine", default="1 GPU")
        command.add_argument("--note")
        command.set_defaults(run=run)
    adding.add_argument("report", type=Path)
    profiling.add_argument("kind", choices=["tucker", "dense"])
    profiling.add_argument("profiles", type=Path, nargs="+")
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
