"""Trains PyTorch networks to factors that `tdc-gen` compiles to CUDA.

plan = compress(model, example, gpu="h200", latency_us=90)
model = decompose(model, plan)
...  # train as before, with a new optimiser
export(model, "out/", example)
"""

from .admm import Admm, rising
from .compression import compress
from .decompose import decompose
from .errors import ConfigError, GeneratorError, LayerError, TdcError, UnsupportedNetworkError
from .modules import LowRankConv2d, LowRankLinear, TuckerConv2d
from .plan import Plan
from .saving import export, load_factors, save
from .sensitivity import sensitivity
from .translation import translate

__all__ = [
    "Admm",
    "ConfigError",
    "GeneratorError",
    "LayerError",
    "LowRankConv2d",
    "LowRankLinear",
    "Plan",
    "TdcError",
    "TuckerConv2d",
    "UnsupportedNetworkError",
    "compress",
    "decompose",
    "export",
    "load_factors",
    "rising",
    "save",
    "sensitivity",
    "translate",
]
