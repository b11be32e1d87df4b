#!/usr/bin/env python3
"""Times networks imported from ONNX beside PyTorch's CUDA graphs.

    ./imported_times.py [--networks mobilenet_v2,...] [--tdc-gen ./tdc-gen] [--json FILE]

One image, random weights. Generated in fp32 and in fp16; PyTorch in fp32, in TF32 and in fp16 with channels_last, each captured in a CUDA
graph, with cuDNN's benchmark mode. Every generated result is compared with PyTorch's fp32: the relative error must be below 1e-4 in fp32 and
5e-2 in fp16, else the times count for nothing. `check_imports.py` has the strict comparison.

Needs what check_imports.py needs.
"""

import argparse
import concurrent.futures
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import warnings

import torch
from check_imports import export, network
from compare_builds import compiled

NETWORKS = (
    "mobilenet_v2 mobilenet_v3_large shufflenet_v2_x1_0 resnext50_32x4d googlenet regnet_y_400mf convnext_tiny efficientnet_b0 "
    "deeplabv3_resnet50 fpn_resnet50"
).split()
LARGE = ("deeplabv3_", "fpn_")
ERRORS = {"fp32": 1e-4, "fp16": 5e-2}


def image_of(name: str) -> torch.Tensor:
    """The input of a network."""
    torch.manual_seed(1)
    size = 512 if name.startswith(LARGE) else 224
    return torch.randn(1, 3, size, size)


def results(model: torch.nn.Module, image: torch.Tensor) -> list[torch.Tensor]:
    """The outputs of a network."""
    found = model(image)
    return [found] if isinstance(found, torch.Tensor) else list(found)


def build(name: str, precision: str, options: argparse.Namespace, folder: pathlib.Path) -> dict:
    """The program of a network in a precision."""
    image = image_of(name)
    path = folder / f"{name}-{precision}" / f"{name}.onnx"
    path.parent.mkdir()
    export(network(name), image, path, "legacy")
    generated = path.parent / "generated"
    try:
        command = [options.tdc_gen, str(path), "--precision", precision, "--out", str(generated)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        program = compiled(generated, options.arch)
    except subprocess.CalledProcessError as failure:
        return {"failure": (failure.stderr or "nvcc failed").strip()[-500:]}
    (generated / "input.bin").write_bytes(image.numpy().tobytes())
    return {"program": str(program.resolve())}


def run(built: dict, expected: list[torch.Tensor]) -> dict:
    """Time and relative error of a program. Each output is identified by its size."""
    if "failure" in built:
        return built
    program = pathlib.Path(built["program"])
    folder = program.parent
    files = [f"output{index}.bin" for index in range(len(expected))]
    outputs = [word for file in files for word in ("--output", file)]
    command = [str(program), "--weights", "weights.bin", "--input", "input.bin", *outputs]
    output = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    found = [torch.frombuffer(bytearray((folder / file).read_bytes()), dtype=torch.float32).double() for file in files]
    found.sort(key=len)
    pairs = zip(found, sorted((tensor.flatten() for tensor in expected), key=len), strict=True)
    errors = [float((ours - theirs).norm() / theirs.norm()) for ours, theirs in pairs]
    time = re.search(r"([0-9.]+) us (?:per|a) run", output)
    return {"us": float(time[1]) if time else None, "error": max(errors)}


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


def pytorch(name: str) -> tuple[dict, list[torch.Tensor]]:
    """PyTorch's times, and its outputs in fp32."""
    model, image = network(name).cuda(), image_of(name).cuda()
    report = {}
    for precision, tf32 in (("fp32", False), ("tf32", True)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        if not tf32:
            with torch.inference_mode():
                expected = [tensor.double().cpu() for tensor in results(model, image)]
        report[precision] = graph_us(model, image)
    half = model.half().to(memory_format=torch.channels_last)
    report["fp16 channels_last"] = graph_us(half, image.half().to(memory_format=torch.channels_last))
    return report, expected


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS), help="names, as in check_imports.py")
    parser.add_argument("--tdc-gen", default="./tdc-gen", help="the generator [default: ./tdc-gen]")
    parser.add_argument("--arch", default="sm_90", help="architecture to compile for [default: sm_90]")
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
            for precision in ERRORS
        }
        torch.backends.cudnn.benchmark = True
        print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}", flush=True)
        theirs = {name: pytorch(name) for name in names}
        for name in names:
            times, expected = theirs[name]
            report = {"network": name, "pytorch_us": times}
            for precision, most in ERRORS.items():
                try:
                    report[precision] = run(jobs[name, precision].result(), expected)
                except subprocess.CalledProcessError as failure:
                    report[precision] = {"failure": failure.stderr.strip()[-500:]}
                wrong += not report[precision].get("error", float("inf")) <= most
            print(json.dumps(report), flush=True)
            reports.append(report)
            if options.json:
                options.json.write_text(json.dumps(reports, indent=2) + "\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
