"""Factorised layers as modules. Their children have the names of factors in checkpoints."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from .factors import low_rank, tucker


class TuckerConv2d(nn.Sequential):
    """A convolution as first (1x1, C to D1), core (R x S, D1 to D2) and last (1x1, D2 to N, with the bias)."""

    def __init__(self, first: nn.Conv2d, core: nn.Conv2d, last: nn.Conv2d) -> None:
        super().__init__(OrderedDict(first=first, core=core, last=last))

    @classmethod
    def of(cls, layer: nn.Conv2d, ranks: tuple[int, int], hooi: int = 0) -> TuckerConv2d:
        """Factorises a convolution of one group."""
        d1, d2 = ranks
        weights = tucker(layer.weight, ranks, hooi)
        first = _filled(nn.Conv2d(layer.in_channels, d1, 1, bias=False), weights[0], layer.weight)
        core = nn.Conv2d(
            d1,
            d2,
            cast("tuple[int, int]", layer.kernel_size),
            cast("tuple[int, int]", layer.stride),
            cast("str | tuple[int, int]", layer.padding),
            cast("tuple[int, int]", layer.dilation),
            bias=False,
            padding_mode=layer.padding_mode,
        )
        last = nn.Conv2d(d2, layer.out_channels, 1, bias=layer.bias is not None)
        module = cls(
            first, _filled(core, weights[1], layer.weight), _filled(last, weights[2], layer.weight, layer.bias)
        )
        return module.train(layer.training)

    @property
    def ranks(self) -> tuple[int, int]:
        """(D1, D2)."""
        core = cast(nn.Conv2d, self.core)
        return core.in_channels, core.out_channels


class LowRankConv2d(nn.Sequential):
    """A 1x1 convolution as first (C to rank, with stride and padding) and last (rank to N, with the bias)."""

    def __init__(self, first: nn.Conv2d, last: nn.Conv2d) -> None:
        super().__init__(OrderedDict(first=first, last=last))

    @classmethod
    def of(cls, layer: nn.Conv2d, rank: int) -> LowRankConv2d:
        """Factorises a 1x1 convolution of one group."""
        weights = low_rank(layer.weight, rank)
        first = nn.Conv2d(
            layer.in_channels,
            rank,
            1,
            cast("tuple[int, int]", layer.stride),
            cast("str | tuple[int, int]", layer.padding),
            bias=False,
            padding_mode=layer.padding_mode,
        )
        last = nn.Conv2d(rank, layer.out_channels, 1, bias=layer.bias is not None)
        module = cls(_filled(first, weights[0], layer.weight), _filled(last, weights[1], layer.weight, layer.bias))
        return module.train(layer.training)

    @property
    def ranks(self) -> int:
        """The rank."""
        return cast(nn.Conv2d, self.first).out_channels


class LowRankLinear(nn.Sequential):
    """A linear layer as first (C to rank) and last (rank to N, with the bias)."""

    def __init__(self, first: nn.Linear, last: nn.Linear) -> None:
        super().__init__(OrderedDict(first=first, last=last))

    @classmethod
    def of(cls, layer: nn.Linear, rank: int) -> LowRankLinear:
        """Factorises a linear layer."""
        weights = low_rank(layer.weight, rank)
        first = _filled(nn.Linear(layer.in_features, rank, bias=False), weights[0], layer.weight)
        last = nn.Linear(rank, layer.out_features, bias=layer.bias is not None)
        return cls(first, _filled(last, weights[1], layer.weight, layer.bias)).train(layer.training)

    @property
    def ranks(self) -> int:
        """The rank."""
        return cast(nn.Linear, self.first).out_features


FACTORISED = (TuckerConv2d, LowRankConv2d, LowRankLinear)


_Layer = TypeVar("_Layer", nn.Conv2d, nn.Linear)


def _filled(layer: _Layer, weight: Tensor, like: Tensor, bias: Tensor | None = None) -> _Layer:
    """The layer with these parameters, where and as the original's are."""
    layer.to(device=like.device, dtype=like.dtype)
    with torch.no_grad():
        layer.weight.copy_(weight)
        if bias is not None and layer.bias is not None:
            layer.bias.copy_(bias)
    return layer
