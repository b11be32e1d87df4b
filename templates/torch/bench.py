"""Runs a network in PyTorch, for `tdc-gen bench --network`. Prints one JSON object a line.

    bench.py probe                                                  versions and the device
    bench.py check MODULE PARAMETERS BATCH INPUT... OUTPUT...       relative errors of outputs against float64
    bench.py time MODULE PARAMETERS BATCH ARITHMETIC MODE           {"ready": true}, then a time for each line of the input

MODULE has the class `Network` with `INPUTS` and `PARAMETERS`, PARAMETERS is a safetensors file, INPUT and OUTPUT are raw fp32 in NCHW.
ARITHMETIC is fp32, tf32 or fp16; MODE is graph (a CUDA graph of the module) or a mode of torch.compile. Needs PyTorch and nothing else.
"""

import importlib.util
import json
import math
import statistics
import struct
import sys

import torch

# Images that are computed at a time in float64.
IMAGES_OF_CHECK = 16
# Samples of a time, of which the median counts, and the microseconds that a sample should take.
SAMPLES = 20
SAMPLE_US = 25_000


def say(**values):
    print(json.dumps(values), flush=True)


def read_safetensors(path):
    """The fp32 tensors of a file by their names."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    tensors = {}
    for name, info in header.items():
        if name != "__metadata__":
            start, end = info["data_offsets"]
            flat = torch.frombuffer(data, dtype=torch.float32, count=(end - start) // 4, offset=start)
            tensors[name] = flat.reshape(info["shape"])
    return tensors


def load(path, parameters):
    """The module of a file, and its network in fp32 with the parameters of another."""
    spec = importlib.util.spec_from_file_location("network", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    network = module.Network().eval()
    tensors = read_safetensors(parameters)
    state = network.state_dict()
    with torch.no_grad():
        for name, source in module.PARAMETERS.items():
            state[name].copy_(tensors[source].reshape(state[name].shape))
    return module, network


def device():
    return "cuda" if torch.cuda.is_available() else "cpu"


def probe():
    cuda = torch.cuda.is_available()
    say(
        torch=torch.__version__,
        cudnn=torch.backends.cudnn.version() if cuda else None,
        device=torch.cuda.get_device_name() if cuda else None,
    )


def read_images(path, batch):
    with open(path, "rb") as file:
        flat = torch.frombuffer(bytearray(file.read()), dtype=torch.float32)
    return flat.reshape(batch, -1)


def check(path, parameters, batch, *files):
    """Compares outputs with the network in float64, a few images at a time."""
    module, network = load(path, parameters)
    network = network.to(device(), torch.float64)
    batch = int(batch)
    inputs = [read_images(file, batch) for file in files[: len(module.INPUTS)]]
    outputs = [read_images(file, batch) for file in files[len(module.INPUTS) :]]
    # Squares of the differences and of the right values.
    sums = [[0.0, 0.0] for _ in outputs]
    for first in range(0, batch, IMAGES_OF_CHECK):
        images = slice(first, first + IMAGES_OF_CHECK)
        xs = [
            x[images].reshape(-1, *shape).to(device(), torch.float64) for x, shape in zip(inputs, module.INPUTS)
        ]
        with torch.no_grad():
            expected = network(*xs)
        for output, right, of_output in zip(outputs, expected, sums):
            right = right.flatten(1).cpu()
            of_output[0] += (output[images].double() - right).square().sum().item()
            of_output[1] += right.square().sum().item()
    # NaN is no JSON.
    errors = [math.sqrt(wrong / right) if right > 0 else math.inf for wrong, right in sums]
    say(errors=[error if math.isfinite(error) else None for error in errors])


def median_us(launch):
    """Median time of a launch in microseconds."""

    def sample(count):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            launch()
        end.record()
        torch.cuda.synchronize()
        return 1000 * start.elapsed_time(end) / count

    sample(2)
    count = min(50, max(2, round(SAMPLE_US / max(sample(2), 1e-3))))
    return statistics.median(sample(count) for _ in range(SAMPLES))


def captured(run):
    """The launch of a CUDA graph of `run`."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(4):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def prepared(path, parameters, batch, arithmetic, mode):
    """The launch of one run on random images."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = arithmetic == "tf32"
    torch.backends.cudnn.allow_tf32 = arithmetic == "tf32"
    module, network = load(path, parameters)
    dtype = torch.float16 if arithmetic == "fp16" else torch.float32
    # channels_last is what PyTorch recommends for tensor cores; of graphs in TF32, NCHW is timed.
    channels_last = arithmetic == "fp16" or mode != "graph"
    layout = torch.channels_last if channels_last else torch.contiguous_format
    network = network.to("cuda", dtype)
    network = network.to(memory_format=layout)
    torch.manual_seed(1)
    xs = [torch.randn(int(batch), *shape, device="cuda", dtype=dtype) for shape in module.INPUTS]
    xs = [x.to(memory_format=layout) for x in xs]
    if mode == "graph":
        return captured(lambda: network(*xs))
    from torch._inductor import config

    config.freezing = True
    compiled = torch.compile(network, mode=mode)
    if mode.endswith("no-cudagraphs"):
        return captured(lambda: compiled(*xs))

    def run():
        torch.compiler.cudagraph_mark_step_begin()
        compiled(*xs)

    # It records its own graph in its second or third run.
    for _ in range(4):
        run()
    torch.cuda.synchronize()
    return run


def time(*arguments):
    with torch.no_grad():
        launch = prepared(*arguments)
        say(ready=True)
        for _ in sys.stdin:
            say(us=median_us(launch))


def main():
    commands = {"probe": probe, "check": check, "time": time}
    try:
        commands[sys.argv[1]](*sys.argv[2:])
    except Exception as error:
        # The reason for the report; libraries print to standard output too.
        say(failure=f"{type(error).__name__}: {error}".strip()[:2000])
        sys.exit(1)


main()
