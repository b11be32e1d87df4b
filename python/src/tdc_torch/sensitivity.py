"""Measures how much each layer's ranks cost, for `tdc-gen compress --sensitivity`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .errors import TdcError
from .factors import project_one
from .layers import unwrap, why_not
from .plan import Ranks

CRITERIA = {"loss": "rise of the loss", "output": "output error", "fisher": "Fisher information"}
"""Names of the criteria here and in the file."""

LossFunction = Callable[[Tensor, Tensor], Tensor]


@dataclass
class _Layer:
    name: str
    module: nn.Conv2d | nn.Linear
    axes: list[list[int]]
    """Ranks to measure: d1 and d2, or rank alone; ascending, without the full ones."""

    def points(self) -> list[Ranks]:
        return [point if len(point) == 2 else point[0] for point in product(*self.axes)]


def sensitivity(
    model: nn.Module,
    loader: Iterable[Any],
    path: str | Path,
    *,
    criterion: str = "loss",
    layers: Iterable[str] | None = None,
    evaluations: int = 1000,
    batches: int = 8,
    loss: LossFunction = F.cross_entropy,
    seed: int = 0,
    progress: bool = True,
) -> dict[str, Any]:
    """Measures the loss of every layer on a grid of ranks, one layer at a time, and writes it as JSON.

    Criteria, each a mean over images and at least 0:

    - `loss`: how much the loss rises with the projected weight; a fall counts as 0. One run of the model per point.
    - `output`: squared error of the layer's output over its variance. One convolution per point and batch.
    - `fisher`: half the mean square of the gradient's product with the weight's error, with labels sampled from the
      model's own predictions. One convolution per point and batch, and one backward pass.

    Args:
        model: dense; evaluated in evaluation mode on its own device.
        loader: gives (images, labels); the first `batches` batches are used.
        path: the JSON file.
        criterion: `loss`, `output` or `fisher`.
        layers: names of modules; default: all that can be factorised.
        evaluations: at most so many points of all grids together.
        batches: batches of the loader.
        loss: of outputs and labels, a mean over images.
        seed: of the labels that `fisher` samples.
        progress: whether a line on stderr counts the points.

    Returns:
        What the file has.

    Raises:
        TdcError: an unknown criterion or layer, no data, or fewer evaluations than layers.
    """
    if criterion not in CRITERIA:
        raise TdcError(f"there is no criterion {criterion}; choose from {', '.join(CRITERIA)}")
    model = unwrap(model)
    found = _layers(model, layers, evaluations)
    data = _data(model, loader, batches)
    with _evaluation_mode(model):
        measure = {"loss": _rise, "output": _output_error, "fisher": _fisher}[criterion]
        report = _Progress(sum(len(layer.points()) for layer in found), progress)
        losses = measure(model, found, data, loss, seed, report)
        report.end()
    result = {"criterion": CRITERIA[criterion], "layers": [_entry(layer, losses[layer.name]) for layer in found]}
    Path(path).write_text(json.dumps(result, indent=1) + "\n")
    return result


def grid(channels: int, points: int) -> list[int]:
    """Ranks from channels / 16 up to below all channels, ascending, about evenly spaced in their logarithm."""
    ratio = 16.0 ** (1.0 / points)
    ranks = {max(1, round(channels / ratio**step)) for step in range(1, points + 1)}
    return sorted(rank for rank in ranks if rank < channels)


def _layers(model: nn.Module, names: Iterable[str] | None, evaluations: int) -> list[_Layer]:
    modules = dict(model.named_modules())
    chosen = list(names) if names is not None else [name for name, module in modules.items() if _is_candidate(module)]
    unknown = [name for name in chosen if not _is_candidate(modules.get(name))]
    if unknown:
        raise TdcError(f"{', '.join(unknown)}: only Conv2d of one group and Linear with several channels are measured")
    if evaluations < len(chosen):
        raise TdcError(f"{evaluations} evaluations are fewer than the {len(chosen)} layers; raise `evaluations`")
    per_layer = evaluations // max(1, len(chosen))
    found = []
    for name in chosen:
        module = modules[name]
        assert isinstance(module, nn.Conv2d | nn.Linear)
        n, c = module.weight.shape[:2]
        if module.weight[0, 0].numel() > 1:
            side = min(6, int(per_layer**0.5))
            axes = [grid(c, side) or [c], grid(n, side) or [n]]
        else:
            axes = [grid(min(n, c), min(8, per_layer))]
        found.append(_Layer(name, module, axes))
    return found


def _is_candidate(module: nn.Module | None) -> bool:
    if not isinstance(module, nn.Conv2d | nn.Linear) or max(module.weight.shape[:2]) < 2:
        return False
    is_filter = isinstance(module, nn.Conv2d) and tuple(module.kernel_size) != (1, 1)
    if not is_filter and min(module.weight.shape[:2]) < 2:
        return False
    return why_not(module, (1, 1) if is_filter else 1) is None


def _data(model: nn.Module, loader: Iterable[Any], batches: int) -> list[tuple[Tensor, Tensor]]:
    device = next(model.parameters()).device
    data: list[tuple[Tensor, Tensor]] = []
    for images, labels in loader:
        if len(data) == batches:
            break
        data.append((images.to(device), labels.to(device)))
    if not data:
        raise TdcError("the loader gives no data")
    return data


def _rise(
    model: nn.Module, layers: list[_Layer], data: list[tuple[Tensor, Tensor]], loss: LossFunction, seed: int,
    report: _Progress,
) -> dict[str, list[float]]:  # fmt: skip
    @torch.no_grad()
    def mean_loss() -> float:
        total = sum(loss(model(images), labels).item() * len(images) for images, labels in data)
        return total / sum(len(images) for images, _ in data)

    dense = mean_loss()
    found = {}
    for layer in layers:
        original = layer.module.weight.detach().clone()
        values = []
        try:
            for ranks in layer.points():
                layer.module.weight.data.copy_(project_one(original, ranks))
                values.append(max(0.0, mean_loss() - dense))
                report.count()
        finally:
            layer.module.weight.data.copy_(original)
        found[layer.name] = values
    return found


def _output_error(
    model: nn.Module, layers: list[_Layer], data: list[tuple[Tensor, Tensor]], loss: LossFunction, seed: int,
    report: _Progress,
) -> dict[str, list[float]]:  # fmt: skip
    def visit(layer: _Layer, inputs: Tensor, output: Tensor, errors: list[Tensor], sums: list[float]) -> None:
        variance = output.var().clamp_min(1e-30)
        for index, error in enumerate(errors):
            sums[index] += (_apply(layer.module, inputs, error).square().mean() / variance).item() / len(data)

    return _visit_outputs(model, layers, data, visit, report)


def _fisher(
    model: nn.Module, layers: list[_Layer], data: list[tuple[Tensor, Tensor]], loss: LossFunction, seed: int,
    report: _Progress,
) -> dict[str, list[float]]:  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    images_in_all = sum(len(images) for images, _ in data)

    def visit(layer: _Layer, inputs: Tensor, output: Tensor, errors: list[Tensor], sums: list[float]) -> None:
        def backward(gradient: Tensor) -> None:
            for index, error in enumerate(errors):
                # Of each image the product of its own gradient with the weight's error.
                products = (gradient * _apply(layer.module, inputs, error)).flatten(1).sum(1)
                sums[index] += 0.5 * products.square().sum().item() / images_in_all

        output.register_hook(backward)  # type: ignore[no-untyped-call]

    def run(images: Tensor) -> None:
        with torch.enable_grad():
            outputs = model(images.requires_grad_())
            probabilities = outputs.detach().softmax(1).cpu()
            labels = torch.multinomial(probabilities, 1, generator=generator)[:, 0].to(outputs.device)
            # A sum, so that each image has its own gradient.
            F.cross_entropy(outputs, labels, reduction="sum").backward()  # type: ignore[no-untyped-call]

    kept = {name: parameter.grad for name, parameter in model.named_parameters()}
    try:
        return _visit_outputs(model, layers, data, visit, report, run)
    finally:
        for name, parameter in model.named_parameters():
            parameter.grad = kept[name]


def _visit_outputs(
    model: nn.Module, layers: list[_Layer], data: list[tuple[Tensor, Tensor]], visit: Callable[..., None],
    report: _Progress, run: Callable[[Tensor], None] | None = None,
) -> dict[str, list[float]]:  # fmt: skip
    """Calls `visit` with input and output of one layer at a time, and the weight's error at each point."""
    found = {}
    for layer in layers:
        weight = layer.module.weight.detach()
        errors = [project_one(weight, ranks) - weight for ranks in layer.points()]
        sums = [0.0] * len(errors)

        def hook(_: nn.Module, inputs: tuple[Tensor], output: Tensor, bound: Any = (layer, errors, sums)) -> None:
            visit(bound[0], inputs[0].detach(), output, bound[1], bound[2])

        handle = layer.module.register_forward_hook(hook)
        try:
            for images, _ in data:
                if run is None:
                    with torch.no_grad():
                        model(images)
                else:
                    run(images.detach().clone())
        finally:
            handle.remove()
        report.count(len(errors))
        found[layer.name] = sums
    return found


@torch.no_grad()
def _apply(module: nn.Conv2d | nn.Linear, inputs: Tensor, weight: Tensor) -> Tensor:
    if isinstance(module, nn.Conv2d):
        output: Tensor = module._conv_forward(inputs, weight, None)
        return output
    return F.linear(inputs, weight)


@contextmanager
def _evaluation_mode(model: nn.Module) -> Iterator[None]:
    was_training = {name: module.training for name, module in model.named_modules()}
    model.eval()
    try:
        yield
    finally:
        for name, module in model.named_modules():
            module.training = was_training[name]


def _entry(layer: _Layer, losses: list[float]) -> dict[str, Any]:
    if len(layer.axes) == 1:
        return {"name": layer.name, "rank": layer.axes[0], "loss": losses}
    d1, d2 = layer.axes
    rows = [losses[row * len(d2) : (row + 1) * len(d2)] for row in range(len(d1))]
    return {"name": layer.name, "d1": d1, "d2": d2, "loss": rows}


class _Progress:
    def __init__(self, points: int, shown: bool) -> None:
        self.points, self.shown, self.done = points, shown, 0

    def count(self, points: int = 1) -> None:
        self.done += points
        if self.shown:
            print(f"\rsensitivity: {self.done} of {self.points} points", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.shown:
            print(file=sys.stderr)
