"""Modules of PyTorch as ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, fx, nn

from . import activations
from .modules import FACTORISED, LowRankConv2d, LowRankLinear, TuckerConv2d
from .translation import Translation, Unsupported, View

_NOTHING = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_PAD_MODES = {"reflect": "reflect", "replicate": "edge"}


def convert(translation: Translation, node: fx.Node, layer: nn.Module) -> object:
    """The value of a call of a module.

    Raises:
        Unsupported: with what to do.
    """
    source: Any = translation.read(node.args[0])
    if isinstance(layer, _NOTHING) or type(layer).__name__ == "StochasticDepth":
        return source
    activation = activations.of_module(layer)
    if activation is not None:
        if getattr(layer, "inplace", False) and len(node.all_input_nodes[0].users) > 1:
            raise Unsupported("changes a tensor in place that others read; set inplace=False")
        return translation.activation(node, activation, source)
    if isinstance(layer, FACTORISED):
        return _factorised(translation, node, layer, source)
    if isinstance(layer, nn.Conv2d):
        return convolution(translation, node, layer, source, {})
    if isinstance(layer, nn.Linear):
        keys: dict[str, object] = {} if layer.bias is not None else {"bias": False}
        return linear(translation, node, source, layer.out_features, keys)
    if isinstance(layer, nn.BatchNorm2d | nn.BatchNorm1d):
        return _batch_norm(translation, node, layer, source)
    if isinstance(layer, nn.LayerNorm):
        return _layer_norm(translation, node, layer, source)
    if isinstance(layer, nn.PReLU):
        if layer.num_parameters == 1 and _channels(node) != 1:
            raise Unsupported("has one slope for all channels; use PReLU(num_parameters=channels)")
        return translation.emit("prelu", node, [source], str(node.target))
    if isinstance(layer, nn.MaxPool2d):
        return max_pool(translation, node, source, layer.kernel_size, layer.stride, layer.padding, layer.dilation,
                        layer.ceil_mode, layer.return_indices)  # fmt: skip
    if isinstance(layer, nn.AvgPool2d):
        return avg_pool(translation, node, source, layer.kernel_size, layer.stride, layer.padding, layer.ceil_mode,
                        layer.count_include_pad, layer.divisor_override)  # fmt: skip
    if isinstance(layer, nn.AdaptiveAvgPool2d):
        return adaptive_pool(translation, node, source, "avg")
    if isinstance(layer, nn.AdaptiveMaxPool2d):
        return adaptive_pool(translation, node, source, "max")
    if isinstance(layer, nn.LocalResponseNorm):
        return translation.emit("lrn", node, [source], size=layer.size, alpha=layer.alpha, beta=layer.beta, k=layer.k)
    if isinstance(layer, nn.Flatten):
        return flatten(translation, node, source)
    if isinstance(layer, nn.Softmax | nn.Softmax2d):
        dim = layer.dim if isinstance(layer, nn.Softmax) else 1
        return softmax(translation, node, source, dim)
    if isinstance(layer, nn.Upsample | nn.UpsamplingNearest2d | nn.UpsamplingBilinear2d):
        return resize(translation, node, source, layer.mode, bool(layer.align_corners))
    if isinstance(layer, nn.ZeroPad2d | nn.ConstantPad2d | nn.ReflectionPad2d | nn.ReplicationPad2d):
        mode = "reflect" if isinstance(layer, nn.ReflectionPad2d) else "constant"
        mode = "replicate" if isinstance(layer, nn.ReplicationPad2d) else mode
        return pad(translation, node, source, layer.padding, mode, getattr(layer, "value", 0.0))
    if isinstance(layer, nn.ChannelShuffle):
        return translation.emit("shuffle", node, [source], groups=layer.groups)
    raise Unsupported("the config language has no such layer; replace it, or end the network before it")


def convolution(
    translation: Translation, node: fx.Node, layer: nn.Conv2d, source: str, ranks: dict[str, object]
) -> str:
    """A convolution, with a `pad` op before it for padding other than zeros."""
    kernel, stride, dilation = pair(layer.kernel_size), pair(layer.stride), pair(layer.dilation)
    amounts = _conv_padding(layer)
    if layer.padding_mode == "circular":
        raise Unsupported("pads circularly; the config language has zeros, reflect and replicate")
    if layer.padding_mode in _PAD_MODES and any(amounts):
        source = translation.emit("pad", node, [source], f"{node.target}.pad", pad=amounts,
                                  mode=_PAD_MODES[layer.padding_mode])  # fmt: skip
        amounts = [0, 0, 0, 0]
    is_same = stride == [1, 1] and all(
        size % 2 == 1 and amounts[side] == amounts[side + 2] == step * (size - 1) // 2
        for side, (size, step) in enumerate(zip(kernel, dilation, strict=True))
    )
    keys: dict[str, object] = {"n": layer.out_channels}
    if kernel != [3, 3]:
        keys["kernel"] = short(kernel)
    if stride != [1, 1]:
        keys["stride"] = short(stride)
    if not is_same:
        keys["pad"] = _short_pad(amounts)
    if dilation != [1, 1]:
        keys["dilation"] = short(dilation)
    if layer.groups != 1:
        keys["groups"] = layer.groups
    if layer.bias is not None:
        keys["bias"] = True
    return translation.emit("conv", node, [source], str(node.target), keys={**keys, **ranks})


def linear(translation: Translation, node: fx.Node, source: object, features: int, keys: dict[str, object]) -> str:
    """A linear layer on a flattened input."""
    given = node.all_input_nodes[0].meta["result"]
    if given.dim() != 2:
        raise Unsupported(f"reads a tensor of {given.dim()} axes; flatten it, or use a 1x1 Conv2d for each pixel")
    return translation.emit("linear", node, [str(source)], str(node.target), n=features, keys=keys)


def _factorised(
    translation: Translation, node: fx.Node, layer: TuckerConv2d | LowRankConv2d | LowRankLinear, source: str
) -> str:
    last: Any = layer.last
    if isinstance(layer, LowRankLinear):
        keys: dict[str, object] = {} if last.bias is not None else {"bias": False}
        return linear(translation, node, source, last.out_features, {**keys, "rank": layer.ranks})
    # One convolution with the sizes of the dense layer stands for the factors.
    first: Any = layer.first
    wide: Any = layer.core if isinstance(layer, TuckerConv2d) else first
    dense = nn.Conv2d(
        first.in_channels,
        last.out_channels,
        wide.kernel_size,
        wide.stride,
        wide.padding,
        wide.dilation,
        bias=last.bias is not None,
        padding_mode=wide.padding_mode,
        device="meta",
    )
    ranks: dict[str, object] = {}
    if isinstance(layer, TuckerConv2d):
        ranks["ranks"] = list(layer.ranks)
    else:
        ranks["rank"] = layer.ranks
    return convolution(translation, node, dense, source, ranks)


def _batch_norm(translation: Translation, node: fx.Node, layer: nn.Module, source: str) -> str:
    if not layer.track_running_stats or not layer.affine:
        raise Unsupported("has no running statistics or no scale; a config folds both")
    eps = getattr(layer, "eps", 1e-5)
    norm = str(node.target) if eps == 1e-5 else {"name": str(node.target), "eps": eps}
    op = translation.sole_writer(node)
    if op is not None and op.kind == "conv" and not {"bn", "activation"} & set(op.keys):
        op.keys["bn"] = norm
        return op.name
    return translation.emit("scale_shift", node, [source], bn=norm)


def _layer_norm(translation: Translation, node: fx.Node, layer: nn.LayerNorm, source: object) -> object:
    if len(layer.normalized_shape) != 1 or not layer.elementwise_affine or layer.bias is None:
        raise Unsupported("normalises more than the channels, or has no scale and shift")
    eps = None if layer.eps == 1e-5 else layer.eps
    if type(layer).__name__ == "LayerNorm2d":
        return translation.emit("layer_norm", node, [str(source)], str(node.target), eps=eps)
    if not isinstance(source, View) or source.kind != "last":
        raise Unsupported("normalises the last axis, which is not the channels; permute to channels last before it")
    name = translation.emit("layer_norm", node, [source.source], str(node.target), eps=eps)
    return View(name, "last")


def max_pool(
    translation: Translation, node: fx.Node, source: str, kernel_size: Any, stride: Any = None, padding: Any = 0,
    dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> str:  # fmt: skip
    """`F.max_pool2d`."""
    if return_indices:
        raise Unsupported("returns indices; only values are computed")
    keys = _pool_keys(kernel_size, stride, padding, ceil_mode)
    if pair(dilation) != [1, 1]:
        keys["dilation"] = short(pair(dilation))
    return translation.emit("max_pool", node, [source], keys=keys)


def avg_pool(
    translation: Translation, node: fx.Node, source: str, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None,
) -> str:  # fmt: skip
    """`F.avg_pool2d`."""
    if divisor_override is not None:
        raise Unsupported("has a divisor_override; leave it out")
    keys = _pool_keys(kernel_size, stride, padding, ceil_mode)
    if not count_include_pad:
        keys["count_include_pad"] = False
    return translation.emit("avg_pool", node, [source], keys=keys)


def _pool_keys(kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool) -> dict[str, object]:
    keys: dict[str, object] = {"kernel": short(pair(kernel_size))}
    step = pair(stride) if stride else pair(kernel_size)
    if step != pair(kernel_size):
        keys["stride"] = short(step)
    if any(pair(padding)):
        keys["pad"] = short(pair(padding))
    if ceil_mode:
        keys["ceil_mode"] = True
    return keys


def adaptive_pool(translation: Translation, node: fx.Node, source: str, kind: str) -> str:
    """An adaptive pool of one pixel, of the size of its input, or of windows of one size."""
    given, made = node.all_input_nodes[0].meta["result"].shape[2:], node.meta["result"].shape[2:]
    if tuple(made) == (1, 1):
        return translation.emit(f"global_{kind}_pool", node, [source])
    if given == made:
        return source
    if any(size % cut for size, cut in zip(given, made, strict=True)):
        raise Unsupported(f"windows from {tuple(given)} to {tuple(made)} pixels differ in size; use a fixed window")
    window = [size // cut for size, cut in zip(given, made, strict=True)]
    return translation.emit(f"{kind}_pool", node, [source], kernel=short(window))


def flatten(translation: Translation, node: fx.Node, source: str) -> str:
    """Everything behind the batch as one axis."""
    given, made = node.all_input_nodes[0].meta["result"], node.meta["result"]
    if given.shape == made.shape:
        return source
    if made.dim() != 2 or made.shape[0] != given.shape[0]:
        raise Unsupported(f"makes {tuple(made.shape)} of {tuple(given.shape)}; only all axes behind the batch flatten")
    return translation.emit("flatten", node, [source])


def softmax(translation: Translation, node: fx.Node, source: str, dim: int | None) -> str:
    """Softmax over the channels."""
    axes = node.meta["result"].dim()
    if dim is None or dim % axes != 1:
        raise Unsupported(f"is over axis {dim}; only axis 1, the channels, is supported")
    return translation.emit("softmax", node, [source])


def resize(translation: Translation, node: fx.Node, source: str, mode: str, align_corners: bool) -> str:
    """Nearest or bilinear resizing. PyTorch's nearest pixel is the floor of the asymmetric coordinate."""
    size = short(list(node.meta["result"].shape[2:]))
    if mode == "nearest":
        return translation.emit("resize", node, [source], size=size, coordinates="asymmetric", rounding="floor")
    if mode == "bilinear":
        coordinates = "align_corners" if align_corners else None
        return translation.emit("resize", node, [source], size=size, mode="bilinear", coordinates=coordinates)
    raise Unsupported(f"mode {mode}; only nearest and bilinear are supported")


def pad(translation: Translation, node: fx.Node, source: str, padding: Any, mode: str, value: float | None) -> str:
    """Padding of rows and columns, in PyTorch's order: left, right, top, bottom."""
    amounts = [padding] * 4 if isinstance(padding, int) else [*padding, 0, 0][:4]
    if mode not in ("constant", *_PAD_MODES) or min(amounts) < 0:
        raise Unsupported(f"mode {mode} with {amounts}; constant, reflect and replicate of at least 0 are supported")
    left, right, top, bottom = amounts
    keys: dict[str, object] = {"pad": [top, left, bottom, right]}
    if mode != "constant":
        keys["mode"] = _PAD_MODES[mode]
    elif value:
        keys["value"] = value
    return translation.emit("pad", node, [source], keys=keys)


def pair(value: Any) -> list[int]:
    """Vertical and horizontal."""
    return [int(value)] * 2 if isinstance(value, int) else [int(item) for item in value]


def short(values: Sequence[int]) -> int | list[int]:
    """One number for two equal ones."""
    return int(values[0]) if len(set(values)) == 1 else [int(value) for value in values]


def _conv_padding(layer: nn.Conv2d) -> list[int]:
    """Top, left, bottom, right."""
    if layer.padding == "valid":
        return [0, 0, 0, 0]
    if layer.padding == "same":
        whole = [step * (size - 1) for size, step in zip(layer.kernel_size, layer.dilation, strict=True)]
        # PyTorch puts the odd pixel behind.
        return [total // 2 for total in whole] + [total - total // 2 for total in whole]
    return pair(layer.padding) * 2


def _short_pad(amounts: list[int]) -> object:
    if amounts[:2] == amounts[2:]:
        return short(amounts[:2])
    return amounts


def _channels(node: fx.Node) -> int:
    result: Tensor = node.meta["result"]
    return int(result.shape[1])
