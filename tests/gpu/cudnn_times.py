"""cuDNN's best time for each of the 18 core shapes, in true fp32: the rival of scheme_times, to be run beside it.

Every forward algorithm, NCHW and NHWC (all tensors in that layout), FMA arithmetic, through cuDNN's own interface. 50 convolutions
in one CUDA graph, median of 25 replays, random inputs, each result checked against float64 first: an algorithm counts when it is
within the bound that our kernels keep; the quickest of all is shown beside it.
"""

import ctypes
import re
import statistics
from ctypes import byref, c_float, c_int, c_size_t, c_void_p
from pathlib import Path

import torch

RUNS, REPLAYS, WARM_UP = 50, 25, 3
# Values of cuDNN's enumerations.
NCHW, NHWC, FLOAT, CROSS_CORRELATION, FMA_MATH = 0, 1, 0, 1, 3
ALGORITHMS = [
    "implicit_gemm", "implicit_precomp_gemm", "gemm", "direct", "fft", "fft_tiling", "winograd", "winograd_nonfused",
]  # fmt: skip


class Cudnn:
    """The few calls that a convolution takes; a refusal is a RuntimeError."""

    def __init__(self):
        torch.backends.cudnn.version()  # loads it
        self.library = ctypes.CDLL("libcudnn.so.9")
        self.handle = self.made("cudnnCreate")

    def call(self, name, *args):
        status = getattr(self.library, name)(*args)
        if status != 0:
            raise RuntimeError(f"{name}: {status}")

    def made(self, name):
        made = c_void_p()
        self.call(name, byref(made))
        return made

    def tensor(self, layout, *sizes):
        descriptor = self.made("cudnnCreateTensorDescriptor")
        self.call("cudnnSetTensor4dDescriptor", descriptor, layout, FLOAT, *sizes)
        return descriptor

    def filter(self, layout, *sizes):
        descriptor = self.made("cudnnCreateFilterDescriptor")
        self.call("cudnnSetFilter4dDescriptor", descriptor, FLOAT, layout, *sizes)
        return descriptor

    def convolution(self):
        descriptor = self.made("cudnnCreateConvolutionDescriptor")
        sizes = (1, 1, 1, 1, 1, 1)  # padding, stride, dilation
        self.call("cudnnSetConvolution2dDescriptor", descriptor, *sizes, CROSS_CORRELATION, FLOAT)
        self.call("cudnnSetConvolutionMathType", descriptor, FMA_MATH)
        return descriptor


def graph_us(run):
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


def times_of(cudnn, c, n, h, w):
    """(microseconds, relative error, algorithm and layout) of all that run."""
    x = torch.randn(1, c, h, w, device="cuda")
    weight = torch.randn(n, c, 3, 3, device="cuda")
    expected = torch.nn.functional.conv2d(x.double(), weight.double(), padding=1)
    one, zero = c_float(1), c_float(0)
    found = []
    for layout, name, memory in ((NCHW, "NCHW", torch.contiguous_format), (NHWC, "NHWC", torch.channels_last)):
        x_in, weight_in = x.to(memory_format=memory), weight.to(memory_format=memory)
        y = torch.empty((1, n, h, w), device="cuda", memory_format=memory)
        x_shape, y_shape = cudnn.tensor(layout, 1, c, h, w), cudnn.tensor(layout, 1, n, h, w)
        weight_shape, convolution = cudnn.filter(layout, n, c, 3, 3), cudnn.convolution()
        for algorithm, word in enumerate(ALGORITHMS):
            size = c_size_t()
            try:
                cudnn.call(
                    "cudnnGetConvolutionForwardWorkspaceSize", cudnn.handle, x_shape, weight_shape, convolution,
                    y_shape, c_int(algorithm), byref(size),
                )  # fmt: skip
                workspace = torch.empty(max(size.value, 1), dtype=torch.uint8, device="cuda")

                def run():
                    stream = c_void_p(torch.cuda.current_stream().cuda_stream)
                    cudnn.call("cudnnSetStream", cudnn.handle, stream)
                    cudnn.call(
                        "cudnnConvolutionForward", cudnn.handle, byref(one), x_shape, c_void_p(x_in.data_ptr()),
                        weight_shape, c_void_p(weight_in.data_ptr()), convolution, c_int(algorithm),
                        c_void_p(workspace.data_ptr()), size, byref(zero), y_shape, c_void_p(y.data_ptr()),
                    )  # fmt: skip

                y.fill_(float("nan"))
                run()
                torch.cuda.synchronize()
                error = ((y.double() - expected).norm() / expected.norm()).item()
                if error < 1e-3:
                    found.append((graph_us(run), error, f"{word} {name}"))
            except RuntimeError:
                continue  # cuDNN does not have this algorithm for this layout
    return found


def main():
    torch.manual_seed(1)
    cudnn = Cudnn()
    print(f"cuDNN {torch.backends.cudnn.version()}, fp32, microseconds: the best within the bound, and the best of all")
    shapes = re.findall(r"conv: \[(\d+), (\d+), (\d+), (\d+)\]", Path("configs/core-shapes.yaml").read_text())
    for shape in shapes:
        c, n, h, w = map(int, shape)
        found = times_of(cudnn, c, n, h, w)
        bound = max(1e-6, 2.5e-8 * (c * 9) ** 0.5)
        (us, _, name), (best_us, error, best) = min(t for t in found if t[1] <= bound), min(found)
        print(f"{c},{n},{h},{w} cuDNN {us:.2f} {name} | {best_us:.2f} {best}, error {error:.1e}", flush=True)


main()
