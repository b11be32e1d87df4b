"""Compares a generated ResNet-18 with torchvision's, on the same random weights.

    compare_with_pytorch.py [--dense] [--batch N] [--work DIR]   numbers
    compare_with_pytorch.py --time                               PyTorch's own time, eager and as a CUDA graph

The reference is PyTorch in float64; for the Tucker network with each factorised weight replaced by the product of its
factors. Passes when the relative error is at most 1e-5 and at most twice that of PyTorch in fp32.
"""

import argparse
import re
import statistics
import subprocess
import sys
from pathlib import Path

import torch
import torchvision
from safetensors.torch import save_file


def random_resnet18(seed):
    """torchvision's network with random weights and random BatchNorm statistics."""
    torch.manual_seed(seed)
    model = torchvision.models.resnet18(weights=None).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(0, 0.1)
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return model


def ranks_of(config):
    """[D1, D2] of each layer of the config that has ranks."""
    pattern = re.compile(r"name: ([\w.]+),.*ranks: \[(\d+), (\d+)\]")
    found = (pattern.search(line) for line in Path(config).read_text().splitlines())
    return {m[1]: (int(m[2]), int(m[3])) for m in found if m}


def low_rank(weight, d1, d2):
    """The product of the truncated HOSVD's factors: the weight projected on its leading subspaces, in float64."""
    w = weight.double()
    for dim, rank in ((0, d2), (1, d1)):
        unfolding = weight.double().transpose(0, dim).reshape(weight.shape[dim], -1)
        u = torch.linalg.svd(unfolding, full_matrices=False)[0][:, :rank]
        w = torch.tensordot(u @ u.T, w.transpose(0, dim), dims=1).transpose(0, dim)
    return w


def compare(args):
    dense = ["--dense"] if args.dense else []
    folder = Path(args.work) / f"pytorch{'_dense' if args.dense else ''}_b{args.batch}"
    folder.mkdir(parents=True, exist_ok=True)
    shape = f"{args.batch}x3x224x224"
    model = random_resnet18(7)
    save_file(model.state_dict(), folder / "model.safetensors")
    x = torch.randn(args.batch, 3, 224, 224)
    (folder / "input.bin").write_bytes(x.numpy().tobytes())

    config = ["configs/resnet18.yaml", "--input", shape, *dense]
    run = lambda *command: subprocess.run([str(part) for part in command], check=True)
    run("./tdc-gen", *config, "--out", folder / "code")
    run("./tdc-gen", "pack", *config, folder / "model.safetensors", "-o", folder / "weights.bin")
    run("./build.sh", folder / "code")
    files = ["--weights", folder / "weights.bin", "--input", folder / "input.bin"]
    run(folder / "code/app", *files, "--output", folder / "output.bin")

    if not args.dense:
        for name, (d1, d2) in ranks_of("configs/resnet18.yaml").items():
            layer = model.get_submodule(name)
            # Rounded once to fp32, so that both precisions of PyTorch compute with the same weight.
            layer.weight.data = low_rank(layer.weight.data, d1, d2).float()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    with torch.inference_mode():
        single = model.cuda()(x.cuda()).double().cpu()
        exact = model.double()(x.double().cuda()).cpu()
    ours = torch.frombuffer(bytearray((folder / "output.bin").read_bytes()), dtype=torch.float32)
    ours = ours.reshape(exact.shape).double()
    error = lambda y: ((y - exact).norm() / exact.norm()).item()
    allowed = min(1e-5, 2 * error(single))
    print(f"relative error against float64: ours {error(ours):.2e}, PyTorch fp32 {error(single):.2e}")
    return error(ours) <= allowed


def median_us(launch, repeats=50, inner=20):
    """Median time of one launch, microseconds, over replays of `inner` launches each."""
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(inner):
            launch()
        end.record()
        torch.cuda.synchronize()
        times.append(1000 * start.elapsed_time(end) / inner)
    return statistics.median(times)


def time_pytorch():
    model = random_resnet18(7).cuda()
    x = torch.randn(1, 3, 224, 224, device="cuda")
    torch.backends.cudnn.benchmark = True
    print(f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, resnet18 dense, 1x3x224x224")
    for tf32 in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        with torch.inference_mode():
            for _ in range(10):
                model(x)
            torch.cuda.synchronize()
            eager = median_us(lambda: model(x))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                model(x)
            replay = median_us(graph.replay)
        precision = "TF32" if tf32 else "fp32"
        print(f"  {precision}: eager {eager:.1f} us, CUDA graph {replay:.1f} us")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dense", action="store_true")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--work", default="work")
    parser.add_argument("--time", action="store_true")
    args = parser.parse_args()
    passed = time_pytorch() if args.time else compare(args)
    sys.exit(0 if passed else 1)


main()
