"""Activation functions: PyTorch's modules and functions as the key `activation`."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import nn

_MODULES: dict[type[nn.Module], Callable[..., object]] = {
    nn.ReLU: lambda m: "relu",
    nn.ReLU6: lambda m: {"clip": [0, 6]},
    nn.Hardtanh: lambda m: _clip(m.min_val, m.max_val),
    nn.LeakyReLU: lambda m: {"leaky_relu": m.negative_slope},
    nn.Sigmoid: lambda m: "sigmoid",
    nn.Hardsigmoid: lambda m: "hard_sigmoid",
    nn.SiLU: lambda m: "silu",
    nn.Hardswish: lambda m: "hard_swish",
    nn.Tanh: lambda m: "tanh",
    nn.GELU: lambda m: _gelu(m.approximate),
}

_FUNCTIONS: dict[str, Callable[..., object]] = {
    "relu": lambda inplace=False: "relu",
    "relu6": lambda inplace=False: {"clip": [0, 6]},
    "hardtanh": lambda min_val=-1.0, max_val=1.0, inplace=False: _clip(min_val, max_val),
    "clamp": lambda min=None, max=None: _clip(min, max),
    "clip": lambda min=None, max=None: _clip(min, max),
    "leaky_relu": lambda negative_slope=0.01, inplace=False: {"leaky_relu": negative_slope},
    "sigmoid": lambda: "sigmoid",
    "hardsigmoid": lambda inplace=False: "hard_sigmoid",
    "silu": lambda inplace=False: "silu",
    "hardswish": lambda inplace=False: "hard_swish",
    "tanh": lambda: "tanh",
    "gelu": lambda approximate="none": _gelu(approximate),
}


def of_module(module: nn.Module) -> object | None:
    """The value of `activation`; None for other modules."""
    # ReLU6 is a Hardtanh too, so the exact type decides.
    found = _MODULES.get(type(module))
    return None if found is None else found(module)


def of_function(name: str, args: tuple[object, ...], kwargs: dict[str, object]) -> object | None:
    """The value of `activation` of a call without its tensor; None for other functions."""
    found = _FUNCTIONS.get(name)
    return None if found is None else found(*args, **kwargs)


def _clip(low: float | None, high: float | None) -> object:
    return {"clip": [-math.inf if low is None else low, math.inf if high is None else high]}


def _gelu(approximate: object) -> str:
    return "gelu_tanh" if approximate == "tanh" else "gelu"
