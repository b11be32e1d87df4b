#!/usr/bin/env python3
"""Chooses ranks by `tdc-gen compress`, and times the choices: the rows of the tables of rank choice on the results page.

    ./rank_choices.py choose DIR [--networks resnet18,...] [--batches] [--tune]     # no GPU, but for --tune
    ./rank_choices.py time DIR [--json FILE] [--bounds FILE] [--networks resnet18,...] [--rounds 3]   # needs a GPU and nvcc

`choose` makes weights with a stated spectrum (synthetic_weights.py; needs numpy and safetensors) and writes a folder for each network: a config
for each choice of `CHOICES`, or with --batches of `BATCHES`, and choices.json. `time` generates each with its own plan, compiles it by nvcc, and
runs it with random weights as a CUDA graph, in turn with the others. A time is the median over the rounds. With --verify it counts only if
`tdc-gen verify --local-gpu` finds the results right, whose float64 reference takes minutes. The file is written after each round.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import pathlib
import re
import statistics
import subprocess
import sys

from nvcc_program import compiled


@dataclasses.dataclass(frozen=True)
class Choice:
    """A choice of ranks: options of `compress`, to which budgets from other choices are added."""

    title: str
    options: tuple[str, ...] = ()
    # The title of the choice whose loss is the budget.
    loss_of: str | None = None
    # Whether the operations of that choice are a budget too.
    operations: bool = False
    # A point of the frontier, as a fraction of the way from the fastest to the dense one.
    frontier: float | None = None
    # Rank of the linear layers with 4096 outputs, written into the config of the choice.
    linear_rank: int | None = None


DENSE = Choice("dense")
CONFIG = Choice("ranks of the config")
AT_CONFIG = Choice("optimal at its loss and operations", loss_of=CONFIG.title, operations=True)
FRONTIER = [Choice(f"frontier at {fraction * 100:.0f} %", frontier=fraction) for fraction in (0.0, 0.3, 0.6, 0.9)]


def against(method: str, cut: float) -> list[Choice]:
    """A method at a cut of the operations, and the fastest ranks of at most its loss."""
    title = f"{method}, {cut * 100:.0f} % of the operations cut"
    return [Choice(title, ("--method", method, "--flops-cut", str(cut))), Choice(f"optimal at the loss of {method}", loss_of=title)]


CHOICES = {
    "resnet18": [DENSE, *against("tdc", 0.5), *against("uniform", 0.5), CONFIG, AT_CONFIG],
    # No choice by `tdc`: at no reduction it saves 40 % of the operations.
    "resnet50": [DENSE, *against("uniform", 0.4), *FRONTIER, Choice("speed-up of 1.05, also low ranks", ("--speedup", "1.05", "--forms", "tucker,rank"))],
    "vgg16": [
        *(DENSE, *against("tdc", 0.6), *against("uniform", 0.6), CONFIG, AT_CONFIG),
        dataclasses.replace(AT_CONFIG, title="the same, linear layers of rank 512", linear_rank=512),
        Choice("speed-up of 1.2", ("--speedup", "1.2")),
    ],
    "densenet121": [DENSE, *against("uniform", 0.2), *FRONTIER],
    "densenet201": [DENSE, *against("uniform", 0.2), *FRONTIER],
}
# The speed-up that is asked for beside a cut of the operations, for 32 images.
BATCHES = {
    ("resnet18", "fp32"): "1.5",
    ("resnet18", "fp16"): "1.2",
    ("resnet50", "fp32"): "1.3",
    ("resnet50", "fp16"): "1.1",
    ("vgg16", "fp32"): "2",
    ("vgg16", "fp16"): "1.5",
}


class Network:
    """A network with weights and a number of images, and the choices that were made for it."""

    def __init__(self, name: str, common: list[str], options: argparse.Namespace):
        self.name, self.common, self.options = name, common, options
        self.config = options.configs / f"{name}.yaml"
        self.folder = options.dir / "-".join([name, *common[1::2]])
        self.weights = options.dir / f"{name}.safetensors"
        # Times, losses and operations by the titles of choices, as `compress` reports them.
        self.points: dict[str, dict] = {}
        # The points of the report without a choice, by the names of their series.
        self.series: dict[str, list[dict]] = {}

    def choose(self, choices: list[Choice]) -> None:
        """Makes all choices."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.weights.exists():
            called([sys.executable, self.options.synthetic_weights, self.config, self.weights, "--tdc-gen", self.options.tdc_gen])
        self.series = self.compress(["--speedup", "1"], self.folder / "dense.yaml")
        made = [self.choice(at, choice) for at, choice in enumerate(choices)]
        (self.folder / "choices.json").write_text(json.dumps({"network": self.name, "common": self.common, "choices": made}, indent=1) + "\n")

    def choice(self, at: int, choice: Choice) -> dict:
        """Makes a choice."""
        config = self.folder / f"{at}.yaml"
        if choice in (DENSE, CONFIG):
            point = self.series[choice.title][0]
            config.write_bytes(self.config.read_bytes())
        else:
            point = self.compress([*choice.options, *self.budgets(choice)], config)["chosen"][0]
        if choice.linear_rank is not None:
            text, count = re.subn(r"(op: linear.*n: 4096)", rf"\1, rank: {choice.linear_rank}", config.read_text())
            if count == 0:
                sys.exit(f"{config}: no linear layer with 4096 outputs")
            config.write_text(text)
            # Those of the network without these ranks are not its own.
            point = dict.fromkeys(point)
        self.points[choice.title] = point
        print(f"{self.folder.name}: {choice.title}: {point['us']} us, a loss of {point['loss']}", flush=True)
        return {"title": choice.title, "config": config.name, "dense": choice is DENSE, **point}

    def budgets(self, choice: Choice) -> list[str]:
        """The budgets that come from other choices."""
        if choice.frontier is not None:
            losses = sorted({point["loss"] for point in self.series["optimal"]} - {0.0}, reverse=True)
            if not losses:
                sys.exit(f"{self.folder}: the frontier has only the dense network")
            return ["--loss", repr(losses[round(choice.frontier * (len(losses) - 1))])]
        if choice.loss_of is None:
            return []
        point = self.points[choice.loss_of]
        cut = 1.0 - point["flops"] / self.points[DENSE.title]["flops"]
        return ["--loss", repr(point["loss"]), *(["--flops-cut", repr(cut)] if choice.operations else [])]

    def compress(self, own: list[str], config: pathlib.Path) -> dict[str, list[dict]]:
        """Runs `compress`; the points of its report by the names of their series."""
        forms = [] if "--forms" in own else ["--forms", "tucker"]
        tune = ["--tune", "--table", self.folder / "tuning.txt"] if self.options.tune and "--method" not in own else []
        report = self.folder / "report"
        command = [self.options.tdc_gen, "compress", self.config, "--weights", self.weights, "--step", self.options.step, "--gpu", self.options.gpu]
        called([*command, *self.common, *forms, *tune, *own, "-o", config, "--report", report])
        series = json.loads((report / "report.json").read_text())["series"]
        return {entry["name"]: entry["points"] for entry in series}


def choose(options: argparse.Namespace) -> None:
    """Makes the choices of all networks."""
    for name, choices in CHOICES.items():
        if is_selected(name, options) and not options.batches:
            Network(name, [], options).choose(choices)
    for (name, precision), speedup in BATCHES.items():
        if is_selected(name, options) and options.batches:
            activations = ["--activations", precision] if precision == "fp16" else []
            common = ["--batch", "32", "--precision", precision, *activations]
            # Most operations of ResNet-50 are in 1x1 convolutions.
            forms = ("--forms", "tucker,rank") if name == "resnet50" else ()
            cut = Choice("60 % of the operations cut", ("--flops-cut", "0.6", *forms))
            Network(name, common, options).choose([DENSE, cut, Choice(f"speed-up of {speedup}", ("--speedup", speedup, *forms))])


def time(options: argparse.Namespace) -> None:
    """Builds and times the choices of all networks."""
    made = [json.loads(file.read_text()) | {"folder": file.parent} for file in sorted(options.dir.glob("*/choices.json"))]
    jobs = [(network, choice) for network in made for choice in network["choices"] if is_selected(network["network"], options)]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        programs = list(pool.map(lambda job: build(*job, options), jobs))
    print(f"{len(programs)} programs built", flush=True)
    times: list[list[float]] = [[] for _ in jobs]
    for turn in range(options.rounds):
        for us, program in zip(times, programs, strict=True):
            us.append(run(program))
        rows = [row(*job, program, statistics.median(us)) for job, program, us in zip(jobs, programs, times, strict=True)]
        add_speedups(rows)
        columns = ["network", "choice", "predicted, us", "plan, us", "measured, us", "speed-up", "loss", "GFLOP"]
        options.json.write_text(json.dumps({"columns": columns, "rows": rows}, indent=1) + "\n")
        columns = ["network", "dense, us", "fastest choice, us", "any ranks, us", "any kernels, us", "fastest choice / any kernels"]
        bounds = [bound_row(network, rows) for network in made if is_selected(network["network"], options)]
        options.bounds.write_text(json.dumps({"columns": columns, "rows": bounds}, indent=1) + "\n")
        if turn == 0:
            print("\n".join(str(one) for one in rows), flush=True)


def build(network: dict, choice: dict, options: argparse.Namespace) -> pathlib.Path:
    """Generates, checks and compiles a choice."""
    config = network["folder"] / choice["config"]
    folder = config.with_suffix("")
    own = [config, *(["--dense"] if choice["dense"] else []), *network["common"], "--gpu", options.gpu]
    called([options.tdc_gen, *own, "--out", folder])
    if options.verify:
        called([options.tdc_gen, "verify", *own, "--local-gpu"])
    return compiled(folder, options.arch, options.dir / "objects").resolve()


def run(program: pathlib.Path) -> float:
    """The time of a run in microseconds."""
    printed = subprocess.run([program, "--random", "1"], cwd=program.parent, check=True, capture_output=True, text=True).stdout
    return float(re.search(r"([0-9.]+) us (?:per|a) run", printed)[1])


def row(network: dict, choice: dict, program: pathlib.Path, us: float) -> list:
    """The row of a choice; its plan may have measured tiles, which `compress` does not use."""
    plan = json.loads((program.parent / "plan.json").read_text())["variants"][0]
    operations = None if choice["flops"] is None else choice["flops"] / 1e9
    values = [(choice["us"], 2), (plan["network_us"], 2), (us, 2), (None, 2), (choice["loss"], 4), (operations, 3)]
    return [row_name(network), choice["title"], *(None if value is None else round(value, digits) for value, digits in values)]


def add_speedups(rows: list[list]) -> None:
    """Sets how many times as fast as the dense network each choice was measured."""
    dense = {name: measured for name, title, _, _, measured, *_ in rows if title == DENSE.title}
    for one in rows:
        one[5] = round(dense[one[0]] / one[4], 2)


def bound_row(network: dict, rows: list[list]) -> list:
    """Measured times of a network, dense and with ranks, and the predicted lower bounds of its last report."""
    bound = json.loads((network["folder"] / "report" / "report.json").read_text())["lower_bound"]
    own = [measured for name, title, _, _, measured, _, loss, _ in rows if name == row_name(network) and title != DENSE.title and loss is not None]
    dense = next(measured for name, title, _, _, measured, *_ in rows if (name, title) == (row_name(network), DENSE.title))
    fastest, floor = bound["fastest_us"], bound["floor_us"]
    return [row_name(network), dense, min(own), round(fastest, 2), round(floor, 2), round(min(own) / floor, 2)]


def row_name(network: dict) -> str:
    """The name of a network in the tables, with the number of images and the precision of a batch."""
    common = network["common"]
    return ", ".join([network["network"], *([f"{common[1]} images", common[3]] if common else [])])


def called(command: list) -> str:
    """The output of a command."""
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def is_selected(network: str, options: argparse.Namespace) -> bool:
    """Whether the option --networks has a network."""
    return options.networks is None or network in options.networks.split(",")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["choose", "time"])
    parser.add_argument("dir", type=pathlib.Path, help="the folder of the choices")
    parser.add_argument("--gpu", default="h200", help="the GPU that is planned for [default: h200]")
    parser.add_argument("--networks", help="only these networks, separated by commas")
    parser.add_argument("--tdc-gen", default="./tdc-gen", help="the generator [default: ./tdc-gen]")
    parser.add_argument("--configs", type=pathlib.Path, default=pathlib.Path("configs"), help="folder of the configs [default: configs]")
    parser.add_argument("--batches", action="store_true", help="choose: for 32 images")
    parser.add_argument("--tune", action="store_true", help="choose: the exact search with --tune")
    parser.add_argument("--step", default="32", help="choose: ranks are multiples of this [default: 32]")
    weights = pathlib.Path(__file__).parent.parent / "compress" / "synthetic_weights.py"
    parser.add_argument("--synthetic-weights", default=weights, help="choose: the script that makes weights [default: that of the repository]")
    parser.add_argument("--json", type=pathlib.Path, default=pathlib.Path("rank-choice.json"), help="time: file of the rows [default: rank-choice.json]")
    parser.add_argument("--bounds", type=pathlib.Path, default=pathlib.Path("rank-choice-bounds.json"), help="time: file of the lower bounds [default: rank-choice-bounds.json]")
    parser.add_argument("--arch", default="sm_90a", help="time: architecture to compile for [default: sm_90a]")
    parser.add_argument("--verify", action="store_true", help="time: check the results of each choice first")
    parser.add_argument("--rounds", type=int, default=3, help="time: runs of each program [default: 3]")
    parser.add_argument("--jobs", type=int, default=6, help="time: programs that are built at a time [default: 6]")
    options = parser.parse_args()
    unknown = set(options.networks.split(",") if options.networks else []) - set(CHOICES)
    if unknown:
        parser.error(f"no choices for {', '.join(sorted(unknown))}; networks: {', '.join(CHOICES)}")
    {"choose": choose, "time": time}[options.command](options)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as failed:
        sys.exit(f"{failed}\n{failed.stderr}")
