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
PIECE = 4
"""Rows and columns of a piece of clutter."""
SIZES = (10, 15)
"""Least size of a digit, and one more than the largest."""
TEST_COPIES = 6
"""Renderings of each base image of the test and of the validation."""


@dataclass(frozen=True)
class Difficulty:
    """How hard the task is."""

    clutter: int = 3
    """Pieces of other digits in an image."""
    noise: float = 0.25
    """Standard deviation; a digit's strokes are up to 1."""


@dataclass
class Split:
    """Rendered images, their labels, and the index of the base image of each."""

    images: Tensor
    labels: Tensor
    base: Tensor

    def to(self, device: str) -> Split:
        """The split on a device."""
        return Split(self.images.to(device), self.labels.to(device), self.base)


def write_npz(path: Path) -> None:
    """Needs scikit-learn. The file is 115 kB; machines without scikit-learn read it."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    numpy.savez_compressed(path, images=digits.images.astype("uint8"), labels=digits.target.astype("uint8"))


def splits(path: Path, seed: int, difficulty: Difficulty, train_copies: int = 12) -> dict[str, Split]:
    """`train`, `validation` and `test`.

    The split of the base images is the same for all seeds, so that intervals can be paired; renderings differ.
    """
    with numpy.load(path) as file:
        images = torch.tensor(file["images"], dtype=torch.float32) / 16
        labels = torch.tensor(file["labels"], dtype=torch.long)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    parts = {"test": order[:500], "validation": order[500:750], "train": order[750:]}
    copies = {"test": TEST_COPIES, "validation": TEST_COPIES, "train": train_copies}
    generator = torch.Generator().manual_seed(1000 + seed)
    found = {}
    for name, base in parts.items():
        index = base.repeat(copies[name])
        rendered = _render(images[index], images[base], difficulty, generator)
        found[name] = Split((rendered[:, None] - 0.15) / 0.55, labels[index], index)
    return found


def _render(digits: Tensor, pool: Tensor, difficulty: Difficulty, generator: torch.Generator) -> Tensor:
    """Images (B x SIZE x SIZE) of digits (B x 8 x 8), with clutter from the digits of a pool."""
    count = len(digits)

    def random(high: int) -> Tensor:
        return torch.randint(high, (count,), generator=generator)

    canvas = torch.zeros(count, SIZE, SIZE)
    for _ in range(difficulty.clutter):
        others = pool[random(len(pool))]
        pieces = others[_window(random(8 - PIECE + 1), random(8 - PIECE + 1), PIECE)]
        canvas[_window(random(SIZE - PIECE + 1), random(SIZE - PIECE + 1), PIECE)] += pieces
    sizes = SIZES[0] + random(SIZES[1] - SIZES[0])
    top, left = torch.rand(2, count, generator=generator)
    for size in range(*SIZES):
        of_size = torch.nonzero(sizes == size)[:, 0]
        scaled = F.interpolate(digits[of_size][:, None], size=(size, size), mode="bilinear")[:, 0]
        places = [(part[of_size] * (SIZE - size + 1)).long() for part in (top, left)]
        _, rows, columns = _window(*places, size)
        canvas[of_size[:, None, None], rows, columns] += scaled
    noise = torch.randn(canvas.shape, generator=generator)
    return canvas.clamp(0, 1.5) + difficulty.noise * noise


def _window(top: Tensor, left: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Indices of the window of an image each, at its own place."""
    steps = torch.arange(size)
    image = torch.arange(len(top))[:, None, None]
    return image, top[:, None, None] + steps[:, None], left[:, None, None] + steps
