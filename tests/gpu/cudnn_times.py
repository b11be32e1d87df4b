"""cuDNN's best time for each of the 18 core shapes, in true fp32: the rival of scheme_times, to be run beside it.

PyTorch's benchmark mode tries every algorithm that cuDNN offers; NCHW and NHWC (each with tensors in that layout), the faster counts.
50 convolutions in one CUDA graph, median of 25 replays, random inputs, the result checked against float64 first.
"""

import re
import statistics
import sys
from pathlib import Path

import torch

RUNS, REPLAYS, WARM_UP = 50, 25, 3


def shapes():
    text = Path("configs/core-shapes.yaml").read_text()
    return [tuple(map(int, m.groups())) for m in re.finditer(r"conv: \[(\d+), (\d+), (\d+), (\d+)\]", text)]


def graph_us(run):
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(RUNS):
            run()
    times = []
    for _ in range(WARM_UP + REPLAYS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / RUNS)
    return statistics.median(times[WARM_UP:])


def main():
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.benchmark_limit = 0  # all algorithms
    torch.backends.cudnn.allow_tf32 = False
    print(f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}; fp32, microseconds: NCHW, NHWC")
    failed = False
    with torch.inference_mode():
        for c, n, h, w in shapes():
            x = torch.randn(1, c, h, w, device="cuda")
            weight = torch.randn(n, c, 3, 3, device="cuda")
            expected = torch.nn.functional.conv2d(x.double(), weight.double(), padding=1)
            times = []
            for layout in (torch.contiguous_format, torch.channels_last):
                x_in, weight_in = x.to(memory_format=layout), weight.to(memory_format=layout)
                run = lambda: torch.nn.functional.conv2d(x_in, weight_in, padding=1)
                error = ((run().double() - expected).norm() / expected.norm()).item()
                if error > 1e-5:
                    print(f"{c},{n},{h},{w}: relative error {error:.1e}")
                    failed = True
                times.append(graph_us(run))
            print(f"{c},{n},{h},{w} cuDNN {min(times):.2f} ({times[0]:.2f}, {times[1]:.2f})", flush=True)
    sys.exit(1 if failed else 0)


main()
