#!/usr/bin/env python3
"""Time that ADMM adds to a training step of ResNet-50, and time of its projection: ./step_time.py [--batch 32]

Short blocks of steps with and without ADMM take turns; the time added is the median of the differences of neighbours.
The pull and a projection are also timed alone. A projection is set against an epoch of 40,000 steps, such as one of
ImageNet at 32 images. Needs torchvision.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
import torchvision
from torch import nn
from torch.nn import functional as F

import tdc_torch as tdc

EPOCH = 40_000
ROUNDS = 60
BLOCK = 4
"""Steps of a block."""


def plan_of(model: nn.Module) -> tdc.Plan:
    """Half of the channels as ranks of each 3x3 convolution, and a quarter in 1x1 convolutions and linear layers."""
    ranks: dict[str, object] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d) and module.in_channels > 3:
            n, c = module.weight.shape[:2]
            ranks[name] = (c // 2, n // 2) if module.kernel_size[0] > 1 else min(c, n) // 4
    return tdc.Plan.from_ranks(ranks | {"fc": 256})


def main() -> None:
    """Reads the command line and prints one JSON object; times are in milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"pairs of blocks [default: {ROUNDS}]")
    parser.add_argument("--amp", action="store_true", help="autocast to bf16, channels last")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    model = torchvision.models.resnet50().to(device)
    images = torch.randn(options.batch, 3, 224, 224, device=device)
    if options.amp:
        model, images = (x.to(memory_format=torch.channels_last) for x in (model, images))
    labels = torch.arange(options.batch, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    plan = plan_of(model)
    # No dual update falls into the timed steps.
    admm = tdc.Admm(model, plan, steps=EPOCH)

    def steps(count: int, with_admm: bool) -> float:
        wait()
        start = time.perf_counter()
        for _ in range(count):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device, dtype=torch.bfloat16, enabled=options.amp):
                loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            if with_admm:
                admm.step()
        wait()
        return 1e3 * (time.perf_counter() - start) / count

    def alone(work: Callable[[], object]) -> float:
        wait()
        start = time.perf_counter()
        with torch.no_grad():
            work()
        wait()
        return 1e3 * (time.perf_counter() - start)

    steps(5 * BLOCK, True)
    pairs = []
    for index in range(options.rounds):
        # The order of a pair alternates, so that a drift cancels.
        first = steps(BLOCK, bool(index % 2))
        second = steps(BLOCK, not index % 2)
        pairs.append((second, first) if index % 2 else (first, second))
    plain, pulled = (statistics.median(times) for times in zip(*pairs, strict=True))
    differences = sorted(pull - without for without, pull in pairs)
    added = statistics.median(differences)
    quarter = len(differences) // 4
    pull = statistics.median(alone(lambda: admm.step(stepped=True)) for _ in range(20))
    alone(admm._update)
    projected = statistics.median(alone(admm._update) for _ in range(3))
    print(
        json.dumps(
            {
                "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
                "torch": torch.__version__,
                "batch": options.batch,
                "autocast": options.amp,
                "layers": len(plan.layers),
                "step_ms": round(plain, 3),
                "step_with_admm_ms": round(pulled, 3),
                "added_percent": round(100 * added / plain, 2),
                "added_percent_quartiles": [round(100 * differences[i] / plain, 2) for i in (quarter, -1 - quarter)],
                "pull_alone_ms": round(pull, 3),
                "pull_alone_percent": round(100 * pull / plain, 2),
                "projection_ms": round(projected, 1),
                "projection_percent_of_epoch": round(100 * projected / (EPOCH * plain), 4),
            }
        )
    )


if __name__ == "__main__":
    main()
