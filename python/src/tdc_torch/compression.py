"""Chooses ranks with `tdc-gen compress`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path

from torch import Tensor, nn

from . import generator
from .layers import unwrap
from .plan import Plan
from .saving import save
from .translation import translate


def compress(
    model: nn.Module,
    example: Tensor,
    *,
    gpu: str = "h200",
    latency_us: float | None = None,
    speedup: float | None = None,
    flops_cut: float | None = None,
    weights_mb: float | None = None,
    loss: float | None = None,
    layer_error: float | None = None,
    method: str = "optimal",
    criterion: str | None = None,
    sensitivity: str | Path | None = None,
    step: int = 8,
    keep: Iterable[str] = (),
    only: Iterable[str] = (),
    forms: Iterable[str] = (),
    precision: str | None = None,
    name: str | None = None,
    folder: str | Path | None = None,
) -> Plan:
    """Traces the model, writes config and weights, and lets `tdc-gen compress` choose the ranks.

    Args:
        model: dense; traced in evaluation mode by torch.fx.
        example: a batch of images, B x C x H x W; its shape is the network's input.
        gpu: name of the GPU that times are predicted for.
        latency_us: budget: time of the network, microseconds.
        speedup: budget: times as fast as the dense network.
        flops_cut: budget: fraction of the operations to save.
        weights_mb: budget: weights in fp32, 10^6 bytes.
        loss: budget: loss of the network; the time is minimised.
        layer_error: largest loss of a layer.
        method: `optimal`, `tdc` or `uniform`.
        criterion: how the loss of a layer is computed; default that of `tdc-gen`.
        sensitivity: file of `sensitivity`, whose losses take the place of a criterion; the weights are not read then.
        step: ranks are multiples of this.
        keep: names of modules that stay dense.
        only: the only modules that may be factorised.
        forms: `tucker`, `rank` (low rank), `cp`; default the first two.
        precision: of all convolutions, such as `fp16`.
        name: of the network; default that of the class.
        folder: where config, weights and report are written; default: nowhere that stays.

    Raises:
        UnsupportedNetworkError: names everything that the config language lacks.
        GeneratorError: `tdc-gen` is missing, or a budget cannot be kept; it says the nearest that can.
    """
    network = translate(unwrap(model), example, name)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(folder or temporary)
        work.mkdir(parents=True, exist_ok=True)
        dense, weights, out = work / "dense.yaml", work / "dense.safetensors", work / "network.yaml"
        dense.write_text(network.text(gpu))
        save(model, weights)
        options = {
            "--latency-us": latency_us,
            "--speedup": speedup,
            "--flops-cut": flops_cut,
            "--weights-mb": weights_mb,
            "--loss": loss,
            "--layer-error": layer_error,
            "--method": method,
            "--criterion": criterion,
            "--sensitivity": sensitivity,
            "--step": step,
            "--keep": ",".join(keep) or None,
            "--only": ",".join(only) or None,
            "--forms": ",".join(forms) or None,
            "--precision": precision,
            "--gpu": gpu,
            "--out": out,
            "--report": work / "report",
        }
        command: list[str | Path] = ["compress", dense]
        if sensitivity is None:
            command += ["--weights", weights]
        for option, value in options.items():
            if value is not None:
                command += [option, str(value)]
        generator.run(command)
        report = json.loads((work / "report" / "report.json").read_text())
        chosen = [series["points"][0] for series in report["series"] if series["name"] == "chosen"]
        return Plan.from_config_text(out.read_text(), chosen[0] if chosen else {})
