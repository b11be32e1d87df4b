"""Replaces dense layers by factorised ones."""

from __future__ import annotations

import copy

from torch import nn

from .layers import dense_layers, unwrap
from .modules import LowRankConv2d, LowRankLinear, TuckerConv2d
from .plan import Plan


def decompose(model: nn.Module, plan: Plan, *, hooi: int = 0) -> nn.Module:
    """A copy of the model with the factors of its weights in place of the layers of the plan.

    Layers that have factors already stay as they are. The parameters are new: build a new optimiser. `hooi` is the
    number of sweeps of HOOI after truncated HOSVD.

    Raises:
        LayerError: a layer cannot be factorised; names all of them.
    """
    copied = copy.deepcopy(unwrap(model))
    if plan.input_shape is not None:
        # What `export` traces with where it gets no example.
        copied.tdc_input_shape = plan.input_shape  # type: ignore[assignment]
    for name, layer in dense_layers(copied, plan).items():
        ranks = plan.layers[name]
        if isinstance(ranks, tuple):
            # `dense_layers` has refused two ranks for a linear layer.
            assert isinstance(layer, nn.Conv2d)
            factorised: nn.Module = TuckerConv2d.of(layer, ranks, hooi)
        elif isinstance(layer, nn.Conv2d):
            factorised = LowRankConv2d.of(layer, ranks)
        else:
            factorised = LowRankLinear.of(layer, ranks)
        factorised.requires_grad_(layer.weight.requires_grad)
        if name == "":
            return factorised
        parent, _, child = name.rpartition(".")
        setattr(copied.get_submodule(parent), child, factorised)
    return copied
