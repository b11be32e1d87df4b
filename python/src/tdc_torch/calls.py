"""Functions and methods of PyTorch as ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, fx

from . import activations
from .layers_to_ops import adaptive_pool, avg_pool, flatten, max_pool, pad, resize, softmax
from .translation import Translation, Unsupported, View

_NOTHING = {"contiguous", "clone", "detach", "dropout", "dropout2d", "float", "to", "stochastic_depth"}
_RESHAPES = {"view", "reshape", "flatten", "squeeze", "unsqueeze"}


def convert(translation: Translation, node: fx.Node, name: str | None) -> object:
    """The value of a call of a function or method.

    Raises:
        Unsupported: with what to do.
    """
    if name is None:
        raise Unsupported("is no function of PyTorch; use one, or a module")
    args, kwargs = translation.read(node.args), dict(translation.read(node.kwargs))
    first = args[0] if args else kwargs.pop("input", None)
    rest = args[1:]
    activation = _activation(name, rest, kwargs)
    if activation is not None and isinstance(first, str):
        return translation.activation(node, activation, first)
    if name in _NOTHING:
        return first
    if name in ("add", "sub", "mul"):
        return _arithmetic(translation, node, name, first, rest, kwargs)
    if name in ("cat", "concat", "concatenate"):
        return _concat(translation, node, first, rest, kwargs)
    if name in _RESHAPES:
        return _reshape(translation, node, first)
    if name in ("permute", "transpose"):
        return _permute(node, first)
    if name in ("mean", "amax"):
        return _reduce(translation, node, name, first, rest, kwargs)
    if name == "getitem":
        return _item(translation, node, first, rest[0])
    if name in ("chunk", "split", "tensor_split"):
        return _pieces(translation, node, first, rest, kwargs)
    return _pool_or_other(translation, node, name, first, rest, kwargs)


def _activation(name: str, rest: Any, kwargs: dict[str, Any]) -> object | None:
    try:
        return activations.of_function(name, rest, kwargs)
    except TypeError as error:
        raise Unsupported(f"has arguments that the config language lacks ({error})") from error


def _pool_or_other(
    translation: Translation, node: fx.Node, name: str, first: Any, rest: Any, kwargs: dict[str, Any]
) -> object:
    if name == "adaptive_avg_pool2d":
        return adaptive_pool(translation, node, first, "avg")
    if name == "adaptive_max_pool2d":
        return adaptive_pool(translation, node, first, "max")
    # boolean_dispatch gives max_pool2d this name.
    if name in ("max_pool2d", "boolean_dispatch", "fn"):
        return max_pool(translation, node, first, *rest, **kwargs)
    if name == "avg_pool2d":
        return avg_pool(translation, node, first, *rest, **kwargs)
    if name == "softmax":
        return softmax(translation, node, first, rest[0] if rest else kwargs.get("dim"))
    if name == "interpolate":
        mode = str(kwargs.get("mode", rest[2] if len(rest) > 2 else "nearest"))
        return resize(translation, node, first, mode, bool(kwargs.get("align_corners")))
    if name == "pad":
        amounts = rest[0] if rest else kwargs["pad"]
        mode = str(kwargs.get("mode", rest[1] if len(rest) > 1 else "constant"))
        return pad(translation, node, first, amounts, mode, kwargs.get("value", rest[2] if len(rest) > 2 else 0.0))
    if name == "channel_shuffle":
        return translation.emit("shuffle", node, [first], groups=rest[0] if rest else kwargs["groups"])
    raise Unsupported("the config language has no such function; replace it, or end the network before it")


def _arithmetic(
    translation: Translation, node: fx.Node, name: str, first: Any, rest: Any, kwargs: dict[str, Any]
) -> str:
    second = rest[0] if rest else kwargs.get("other")
    if not isinstance(first, str) or not isinstance(second, str) or kwargs.get("alpha", 1) != 1:
        raise Unsupported("needs two tensors; a constant belongs into a layer before it, such as a BatchNorm2d")
    shapes = [source.meta["result"].shape for source in node.all_input_nodes]
    if name == "mul" and len(shapes) == 2 and shapes[0][2:] == (1, 1) and shapes[0] != shapes[1]:
        first, second, shapes = second, first, shapes[::-1]
    is_scale = name == "mul" and len(shapes) == 2 and shapes[1] == (*shapes[0][:2], 1, 1)
    if len(set(shapes)) > 1 and not is_scale:
        raise Unsupported(f"has tensors of the shapes {' and '.join(str(tuple(shape)) for shape in shapes)}")
    return translation.emit(name, node, [first, second])


def _concat(translation: Translation, node: fx.Node, first: Any, rest: Any, kwargs: dict[str, Any]) -> str:
    tensors = list(first if first is not None else kwargs["tensors"])
    dim = rest[0] if rest else kwargs.get("dim", 0)
    if dim % node.meta["result"].dim() != 1:
        raise Unsupported(f"concatenates axis {dim}; only axis 1, the channels, is supported")
    return tensors[0] if len(tensors) == 1 else translation.emit("concat", node, tensors)


def _reshape(translation: Translation, node: fx.Node, source: Any) -> object:
    given, made = node.all_input_nodes[0].meta["result"].shape, node.meta["result"].shape
    if isinstance(source, View):
        if source.kind == "swapped" and len(made) == 4 and made[2:] == given[3:]:
            return translation.emit("shuffle", node, [source.source], groups=source.groups)
        raise Unsupported(f"makes {tuple(made)} of {tuple(given)}, which the config language lacks")
    if len(given) == 4 and len(made) == 5 and made[3:] == given[2:] and made[1] * made[2] == given[1]:
        return View(source, "grouped", made[1])
    pixels = [shape[2:] for shape in (given, made)]
    if given[:2] == made[:2] and all(size == 1 for shape in pixels for size in shape):
        # B x C and B x C x 1 x 1 are the same tensor in a config; PyTorch's linear layers read the former only.
        return translation.emit("flatten", node, [source]) if len(made) == 2 and len(given) == 4 else source
    return flatten(translation, node, source)


def _permute(node: fx.Node, source: Any) -> View | str:
    given, made = node.all_input_nodes[0].meta["result"], node.meta["result"]
    # The order of the axes shows in the strides of a contiguous tensor.
    order = _order(given, node)
    if isinstance(source, str) and order == [0, 2, 3, 1]:
        return View(source, "last")
    if isinstance(source, View) and source.kind == "last" and order == [0, 3, 1, 2]:
        return source.source
    if isinstance(source, View) and source.kind == "grouped" and order == [0, 2, 1, 3, 4]:
        return View(source.source, "swapped", source.groups)
    raise Unsupported(f"makes {tuple(made.shape)} of {tuple(given.shape)}, which the config language lacks")


def _order(given: Tensor, node: fx.Node) -> list[int]:
    name = getattr(node.target, "__name__", str(node.target))
    axes = [axis for axis in node.args[1:] if isinstance(axis, int | tuple | list)]
    numbers: list[Any] = list(axes[0]) if axes and isinstance(axes[0], tuple | list) else list(axes)
    if name == "permute":
        dims: Any = node.kwargs.get("dims", ())
        return [axis % given.dim() for axis in numbers or dims]
    order = list(range(given.dim()))
    a, b = (axis % given.dim() for axis in numbers)
    order[a], order[b] = order[b], order[a]
    return order


def _reduce(
    translation: Translation, node: fx.Node, name: str, source: Any, rest: Any, kwargs: dict[str, Any]
) -> object:
    dims = rest[0] if rest else kwargs.get("dim")
    if not isinstance(dims, Sequence) or not isinstance(source, str) or sorted(dim % 4 for dim in dims) != [2, 3]:
        raise Unsupported(f"is over the axes {dims}; only rows and columns together, (2, 3), are supported")
    pooled = translation.emit("global_avg_pool" if name == "mean" else "global_max_pool", node, [source])
    if node.meta["result"].dim() == 4:
        return pooled
    return translation.emit("flatten", node, [pooled])


def _item(translation: Translation, node: fx.Node, source: Any, index: Any) -> object:
    if isinstance(source, tuple | list | dict):
        return source[index]
    given = node.all_input_nodes[0].meta["result"].shape
    keys = index if isinstance(index, tuple) else (index,)
    slices = [key if isinstance(key, slice) else None for key in keys]
    others = [key for axis, key in enumerate(slices) if axis != 1]
    if len(slices) < 2 or None in slices or any(key != slice(None) for key in others) or slices[1] is None:
        raise Unsupported("takes something else than consecutive channels, x[:, a:b]")
    start, stop, step = slices[1].indices(given[1])
    if step != 1:
        raise Unsupported("takes channels with a step; only consecutive ones are supported")
    return translation.emit("slice", node, [source], start=start or None, n=stop - start)


def _pieces(translation: Translation, node: fx.Node, source: Any, rest: Any, kwargs: dict[str, Any]) -> object:
    dim = rest[1] if len(rest) > 1 else kwargs.get("dim", 0)
    if dim % 4 != 1 or not isinstance(source, str):
        raise Unsupported(f"splits axis {dim}; only axis 1, the channels, is supported")
    pieces, start = [], 0
    for piece in node.meta["result"]:
        pieces.append(translation.emit("slice", node, [source], start=start or None, n=piece.shape[1]))
        start += piece.shape[1]
    return tuple(pieces)
