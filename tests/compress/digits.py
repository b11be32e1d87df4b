#!/usr/bin/env python3
"""Accuracy of a small network after rank choice, without training the factors, by criterion and method.

    ./digits.py [--tdc-gen target/release/tdc-gen] [--seeds 5] [--cuts 0.6 0.7] [--threads 1] [--work DIR] [--json FILE]

Trains ResNet-8 (16, 32, 64 channels) on scikit-learn's digits for each seed, lets `tdc-gen compress --flops-cut` choose ranks in steps of 2, replaces
each weight by the product of its factors (truncated HOSVD, as `tdc-gen pack` makes them), and prints the accuracy on held-out images.
Criteria that `tdc-gen` does not have are computed by criteria.py, from the network and 512 of its training images, and given by --sensitivity.

Needs torch, scikit-learn and safetensors; a CPU is enough. The number of threads is fixed because it changes how sums are rounded: with two threads
the same seeds give other networks, about as good.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import torch
from criteria import Layer, projected, sensitivities
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

EPOCHS = 30
STEP = 2
IMAGES = 512
# The options of tdc-gen for each choice; None where criteria.py computes the losses.
CHOICES = {
    "BN-folded weight error, squared": None,
    "weight error, squared": None,
    "relative weight error, squared": ["--criterion", "weights"],
    "uniform ranks": ["--method", "uniform", "--criterion", "weights"],
    "folded error weighted by BN-implied input moments": ["--criterion", "bn-moments"],
    "output error, squared, scaled by BN": None,
    "relative output error, squared": None,
    "Fisher information, sampled labels": None,
    "rise of the loss, one layer at a time": None,
}
BLOCKS = [("b1", 16, 1), ("b2", 32, 2), ("b3", 64, 2)]

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
    for b, n, stride in BLOCKS:
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


def network_of(seed, weights):
    """The network of a seed, from the file `weights`, which is written if it is not there."""
    if not weights.exists():
        state = trained(seed).state_dict()
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, weights)
    model = ResNet8()
    model.load_state_dict(load_file(weights))
    return model.eval()


def layers_of(model):
    modules = dict(model.named_modules())
    pairs = [("stem", "stem_bn")] + [(f"{b}.conv{i}", f"{b}.bn{i}") for b, _, _ in BLOCKS for i in (1, 2)]
    return [Layer(conv, modules[conv], modules[norm]) for conv, norm in pairs]


def options_of_choices(model, seed, weights):
    """The options of each choice, with the files that they read."""
    images, labels, _, _ = data(seed)
    files = sensitivities(model, layers_of(model), images[:IMAGES], labels[:IMAGES], STEP)
    found = {}
    for index, (name, options) in enumerate(CHOICES.items()):
        if options is None:
            path = weights.with_suffix(f".{index}.json")
            path.write_text(json.dumps(files[name]))
            found[name] = ["--sensitivity", path]
        else:
            found[name] = [*options, "--weights", weights]
    return found


def chosen_ranks(tdc_gen, network, cut, options, out):
    command = [tdc_gen, "compress", network, "--flops-cut", cut, "--step", STEP, "--forms", "tucker", *options, "-o", out]
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{out}: {run.stderr.strip()}")
    return ranks_of(out.read_text())


def line(name, accuracies):
    return f"{name}: {statistics.mean(accuracies):.1f} ({' '.join(f'{a:.1f}' for a in accuracies)})"


def measure(options, work):
    """The accuracies of the dense networks, and those of each cut and choice, by seed."""
    network = work / "resnet8.yaml"
    network.write_text(config())
    dense, found = [], {(cut, name): [] for cut in options.cuts for name in CHOICES}
    for seed in range(options.seeds):
        weights = work / f"resnet8-{seed}-threads{options.threads}.safetensors"
        model = network_of(seed, weights)
        dense.append(accuracy(model, seed))
        options_by_name = options_of_choices(model, seed, weights)
        for index, (cut, name) in enumerate(found):
            out = work / f"resnet8-{seed}.{index}.yaml"
            ranks = chosen_ranks(options.tdc_gen, network, cut, options_by_name[name], out)
            found[cut, name].append(accuracy(compressed(model, ranks), seed))
    return dense, found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tdc-gen", default="target/release/tdc-gen")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cuts", type=float, nargs="+", default=[0.6, 0.7])
    parser.add_argument("--threads", type=int, default=1, help="threads of PyTorch [default: 1]")
    parser.add_argument("--work", type=pathlib.Path, help="folder for networks and configs, kept between runs [default: temporary]")
    parser.add_argument("--json", type=pathlib.Path, help="file for the results")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    temporary = tempfile.TemporaryDirectory()
    work = options.work or pathlib.Path(temporary.name)
    work.mkdir(parents=True, exist_ok=True)
    dense, found = measure(options, work)
    print(line("dense", dense))
    for (cut, name), accuracies in found.items():
        print(line(f"{100 * cut:.0f} % cut, {name}", accuracies))
    if options.json:
        rows = [{"cut": cut, "choice": name, "accuracies": a} for (cut, name), a in found.items()]
        options.json.write_text(json.dumps({"dense": dense, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
