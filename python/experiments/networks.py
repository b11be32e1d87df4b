"""ResNet-20 and a VGG-like network with BatchNorm, of any width."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, c: int, n: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(c, n, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(n)
        self.conv2 = nn.Conv2d(n, n, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(n)
        changes = c != n or stride != 1
        conv = nn.Conv2d(c, n, 1, stride, bias=False)
        self.short = nn.Sequential(conv, nn.BatchNorm2d(n)) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """B x C x H x W."""
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.short(x))


class ResNet20(nn.Module):
    """Three stages of three blocks, 16, 32 and 64 channels times `width`."""

    def __init__(self, width: float = 1.0) -> None:
        super().__init__()
        sizes = [max(4, round(n * width)) for n in (16, 32, 64)]
        self.conv1 = nn.Conv2d(1, sizes[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(sizes[0])
        blocks, c = [], sizes[0]
        for stage, n in enumerate(sizes):
            for block in range(3):
                blocks.append(Block(c, n, 2 if stage and not block else 1))
                c = n
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(c, 10)

    def forward(self, x: Tensor) -> Tensor:
        """B x 1 x H x W to B x 10."""
        x = self.blocks(torch.relu(self.bn1(self.conv1(x))))
        return self.fc(x.mean((2, 3)))


def vgg(width: float = 1.0) -> nn.Sequential:
    """Two convolutions of 32, 64 and 128 channels times `width`, with pools between."""
    layers: list[nn.Module] = []
    c = 1
    for stage, channels in enumerate((32, 64, 128)):
        n = max(4, round(channels * width))
        for _ in range(2):
            layers += [nn.Conv2d(c, n, 3, padding=1, bias=False), nn.BatchNorm2d(n), nn.ReLU()]
            c = n
        layers.append(nn.MaxPool2d(2) if stage < 2 else nn.AdaptiveAvgPool2d(1))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(c, 10))


NETWORKS = {"resnet20": ResNet20, "vgg": vgg}
