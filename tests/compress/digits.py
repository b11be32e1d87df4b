#!/usr/bin/env python3
"""Accuracy of a small network after rank choice, without training the factors, by criterion and method.

    ./digits.py [--tdc-gen target/release/tdc-gen] [--seeds 5] [--cuts 0.6 0.7] [--work DIR] [--json FILE]

Trains ResNet-8 (16, 32, 64 channels) on scikit-learn's digits for each seed, lets `tdc-gen compress --flops-cut` choose ranks in steps of 2, replaces
each weight by the product of its factors (truncated HOSVD, as `tdc-gen pack` makes them), and prints the accuracy on held-out images.

Needs torch, numpy, scikit-learn and safetensors; a CPU is enough.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile

import numpy
import torch
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

EPOCHS = 30
STEP = 2
CHOICES = [("optimal", "bn-moments"), ("optimal", "weights"), ("uniform", "weights")]

CONFIG = """\
name: resnet8
input: {input}
ops:
  - {{op: conv, name: stem, n: 16, bn: stem_bn, activation: relu}}
{blocks}\
  - {{op: global_avg_pool, name: pool}}
  - {{op: flatten, name: features}}
  - {{op: linear, name: fc, n: 10}}
"""
BLOCK = """\
  - {{op: conv, name: {b}.conv1, inputs: [{x}], n: {n}, stride: {stride}, bn: {b}.bn1, activation: relu}}
  - {{op: conv, name: {b}.conv2, n: {n}, bn: {b}.bn2}}
{shortcut}\
  - {{op: add, name: {b}.out, inputs: [{b}.conv2, {short}], activation: relu}}
"""
SHORTCUT = "  - {{op: conv, name: {b}.short, inputs: [{x}], n: {n}, kernel: 1, stride: {stride}, bn: {b}.short_bn}}\n"


class Block(nn.Module):
    def __init__(self, c, n, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(c, n, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(n)
        self.conv2 = nn.Conv2d(n, n, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(n)
        self.short = nn.Conv2d(c, n, 1, stride, bias=False) if c != n or stride != 1 else None
        self.short_bn = nn.BatchNorm2d(n) if self.short is not None else None

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.short is None else self.short_bn(self.short(x))))


class ResNet8(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, 1, 1, bias=False)
        self.stem_bn = nn.BatchNorm2d(16)
        self.b1, self.b2, self.b3 = Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2)
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.stem_bn(self.stem(x)))
        return self.fc(self.b3(self.b2(self.b1(x))).mean((2, 3)))


def config():
    blocks, x, c = "", "stem", 16
    for b, n, stride in [("b1", 16, 1), ("b2", 32, 2), ("b3", 64, 2)]:
        has_shortcut = c != n or stride != 1
        shortcut = SHORTCUT.format(b=b, x=x, n=n, stride=stride) if has_shortcut else ""
        blocks += BLOCK.format(b=b, x=x, n=n, stride=stride, shortcut=shortcut, short=f"{b}.short" if has_shortcut else x)
        x, c = f"{b}.out", n
    return CONFIG.format(input="1x1x8x8", blocks=blocks)


def data(seed):
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16.0
    images = (images - images.mean()) / images.std()
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    test, train = order[:500], order[500:]
    return images[train], labels[train], images[test], labels[test]


def trained(seed):
    torch.manual_seed(seed)
    model = ResNet8()
    images, labels, _, _ = data(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(labels)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
        schedule.step()
    return model.eval()


def accuracy(model, seed):
    _, _, images, labels = data(seed)
    with torch.no_grad():
        return 100.0 * (model(images).argmax(1) == labels).double().mean().item()


def projected(weight, ranks):
    """The product of the factors of a weight: truncated HOSVD on both channel dimensions."""
    w = weight.double().numpy()
    bases = []
    for axis, rank in ((1, ranks[0]), (0, ranks[1])):
        unfolding = numpy.moveaxis(w, axis, 0).reshape(w.shape[axis], -1)
        _, vectors = numpy.linalg.eigh(unfolding @ unfolding.T)
        bases.append(vectors[:, -rank:])
    u1, u2 = bases
    w = numpy.einsum("oirs,ij,kj->okrs", w, u1, u1)
    w = numpy.einsum("oirs,oj,kj->kirs", w, u2, u2)
    return torch.tensor(w, dtype=torch.float32)


def compressed(model, ranks):
    copy = ResNet8()
    copy.load_state_dict(model.state_dict())
    modules = dict(copy.named_modules())
    for name, chosen in ranks.items():
        layer = modules[name]
        layer.weight.data = projected(layer.weight.data, chosen)
    return copy.eval()


def ranks_of(text):
    found = re.findall(r"name: ([\w.]+),.*ranks: \[(\d+), (\d+)\]", text)
    return {name: (int(d1), int(d2)) for name, d1, d2 in found}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tdc-gen", default="target/release/tdc-gen")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cuts", type=float, nargs="+", default=[0.6, 0.7])
    parser.add_argument("--work", type=pathlib.Path, help="folder for networks and configs, kept between runs [default: temporary]")
    parser.add_argument("--json", type=pathlib.Path, help="file for the results")
    options = parser.parse_args()

    temporary = tempfile.TemporaryDirectory()
    work = options.work or pathlib.Path(temporary.name)
    work.mkdir(parents=True, exist_ok=True)
    network = work / "resnet8.yaml"
    network.write_text(config())
    found, dense = {}, []
    for seed in range(options.seeds):
        weights = work / f"resnet8-{seed}.safetensors"
        model = ResNet8()
        if not weights.exists():
            state = trained(seed).state_dict()
            save_file({name: tensor.contiguous() for name, tensor in state.items()}, weights)
        model.load_state_dict(load_file(weights))
        dense.append(accuracy(model.eval(), seed))
        for cut in options.cuts:
            for method, criterion in CHOICES:
                out = work / f"{seed}-{cut}-{method}-{criterion}.yaml"
                command = [options.tdc_gen, "compress", network, "--weights", weights, "--flops-cut", cut, "--step", STEP, "--forms", "tucker"]
                command += ["--method", method, "--criterion", criterion, "-o", out]
                run = subprocess.run([str(word) for word in command], capture_output=True, text=True)
                name = f"{method}, {criterion}" if method == "optimal" else method
                if run.returncode != 0:
                    print(f"seed {seed}, cut {cut}, {name}: {run.stderr.strip()}")
                    continue
                ranks = ranks_of(out.read_text())
                found.setdefault((cut, name), []).append(accuracy(compressed(model, ranks), seed))
    print(f"dense: {statistics.mean(dense):.1f} ({' '.join(f'{a:.1f}' for a in dense)})")
    for (cut, name), accuracies in sorted(found.items()):
        print(f"{100 * cut:.0f} % cut, {name}: {statistics.mean(accuracies):.1f} ({' '.join(f'{a:.1f}' for a in accuracies)})")
    if options.json:
        rows = [{"cut": cut, "choice": name, "accuracies": a} for (cut, name), a in sorted(found.items())]
        options.json.write_text(json.dumps({"dense": dense, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
