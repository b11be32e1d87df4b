#!/usr/bin/env python3
"""Times networks imported from ONNX beside PyTorch's CUDA graphs.

    ./imported_times.py [--networks mobilenet_v2,...] [--tdc-gen ./tdc-gen] [--json FILE]

One image, random weights. Generated in fp32 and in fp16; PyTorch in fp32, in TF32 and in fp16 with channels_last, each captured in a CUDA
graph, with cuDNN's benchmark mode. Every generated result is compared with PyTorch in float64. The bound of an output's relative error is
twice that of PyTorch's own fp32 or fp16, but at least 1e-5 in fp32 and 1e-2 in fp16. Times of a network whose error is above the bound count
for nothing.

Needs what check_imports.py needs.
"""

import argparse
import concurrent.futures
import copy
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import warnings

import torch
from check_imports import errors, export, outputs, run_program
from imported_networks import network
from nvcc_program import compiled

NETWORKS = (
    "mobilenet_v2 mobilenet_v3_large shufflenet_v2_x1_0 resnext50_32x4d googlenet regnet_y_400mf convnext_tiny efficientnet_b0 "
    "deeplabv3_resnet50 fpn_resnet50"
).split()
LARGE = ("deeplabv3_", "fpn_")
# The least bound of the relative error in each precision.
LEAST_BOUNDS = {"fp32": 1e-5, "fp16": 1e-2}


def image_of(name: str) -> torch.Tensor:
    """The input of a network."""
    torch.manual_seed(1)
    size = 512 if name.startswith(LARGE) else 224
    return torch.randn(1, 3, size, size)


def bounds(precision: str, own_errors: list[float]) -> list[float]:
    """The bound of each output's error. PyTorch's own errors do not count if they are not finite: its fp16 may overflow."""
    least = LEAST_BOUNDS[precision]
    return [max(least, 2 * own) if math.isfinite(own) else least for own in own_errors]


def build(name: str, precision: str, options: argparse.Namespace, folder: pathlib.Path) -> dict:
    """The program of a network in a precision."""
    image = image_of(name)
    path = folder / f"{name}-{precision}" / f"{name}.onnx"
    path.parent.mkdir()
    model = network(name, "cpu")
    export(model, image, path, "legacy", len(outputs(model, image)))
    generated = path.parent / "generated"
    try:
        command = [options.tdc_gen, str(path), "--precision", precision, "--out", str(generated)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        program = compiled(generated, options.arch)
    except subprocess.CalledProcessError as failure:
        return {"failure": (failure.stderr or "nvcc failed").strip()[-500:]}
    (generated / "input.bin").write_bytes(image.numpy().tobytes())
    return {"program": str(program.resolve())}


def run(built: dict, expected: list[torch.Tensor], most: list[float]) -> dict:
    """Time and error of a program, or why there is none."""
    if "failure" in built:
        return built
    program = pathlib.Path(built["program"])
    return run_program(program, program.parent / "input.bin", expected, most)


def graph_us(model: torch.nn.Module, image: torch.Tensor) -> float:
    """The median time of a CUDA graph of a network, in microseconds."""
    with torch.inference_mode():
        for _ in range(4):
            model(image)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(image)
        times = []
        for _ in range(12):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(20):
                graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(1000 * start.elapsed_time(end) / 20)
    return statistics.median(times[2:])


def pytorch(name: str) -> tuple[dict, list[torch.Tensor], dict[str, list[float]]]:
    """PyTorch's times, its outputs in float64, and the bound of each output's error in each precision."""
    model, image = network(name, "cpu").cuda(), image_of(name).cuda()
    expected = outputs(copy.deepcopy(model).double(), image.double())
    report, most = {}, {}
    for precision, tf32 in (("fp32", False), ("tf32", True)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        if not tf32:
            most["fp32"] = bounds("fp32", errors(outputs(model, image), expected))
        report[precision] = graph_us(model, image)
    half, image = model.half().to(memory_format=torch.channels_last), image.half().to(memory_format=torch.channels_last)
    most["fp16"] = bounds("fp16", errors(outputs(half, image), expected))
    report["fp16 channels_last"] = graph_us(half, image)
    return report, expected, most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS), help="names, as in check_imports.py")
    parser.add_argument("--tdc-gen", default="./tdc-gen", help="the generator [default: ./tdc-gen]")
    parser.add_argument("--arch", default="sm_90a", help="architecture to compile for [default: sm_90a]")
    parser.add_argument("--jobs", type=int, default=8, help="networks that are built at a time [default: 8]")
    parser.add_argument("--json", type=pathlib.Path, help="file for the report, written after each network")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(2)
    names = options.networks.split(",")
    reports, wrong = [], 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        jobs = {
            (name, precision): pool.submit(build, name, precision, options, pathlib.Path(folder))
            for name in names
            for precision in LEAST_BOUNDS
        }
        torch.backends.cudnn.benchmark = True
        print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}", flush=True)
        theirs = {name: pytorch(name) for name in names}
        for name in names:
            times, expected, most = theirs[name]
            report = {"network": name, "pytorch_us": times}
            for precision, of_outputs in most.items():
                try:
                    report[precision] = run(jobs[name, precision].result(), expected, of_outputs)
                except subprocess.CalledProcessError as failure:
                    report[precision] = {"failure": failure.stderr.strip()[-500:]}
                wrong += not report[precision].get("error", math.inf) <= report[precision].get("bound", 0)
            print(json.dumps(report), flush=True)
            reports.append(report)
            if options.json:
                options.json.write_text(json.dumps(reports, indent=2) + "\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
