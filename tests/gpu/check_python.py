#!/usr/bin/env python3
"""Checks the Python module of a generated network on a GPU, and measures the time of a call.

    ./check_python.py [--network mobilenet_v3_small] [--tdc-gen ./tdc-gen] [--json FILE]

A network of torchvision with random weights is exported to ONNX and generated with --python. Its results are compared with PyTorch in float64: by
itself, on another stream, with batches that are no multiple of the network's, traced by torch.compile and captured in a CUDA graph. The time of a
call is the time of the host until it returns.

Needs a GPU, nvcc, PyTorch, torchvision and onnxscript.
"""

import argparse
import copy
import importlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from check_imports import error, export
from imported_networks import network

FAILURES: list[str] = []


def check(what: str, is_right: bool) -> None:
    """Prints a result and remembers a failure."""
    print(f"{'ok      ' if is_right else 'FAILED  '}{what}")
    if not is_right:
        FAILURES.append(what)


def raises(function, exception: type[Exception]) -> bool:
    """Whether a call fails as it should."""
    try:
        function()
    except exception:
        return True
    return False


def host_us(function, runs: int = 200) -> float:
    """The median time of a call on the host, in microseconds, with an idle GPU."""
    times = []
    for _ in range(runs):
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        times.append(1e6 * (time.perf_counter() - start))
    return statistics.median(times)


FORMATS = [("fp32", "nchw"), ("fp16", "nchw"), ("fp32", "nhwc"), ("fp16", "nhwc")]

# Outputs of 13 and 32 channels, a concatenation of both, and a classifier.
OPS = """
name: {name}
input: 3x5x17x11
gpu: {gpu}
{options}
ops:
  - {{op: conv, name: a, n: 13, activation: relu, output: {{name: odd{format}}}}}
  - {{op: conv, name: b, n: 32, inputs: a, output: {{name: even{format}}}}}
  - {{op: concat, name: c, inputs: [a, b], output: {{name: both{format}}}}}
  - {{op: global_avg_pool, name: mean}}
  - {{op: linear, name: d, n: 7, output: {{name: scores{format}}}}}
"""


def check_outputs(tdc_gen: str, gpu: str, folder: pathlib.Path) -> None:
    """Outputs in every format are those in fp32 NCHW, rounded and in another order."""
    for options in ("", "precision: fp16\nactivations: fp16"):
        x = torch.randn(3, 5, 17, 11, device="cuda")
        plain = []
        for number, (dtype, layout) in enumerate(FORMATS):
            name = f"outputs{number}{'_fp16' if options else ''}"
            written = "" if number == 0 else f", dtype: {dtype}, layout: {layout}"
            config = folder / f"{name}.yaml"
            config.write_text(OPS.format(name=name, gpu=gpu, options=options, format=written))
            weights = folder / name / "weights.bin"
            subprocess.run([tdc_gen, str(config), "--out", str(folder / name), "--python"], check=True, capture_output=True)
            subprocess.run([tdc_gen, "pack", str(config), "--random", "1", "-o", str(weights)], check=True, capture_output=True)
            sys.path.insert(0, str(folder / name))
            outputs = importlib.import_module(name).load(weights)(x)
            if number == 0:
                plain = outputs
                continue
            is_right = True
            for found, expected in zip(outputs, plain, strict=True):
                expected = expected.permute(0, 2, 3, 1) if layout == "nhwc" else expected
                expected = expected.to(torch.float16 if dtype == "fp16" else torch.float32)
                bound = 1e-3 if options or dtype == "fp16" else 1e-5
                is_close = found.dtype == expected.dtype and found.shape == expected.shape
                is_right = is_right and is_close and error(found.float().cpu(), expected.double().cpu()) <= bound
            check(f"outputs in {dtype} {layout.upper()}{', ' + options.splitlines()[0] if options else ''}", is_right)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="mobilenet_v3_small", help="a name of torchvision [default: mobilenet_v3_small]")
    parser.add_argument("--batch", type=int, default=2, help="batch size of the generated network [default: 2]")
    parser.add_argument("--tdc-gen", default="./tdc-gen", help="the generator [default: ./tdc-gen]")
    parser.add_argument("--gpu", default="h100", help="the GPU to generate for [default: h100]")
    parser.add_argument("--json", type=pathlib.Path, help="file for the report")
    options = parser.parse_args()

    folder = pathlib.Path(tempfile.mkdtemp())
    model = network(options.network, "cpu")
    images = torch.randn(5, 3, 224, 224)
    with torch.no_grad():
        expected = copy.deepcopy(model).double()(images.double())
    path = folder / "net.onnx"
    export(model, images[: options.batch], path, "legacy")
    subprocess.run([options.tdc_gen, str(path), "--out", str(folder / "net"), "--python"], check=True)
    sys.path.insert(0, str(folder / "net"))
    start = time.perf_counter()
    net = importlib.import_module("net")
    loaded = net.load(folder / "net" / "weights.bin")
    print(f"        built and loaded in {time.perf_counter() - start:.1f} s")

    images = images.cuda()
    batch = images[: options.batch]

    def is_right(found: torch.Tensor) -> bool:
        return found.shape[0] > 0 and error(found.flatten(1).cpu(), expected[: found.shape[0]]) < 2e-5

    check("a batch", is_right(loaded(batch)))
    check("larger and odd batches", is_right(loaded(images)) and loaded(images).shape[0] == 5)
    check("a smaller batch", is_right(loaded(images[:1])))
    check("no image", loaded(images[:0]).shape == (0, *loaded(batch).shape[1:]))
    check("a strided input", is_right(loaded(batch.to(memory_format=torch.channels_last))))
    streams = [torch.cuda.Stream() for _ in range(4)]
    results = []
    for stream in streams * 5:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            results.append(loaded(batch))
    torch.cuda.synchronize()
    check("changing streams", all(is_right(found) and torch.equal(found, results[0]) for found in results))
    compiled = torch.compile(lambda x: torch.relu(loaded(x)) - 1, fullgraph=True)
    check("torch.compile", torch.equal(compiled(batch), torch.relu(loaded(batch)) - 1))
    torch.library.opcheck(torch.ops.tdc_net.run.default, ([batch], loaded.instance))
    check("torch.library.opcheck", True)
    static = batch.clone()
    loaded(static)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = loaded(static)
    static.copy_(images[1 : 1 + options.batch])
    graph.replay()
    check("a CUDA graph", error(output.flatten(1).cpu(), expected[1 : 1 + options.batch]) < 2e-5)
    check("an input on the host is an error", raises(lambda: loaded(batch.cpu()), (ValueError, NotImplementedError)))
    check("an input in fp16 is an error", raises(lambda: loaded(batch.half()), ValueError))
    check("another size is an error", raises(lambda: loaded(batch[:, :, :100]), ValueError))
    check("two inputs are an error", raises(lambda: loaded(batch, batch), TypeError))
    check("a missing file is an error", raises(lambda: net.load("none.bin"), RuntimeError))

    check_outputs(options.tdc_gen, options.gpu, folder)

    times = {
        "call of the module": host_us(lambda: loaded(batch)),
        "call without the operator": host_us(lambda: net._instances[loaded.instance].run([batch])),
        "launch of the captured graph": host_us(graph.replay),
    }
    for what, us in times.items():
        print(f"        {what}: {us:.1f} us on the host")
    if options.json:
        report = {"network": options.network, "batch": options.batch, "torch": torch.__version__, "host_us": times, "failures": FAILURES}
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    sys.exit(1 if FAILURES else 0)


if __name__ == "__main__":
    main()
