"""Traces a model with torch.fx and records the result of every node."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx, nn

from .errors import TdcError, UnsupportedNetworkError
from .modules import FACTORISED

# torchvision's modules that are translated as a whole; by name, so that torchvision is not imported.
_WHOLE = {"StochasticDepth", "LayerNorm2d"}


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        is_whole = isinstance(m, FACTORISED) or type(m).__name__ in _WHOLE
        return is_whole or super().is_leaf_module(m, module_qualified_name)


class _Recorder(fx.Interpreter):
    """Runs a graph and keeps the result of every node in `meta["result"]`."""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        n.meta["result"] = fx.node.map_aggregate(result, _without_values)
        return result


def _without_values(value: Any) -> Any:
    """A tensor's shape is needed, not its values."""
    return torch.empty(value.shape, dtype=value.dtype, device="meta") if isinstance(value, Tensor) else value


def trace(model: nn.Module, example: Tensor) -> fx.GraphModule:
    """The graph of the model in evaluation mode.

    Raises:
        TdcError: the example is no batch of images.
        UnsupportedNetworkError: torch.fx cannot trace the model, as with control flow that depends on data.
    """
    if example.dim() != 4:
        raise TdcError(f"the example has {example.dim()} axes; it must be a batch of images, B x C x H x W")
    was_training = {name: module.training for name, module in model.named_modules()}
    model.eval()
    try:
        try:
            graph = _Tracer().trace(model)
        except Exception as error:  # what a trace raises depends on the model's code
            advice = "torch.fx runs it with symbolic tensors: no branch may depend on their values"
            raise UnsupportedNetworkError([f"{type(model).__name__}: {error}; {advice}"]) from error
        module = fx.GraphModule(model, graph)
        module.graph.eliminate_dead_code()
        with torch.no_grad():
            _Recorder(module).run(example)
        return module
    finally:
        for name, child in model.named_modules():
            child.training = was_training[name]


def function_name(node: fx.Node) -> str | None:
    """What a call of a function or method of PyTorch is called; None for functions of others."""
    if node.op == "call_method":
        return str(node.target).rstrip("_")
    target: Any = node.target
    if target is getattr:
        return "getattr"
    home = getattr(target, "__module__", None) or "torch"
    name = str(getattr(target, "__name__", target))
    if home in ("_operator", "operator") or target is operator.getitem:
        return {"truediv": "div", "iadd": "add", "isub": "sub", "imul": "mul"}.get(name, name)
    if home.startswith("torch.") or home == "torch" or name == "stochastic_depth":
        return name.rstrip("_")
    return None
