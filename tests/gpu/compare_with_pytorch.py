"""Compares a generated network with torchvision's, on the same random weights.

    compare_with_pytorch.py [--model NAME] [--dense] [--batch N] [--work DIR]    numbers
    compare_with_pytorch.py [--model NAME] --time                                PyTorch's own time, eager and as a CUDA graph

NAME is a config and the constructor of the same name in torchvision: resnet18 (default), resnet50, vgg16, densenet121,
densenet201. The reference is PyTorch in float64; for the Tucker network with each factorised weight replaced by the product of
its factors. Passes when the relative error is at most 1e-5 and at most twice that of PyTorch in fp32.
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

MODELS = ["resnet18", "resnet50", "vgg16", "densenet121", "densenet201"]


def random_model(name, seed):
    """torchvision's network with random weights, biases and BatchNorm parameters, so that activations keep their size."""
    torch.manual_seed(seed)
    model = getattr(torchvision.models, name)(weights=None).eval()
    for layer, (d1, d2) in ranks_of(name).items():
        near_low_rank(model.get_submodule(layer).weight.data, d1, d2)
    has_norms = any(isinstance(module, torch.nn.BatchNorm2d) for module in model.modules())
    hooks = []
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(0, 0.1)
            hooks.append(module.register_forward_pre_hook(set_statistics))
        elif not has_norms and isinstance(module, (torch.nn.Conv2d, torch.nn.Linear)):
            module.bias.data.normal_(0, 0.1)
            hooks.append(module.register_forward_hook(set_scale))
    with torch.no_grad():
        model(torch.randn(4, 3, 224, 224))
    for hook in hooks:
        hook.remove()
    return model


def set_statistics(norm, inputs):
    """Gives a BatchNorm statistics of about the size of its whole input. The exact ones, channel by channel, would magnify the
    rounding errors of channels that are small because large terms cancel, as they do at random in an untrained network."""
    size = inputs[0].square().mean().sqrt()
    norm.running_mean.copy_(0.1 * size * torch.randn_like(norm.running_mean))
    norm.running_var.copy_(size**2 * torch.empty_like(norm.running_var).uniform_(0.5, 1.5))


def set_scale(layer, inputs, y):
    """Scales a layer, its bias too, so that its output has variance 1: what BatchNorm does elsewhere."""
    scale = y.std()
    layer.weight.data /= scale
    layer.bias.data /= scale
    return y / scale


def ranks_of(name):
    """[D1, D2] of each layer of the config that has ranks."""
    pattern = re.compile(r"name: ([\w.]+),.*ranks: \[(\d+), (\d+)\]")
    found = (pattern.search(line) for line in Path(f"configs/{name}.yaml").read_text().splitlines())
    return {m[1]: (int(m[2]), int(m[3])) for m in found if m}


def low_rank(weight, d1, d2):
    """The product of the truncated HOSVD's factors: the weight projected on its leading subspaces, in float64."""
    w = weight.double()
    for dim, rank in ((0, d2), (1, d1)):
        unfolding = weight.double().transpose(0, dim).reshape(weight.shape[dim], -1)
        # Eigenvectors of the Gram matrix, in ascending order: the left singular vectors in a fraction of the time.
        u = torch.linalg.eigh(unfolding @ unfolding.T)[1][:, -rank:]
        w = torch.tensordot(u @ u.T, w.transpose(0, dim), dims=1).transpose(0, dim)
    return w


def near_low_rank(weight, d1, d2):
    """Makes the ranks fit a random weight, as training does: without it a deep network loses its signal when it is truncated,
    and the output would say little about the layers far from it."""
    core = low_rank(weight, d1, d2)
    weight.copy_(core * (weight.norm() / core.norm()) + 0.1 * (weight - core))


def compare(args):
    dense = ["--dense"] if args.dense else []
    name = args.model + ("_dense" if args.dense else "")
    # The same folder as the tier's other steps: a network is compiled once.
    code = Path(args.work) / (name if args.batch == 1 else f"{name}_b{args.batch}")
    folder = Path(args.work) / "pytorch" / code.name
    folder.mkdir(parents=True, exist_ok=True)
    shape = f"{args.batch}x3x224x224"
    model = random_model(args.model, 7)
    save_file(model.state_dict(), folder / "model.safetensors")
    x = torch.randn(args.batch, 3, 224, 224)
    (folder / "input.bin").write_bytes(x.numpy().tobytes())

    config = [f"configs/{args.model}.yaml", "--input", shape, *dense]
    run = lambda *command: subprocess.run([str(part) for part in command], check=True)
    run("./tdc-gen", *config, "--out", code)
    run("./tdc-gen", "pack", *config, folder / "model.safetensors", "-o", folder / "weights.bin")
    run("./build.sh", code)
    files = ["--weights", folder / "weights.bin", "--input", folder / "input.bin"]
    run(code / "app", *files, "--output", folder / "output.bin", "--runs", 0)

    if not args.dense:
        for layer, (d1, d2) in ranks_of(args.model).items():
            weight = model.get_submodule(layer).weight
            # Rounded once to fp32, so that both precisions of PyTorch compute with the same weight.
            weight.data = low_rank(weight.data, d1, d2).float()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    with torch.inference_mode():
        single = model.cuda()(x.cuda()).double().cpu()
        exact = model.double()(x.double().cuda()).cpu()
    ours = torch.frombuffer(bytearray((folder / "output.bin").read_bytes()), dtype=torch.float32)
    ours = ours.reshape(exact.shape).double()
    error = lambda y: ((y - exact).norm() / exact.norm()).item()
    allowed = min(1e-5, 2 * error(single))
    print(f"output {exact.std().item():.2g} around {exact.mean().item():.2g}")
    print(f"relative error against float64: ours {error(ours):.2e}, PyTorch fp32 {error(single):.2e}")
    return error(ours) <= allowed


def median_us(launch, inner=20):
    """Median time of one launch, microseconds, over samples of `inner` launches each: 50 of them, fewer when they are long."""
    times = []
    repeats = 50
    while len(times) < repeats:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(inner):
            launch()
        end.record()
        torch.cuda.synchronize()
        times.append(1000 * start.elapsed_time(end) / inner)
        repeats = min(50, max(10, int(2e6 / (inner * times[0]))))
    return statistics.median(times)


def time_pytorch(args):
    model = random_model(args.model, 7).cuda()
    x = torch.randn(args.batch, 3, 224, 224, device="cuda")
    torch.backends.cudnn.benchmark = True
    versions = f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"
    print(f"{versions}, {args.model} dense, {args.batch}x3x224x224")
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
        print(f"  {args.model} {precision}: eager {eager:.1f} us, CUDA graph {replay:.1f} us")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="resnet18")
    parser.add_argument("--dense", action="store_true")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--work", default="work")
    parser.add_argument("--time", action="store_true")
    args = parser.parse_args()
    passed = time_pytorch(args) if args.time else compare(args)
    sys.exit(0 if passed else 1)


main()
