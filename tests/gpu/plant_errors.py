#!/usr/bin/env python3
"""Checks that check_imports.py finds an error in any one layer of a network.

    ./plant_errors.py [--networks resnet18,...] [--tdc-gen ./tdc-gen] [--json FILE]

Each network is built once, as check_imports.py does. Then, for each layer with weights, its program runs with a file of weights in which
every second weight of that layer is 1 % too large. (A single weight could multiply a channel that is zero on the whole image.) Each such run
must be outside the bound, and the run without an error within it. The file of --json has the number of layers and the least error of each
network.

Needs a GPU, nvcc, PyTorch, torchvision, onnxscript and safetensors.
"""

import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

import torch
from check_imports import SOME, build, folder_name, is_right, run_program, written
from safetensors.torch import load_file, save_file


def weights_of(tensors: dict[str, torch.Tensor]) -> list[str]:
    """The weights of layers: filters, matrices, and scales of normalisations."""
    return sorted(name for name in tensors if name.endswith((".weight", ".scale")))


def with_error(tensors: dict[str, torch.Tensor], name: str) -> dict[str, torch.Tensor]:
    """The tensors with an error in every second element of one of them."""
    wrong = tensors[name].clone()
    wrong.view(-1)[::2] *= 1.01
    return tensors | {name: wrong}


def check(name: str, folder: pathlib.Path, options: argparse.Namespace) -> dict:
    """The report on a network: how many errors were planted and found, and the one nearest to the bound."""
    report = written(name, "legacy", folder)
    if "failure" not in report:
        report = build(folder, folder / "generated", options)
    if "failure" in report:
        return report
    program = pathlib.Path(report.pop("program"))
    bounds = report.pop("bounds")
    files = [folder / f"expected{index}.bin" for index in range(len(bounds))]
    expected = [torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.float64) for file in files]
    config, values = folder / "model.yaml", folder / "model.safetensors"

    def tdc_gen(*arguments: str | pathlib.Path) -> None:
        subprocess.run([options.tdc_gen, *map(str, arguments)], check=True, capture_output=True, text=True)

    def run() -> dict:
        return run_program(program, folder / "input.bin", expected, bounds, ("--runs", "1"))

    try:
        tdc_gen("import", folder / "model.onnx", "-o", config, "--weights", values)
        right = run()
        report |= {"error": right["error"], "bound": right["bound"], "missed": []}
        # Copies: tensors of a file may change with it.
        tensors = {name: tensor.clone() for name, tensor in load_file(values).items()}
        names = weights_of(tensors)
        least = None
        for layer in names:
            save_file(with_error(tensors, layer), values)
            tdc_gen("pack", config, values, "-o", program.parent / "weights.bin")
            found = run()
            if is_right(found):
                report["missed"].append({"layer": layer, "error": found["error"], "bound": found["bound"]})
            ratio = found["error"] / found["bound"]
            least = ratio if least is None else min(least, ratio)
        save_file(tensors, values)
        tdc_gen("pack", config, values, "-o", program.parent / "weights.bin")
        if run()["error"] != right["error"]:
            return report | {"failure": "the result without an error is another one afterwards"}
        return report | {"layers": len(names), "least_error_over_bound": least}
    except subprocess.CalledProcessError as failure:
        return report | {"failure": (failure.stderr or "").strip()[-500:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(SOME), help="names of torchvision, or timm/NAME, separated by commas")
    parser.add_argument("--tdc-gen", default="./tdc-gen", help="the generator [default: ./tdc-gen]")
    parser.add_argument("--arch", default="sm_90a", help="architecture to compile for [default: sm_90a]")
    parser.add_argument("--jobs", type=int, default=8, help="networks at a time [default: 8]")
    parser.add_argument("--objects", type=pathlib.Path, help="folder in which object files of units are kept for later runs")
    parser.add_argument("--json", type=pathlib.Path, help="file for the report")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    reports = []
    with tempfile.TemporaryDirectory() as temporary, concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        work = pathlib.Path(temporary)
        options.objects = options.objects or work / "objects"
        names = options.networks.split(",")
        jobs = [pool.submit(check, name, work / folder_name(name, "legacy"), options) for name in names]
        for job in concurrent.futures.as_completed(jobs):
            report = job.result()
            reports.append(report)
            print(json.dumps(report), flush=True)
            if options.json:
                options.json.write_text(json.dumps(reports, indent=2) + "\n")
    layers = sum(report.get("layers", 0) for report in reports)
    missed = sum(len(report.get("missed", [])) for report in reports)
    wrong = sum("failure" in report or not is_right(report) for report in reports)
    print(f"{layers - missed} of {layers} planted errors found, {wrong} of {len(reports)} networks fail")
    sys.exit(1 if wrong or missed or not layers else 0)


if __name__ == "__main__":
    main()
