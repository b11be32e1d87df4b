#!/usr/bin/env python3
"""Times committed networks, with one image and with batches: the rows of a table of the results page.

    ./network_times.py --gpu h200 --json FILE [--networks resnet50,...] [--precisions fp16,...] [--rounds 3]

Each case of `CASES` is generated for the GPU with random weights, compiled by nvcc, and run as a CUDA graph, in turn with the others. In fp16
and bf16 activations may be stored in that type. A time is the median over the rounds. It counts only if the first and the last image have the
results of the same network's program for one image in fp32, up to the bound of a network. The file is written after each round.

Needs a GPU, nvcc and numpy.
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
import tempfile

import numpy
from nvcc_program import compiled

# The bounds of a network (docs/reference/configs.md). Programs of one image in fp32 are not compared with themselves: `verify` checks them.
BOUNDS = {"fp32": 2e-5, "tf32": 1e-2, "fp16": 5e-2, "bf16": 8e-2}
# Precisions in which activations may be stored.
STORED = ("fp16", "bf16")
PIXELS = {"inception_v3": 299}


@dataclasses.dataclass(frozen=True)
class Case:
    """A network as it is timed."""

    network: str
    dense: bool = True
    precision: str = "fp32"
    images: int = 1

    def options(self) -> list[str]:
        """The options of tdc-gen."""
        options = ["--batch", str(self.images), "--precision", self.precision]
        options += ["--dense"] if self.dense else []
        return options + (["--activations", self.precision] if self.precision in STORED else [])

    def title(self) -> str:
        """The row of the table."""
        ranks = "" if self.dense else " with ranks"
        activations = f", {self.precision} activations" if self.precision in STORED else ""
        return f"{self.network}{ranks}, {self.precision}{activations}"

    def folder(self) -> str:
        """The name of its folder."""
        return f"{self.network}{'' if self.dense else '-ranks'}-{self.precision}-{self.images}"

    def expected(self) -> "Case":
        """The case with whose results it is compared."""
        return Case(self.network, self.dense)


SINGLE = [
    *("resnet18", "resnet50", "vgg16", "densenet121", "densenet201"),
    *("googlenet", "inception_v3", "mobilenet_v2", "squeezenet1_1", "resnext50_32x4d"),
]
CASES = [
    *(Case(network) for network in SINGLE),
    *(Case(network, dense=False) for network in SINGLE[:5]),
    *(Case("resnet50", precision="fp16", images=images) for images in (1, 8, 32, 128, 256)),
    *(Case("resnet50", precision=precision, images=images) for precision in ("tf32", "fp32") for images in (8, 32)),
    *(Case(network, dense, precision, 32) for network in ("resnet18", "vgg16") for dense in (True, False) for precision in ("fp16", "fp32")),
    # With random weights activations of ResNeXt-50 are beyond the range of fp16.
    *(Case(network, precision="fp16", images=32) for network in SINGLE[3:] if network != "resnext50_32x4d"),
    *(Case(network, precision="bf16", images=32) for network in ("resnet50", "mobilenet_v2", "resnext50_32x4d")),
    Case("mobilenet_v2", images=32),
]


def build(case: Case, options: argparse.Namespace, folder: pathlib.Path) -> pathlib.Path:
    """Generates a case with random weights, and compiles its program."""
    config = str(options.configs / f"{case.network}.yaml")
    own = [config, *case.options(), "--gpu", options.gpu]
    for command in ([*own, "--out", str(folder)], ["pack", *own, "--random", "1", "-o", str(folder / "weights.bin")]):
        subprocess.run([options.tdc_gen, *command], check=True, capture_output=True, text=True)
    return compiled(folder, options.arch, options.objects).resolve()


def image_file(case: Case, folder: pathlib.Path) -> pathlib.Path:
    """Random images; the first ones of a larger batch are those of a smaller one."""
    pixels = PIXELS.get(case.network, 224)
    path = folder / f"images-{case.images}-{pixels}.bin"
    if not path.exists():
        generator = numpy.random.default_rng(1)
        images = [generator.standard_normal((3, pixels, pixels), dtype=numpy.float32) for _ in range(case.images)]
        numpy.stack(images).tofile(path)
    return path


def run(case: Case, program: pathlib.Path, images: pathlib.Path) -> tuple[float, numpy.ndarray]:
    """The time of a run in microseconds, and the outputs of each image."""
    runs = 300 if case.images <= 8 else 100
    command = [program, "--weights", "weights.bin", "--input", images, "--output", "output.bin", "--runs", str(runs)]
    printed = subprocess.run(command, cwd=program.parent, check=True, capture_output=True, text=True).stdout
    outputs = numpy.fromfile(program.parent / "output.bin", numpy.float32).astype(float)
    return float(re.search(r"([0-9.]+) us (?:per|a) run", printed)[1]), outputs.reshape(case.images, -1)


def last_image(case: Case, images: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """A file of the last image alone."""
    path = folder / f"last-of-{images.name}"
    if not path.exists():
        numpy.fromfile(images, numpy.float32).reshape(case.images, -1)[-1].tofile(path)
    return path


def relative_error(found: numpy.ndarray, expected: numpy.ndarray) -> float:
    """Relative L2 error."""
    return float(numpy.linalg.norm(found - expected) / numpy.linalg.norm(expected))


def check(case: Case, outputs: numpy.ndarray, programs: dict[Case, pathlib.Path], work: pathlib.Path) -> float:
    """The largest error of the first and the last image."""
    single, images = case.expected(), image_file(case, work)
    expected = {0: image_file(single, work), -1: last_image(case, images, work)}
    return max(relative_error(outputs[at], run(single, programs[single], file)[1][0]) for at, file in expected.items())


def row(case: Case, times: list[float], program: pathlib.Path) -> list:
    """The row of a case."""
    plan = json.loads((program.parent / "plan.json").read_text())["variants"][0]
    us = statistics.median(times)
    return [case.title(), case.images, round(us, 1), round(plan["network_us"], 1), round(case.images / us * 1e6, -1)]


def is_selected(name: str, names: str | None) -> bool:
    """Whether a list of names separated by commas has a name; None has all."""
    return names is None or name in names.split(",")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", required=True, help="the GPU that is planned for")
    parser.add_argument("--arch", default="sm_90a", help="architecture to compile for [default: sm_90a]")
    parser.add_argument("--json", type=pathlib.Path, required=True, help="file of the rows")
    parser.add_argument("--networks", help="only these networks, separated by commas")
    parser.add_argument("--precisions", help="only these precisions, separated by commas")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each program [default: 3]")
    parser.add_argument("--jobs", type=int, default=6, help="networks that are built at a time [default: 6]")
    parser.add_argument("--tdc-gen", default="./tdc-gen", help="the generator [default: ./tdc-gen]")
    parser.add_argument("--configs", type=pathlib.Path, default=pathlib.Path("configs"), help="folder of the configs [default: configs]")
    options = parser.parse_args()
    cases = [case for case in CASES if is_selected(case.network, options.networks) and is_selected(case.precision, options.precisions)]
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        options.objects = work / "objects"
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            needed = dict.fromkeys([*cases, *(case.expected() for case in cases)])
            jobs = {case: pool.submit(build, case, options, work / case.folder()) for case in needed}
            programs = {case: job.result() for case, job in jobs.items()}
        print(f"{len(programs)} programs built", flush=True)
        times: dict[Case, list[float]] = {case: [] for case in cases}
        wrong = set()
        for turn in range(options.rounds):
            for case in cases:
                us, outputs = run(case, programs[case], image_file(case, work))
                times[case].append(us)
                if turn == 0 and case != case.expected():
                    error = check(case, outputs, programs, work)
                    print(f"{case.title()}, {case.images}: {us} us, error {error:.1e}", flush=True)
                    if not error <= BOUNDS[case.precision]:
                        wrong.add(case)
            rows = [row(case, times[case], programs[case]) for case in cases if case not in wrong]
            columns = ["network", "images", "measured, us", "predicted, us", "images per second"]
            options.json.write_text(json.dumps({"columns": columns, "rows": rows}, indent=1) + "\n")
    for case in wrong:
        print(f"WRONG {case.title()}, {case.images} images")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as failed:
        sys.exit(f"{failed}\n{failed.stderr}")
