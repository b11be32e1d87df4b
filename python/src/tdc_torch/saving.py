"""Writes weights and whole folders for `tdc-gen`."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from . import generator
from .errors import TdcError
from .layers import factorised_layers, unwrap
from .plan import Plan
from .translation import translate


def checkpoint(model: nn.Module) -> dict[str, Tensor]:
    """The state of a model with the names that `tdc-gen pack` reads, on the CPU, in fp32.

    They are those of the state dict, except that the bias of a factorised layer is the layer's: `conv1.last.bias`
    becomes `conv1.bias`.
    """
    biases = {f"{name}.last.bias": f"{name}.bias" for name in factorised_layers(model)}
    state = {}
    for key, tensor in unwrap(model).state_dict().items():
        if not isinstance(tensor, Tensor):
            continue
        value = tensor.detach().cpu()
        # A copy, because safetensors refuses tensors that share memory.
        state[biases.get(key, key)] = (value.float() if value.is_floating_point() else value).contiguous().clone()
    return state


def save(model: nn.Module, path: str | Path) -> None:
    """Writes the weights as safetensors, dense or factorised, for `tdc-gen pack`."""
    save_file(checkpoint(model), path)


def export(
    model: nn.Module,
    folder: str | Path,
    example: Tensor | None = None,
    *,
    gpu: str | None = None,
    name: str | None = None,
) -> Plan:
    """Writes `network.yaml`, `weights.safetensors` and `generated/` with the code and `weights.bin`.

    Args:
        model: dense or factorised.
        folder: created if missing.
        example: a batch of images; its shape is the network's input. Default: that of the plan of `compress`.
        gpu: name of the GPU to generate for; default that of `tdc-gen`.
        name: of the network; default that of the class.

    Raises:
        UnsupportedNetworkError: names everything that the config language lacks.
        TdcError: there is neither an example nor a shape.
        GeneratorError: `tdc-gen` is missing or has failed.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config, weights, code = folder / "network.yaml", folder / "weights.safetensors", folder / "generated"
    module = unwrap(model)
    if example is None:
        shape = getattr(module, "tdc_input_shape", None)
        if shape is None:
            raise TdcError("export needs an example: the model is not decomposed by a plan that says the input's shape")
        example = torch.zeros(shape, device=next(module.parameters()).device)
    text = translate(module, example, name).text(gpu)
    config.write_text(text)
    save(model, weights)
    generator.run([config, "--out", code])
    generator.run(["pack", config, weights, "-o", code / "weights.bin"])
    return Plan.from_config_text(text)


def load_factors(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Loads weights that `save` wrote into a model of the same ranks, such as the result of `decompose`.

    Raises:
        TdcError: names are missing or unknown.
    """
    names = {f"{name}.bias": f"{name}.last.bias" for name in factorised_layers(model)}
    found = {names.get(key, key): value for key, value in state.items()}
    missing, unknown = unwrap(model).load_state_dict(found, strict=False)
    if missing or unknown:
        raise TdcError(f"the checkpoint lacks {missing} and has besides {unknown}")
