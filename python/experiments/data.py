"""Cluttered, noisy digits: scikit-learn's digits at random places and sizes, among pieces of other digits.

Base images are split before rendering, so that no digit of the test is seen in training in another place.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from torch import Tensor
from torch.nn import functional as F

SIZE = 24
CLUTTER = 6
NOISE = 0.5


@dataclass
class Split:
    """Rendered images, their labels, and the index of the base image of each."""

    images: Tensor
    labels: Tensor
    base: Tensor


def write_npz(path: Path) -> None:
    """Needs scikit-learn. The file is 115 kB; machines without scikit-learn read it."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    numpy.savez_compressed(path, images=digits.images.astype("uint8"), labels=digits.target.astype("uint8"))


def splits(path: Path, seed: int, train_copies: int = 12, test_copies: int = 6) -> dict[str, Split]:
    """`train`, `validation` and `test`.

    The split of the base images is the same for all seeds, so that intervals can be paired; renderings differ.
    """
    with numpy.load(path) as file:
        images = torch.tensor(file["images"], dtype=torch.float32)[:, None] / 16
        labels = torch.tensor(file["labels"], dtype=torch.long)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    parts = {"test": order[:500], "validation": order[500:750], "train": order[750:]}
    copies = {"test": test_copies, "validation": test_copies, "train": train_copies}
    generator = torch.Generator().manual_seed(1000 + seed)
    found = {}
    for name, base in parts.items():
        index = base.repeat(copies[name])
        pool = images[base]
        rendered = torch.stack([_render(images[i], pool, generator) for i in index])
        found[name] = Split((rendered - 0.15) / 0.55, labels[index], index)
    return found


def _render(digit: Tensor, pool: Tensor, generator: torch.Generator) -> Tensor:
    def random(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    canvas = torch.zeros(1, SIZE, SIZE)
    for _ in range(CLUTTER):
        other, top, left = pool[random(0, len(pool))], random(0, 5), random(0, 5)
        y, x = random(0, SIZE - 4), random(0, SIZE - 4)
        canvas[:, y : y + 4, x : x + 4] += other[:, top : top + 4, left : left + 4]
    size = random(10, 15)
    scaled = F.interpolate(digit[None], size=(size, size), mode="bilinear")[0]
    y, x = random(0, SIZE - size + 1), random(0, SIZE - size + 1)
    canvas[:, y : y + size, x : x + size] += scaled
    return canvas.clamp(0, 1.5) + NOISE * torch.randn(1, SIZE, SIZE, generator=generator)
