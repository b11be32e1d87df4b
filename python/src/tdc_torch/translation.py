"""Translates a traced model into a network of the config language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor, fx, nn

from .errors import UnsupportedNetworkError
from .network import Network, Op, identifier
from .tracing import function_name, trace

_FUSES_ACTIVATION = {"conv", "linear", "add", "sub", "mul", "scale_shift"}


@dataclass(frozen=True)
class View:
    """A tensor of five axes or with channels last, on the way to something that the config language has."""

    source: str
    kind: str
    """`grouped`: B x groups x C/groups x H x W; `swapped`: its axes 1 and 2 exchanged; `last`: B x H x W x C."""
    groups: int = 0


Value: TypeAlias = Any
"""The name of an op, a `View`, a tuple of them, or a number that is known when the model is traced."""


class Unsupported(Exception):  # noqa: N818 - never leaves this package
    """A node cannot be translated; the message says why and what to do."""


class Translation:
    """The ops so far, and the value of every node."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module
        self.ops: list[Op] = []
        self.values: dict[fx.Node, Value] = {}
        self.names = {"input"}

    def read(self, argument: Any) -> Value:
        """An argument with nodes replaced by their values."""
        return fx.node.map_arg(argument, lambda node: self.values[node])

    def emit(
        self,
        kind: str,
        node: fx.Node,
        inputs: list[str],
        name: str | None = None,
        *,
        keys: Mapping[str, object] | None = None,
        **more: object,
    ) -> str:
        """Adds an op. Ops with weights must keep their module's name, others get a free one."""
        for source in inputs:
            if not isinstance(source, str):
                raise Unsupported("reads a tensor in an order of axes that the config language lacks")
        wanted = name or (str(node.target) if node.op == "call_module" else node.name)
        found, number = wanted, 1
        while found in self.names:
            if name is not None:
                raise Unsupported(
                    "is called twice, and a config names weights by op; give each call a module of its own"
                )
            number += 1
            found = f"{wanted}_{number}"
        self.names.add(found)
        given = {**more, **(keys or {})}
        self.ops.append(Op(kind, found, inputs, {key: value for key, value in given.items() if value is not None}))
        return found

    def sole_writer(self, node: fx.Node) -> Op | None:
        """The op whose output this node alone reads, so that it may take the node over."""
        source = node.all_input_nodes[0]
        value = self.values[source]
        if not isinstance(value, str) or value == "input":
            return None
        aliases = [other for other, known in self.values.items() if known == value]
        readers = {user for alias in aliases for user in alias.users} - set(aliases)
        op = next(op for op in self.ops if op.name == value)
        return op if readers == {node} else None

    def activation(self, node: fx.Node, value: object, source: str) -> str:
        """An activation function, as a key of the op before it where that has one."""
        op = self.sole_writer(node)
        if op is not None and op.kind in _FUSES_ACTIVATION and "activation" not in op.keys:
            op.keys["activation"] = value
            return op.name
        return self.emit("activation", node, [source], activation=value)


def translate(model: nn.Module, example: Tensor, name: str | None = None) -> Network:
    """The network of a model in evaluation mode.

    Args:
        model: traced by torch.fx. Its device is that of the example.
        example: B x C x H x W; its shape is the network's input.
        name: of the network; default: that of the class.

    Raises:
        UnsupportedNetworkError: names everything that the config language lacks.
    """
    from . import calls, layers_to_ops

    module = trace(model, example)
    translation = Translation(module)
    problems: list[str] = []
    failed: set[fx.Node] = set()
    for node in module.graph.nodes:
        if failed & set(node.all_input_nodes):
            # Only causes are reported, not what follows from them.
            failed.add(node)
            continue
        try:
            translation.values[node] = _value(translation, node, calls, layers_to_ops)
        except Unsupported as error:
            failed.add(node)
            problems.append(f"{describe(node, module)}: {error}")
    if problems:
        raise UnsupportedNetworkError(problems)
    output = next(node for node in module.graph.nodes if node.op == "output")
    _name_outputs(translation, translation.values[output])
    return Network(name or identifier(type(model).__name__), tuple(example.shape), translation.ops)


def _value(translation: Translation, node: fx.Node, calls: Any, layers_to_ops: Any) -> Value:
    if node.op == "placeholder":
        if translation.values and not node.users:
            return None
        if translation.values:
            raise Unsupported("a network has one input")
        return "input"
    if node.op == "output":
        return translation.read(node.args[0])
    result = node.meta["result"]
    if node.op == "get_attr":
        raise Unsupported(
            "reads a parameter or constant outside of a layer; use a module such as BatchNorm2d or Linear"
        )
    if not _has_tensor(result):
        return result
    if node.op == "call_module":
        layer = translation.module.get_submodule(str(node.target))
        return layers_to_ops.convert(translation, node, layer)
    return calls.convert(translation, node, function_name(node))


def _has_tensor(result: object) -> bool:
    if isinstance(result, list | tuple):
        return any(_has_tensor(item) for item in result)
    return isinstance(result, Tensor)


def _name_outputs(translation: Translation, value: Value) -> None:
    """Marks the outputs, and drops the ops that none of them reads."""
    if isinstance(value, Mapping):
        outputs = [(str(key), item) for key, item in value.items()]
    else:
        several = isinstance(value, tuple | list)
        outputs = [(f"output{index}", item) for index, item in enumerate(value)] if several else [("", value)]
    for _, item in outputs:
        if not isinstance(item, str) or item == "input":
            raise UnsupportedNetworkError([f"output: {item} is not the result of an op"])
    needed = {item for _, item in outputs}
    kept = []
    for op in reversed(translation.ops):
        if op.name in needed:
            needed.update(op.inputs)
            kept.append(op)
    translation.ops[:] = reversed(kept)
    if len(outputs) > 1:
        by_name = {op.name: op for op in translation.ops}
        for output, item in outputs:
            by_name[item].keys["output"] = {"name": identifier(output)}


def describe(node: fx.Node, module: fx.GraphModule) -> str:
    """The module of a node, or the function with the module that calls it, as a user knows them."""
    if node.op == "call_module":
        return f"{node.target} ({type(module.get_submodule(str(node.target))).__name__})"
    stack = list(node.meta.get("nn_module_stack", {}).values())
    inside = stack[-1][0] if stack else ""
    called = function_name(node) or getattr(node.target, "__name__", str(node.target))
    return f"{called} in {inside}" if inside else str(called)
