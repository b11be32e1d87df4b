"""Which layers are factorised, and their ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from torch import Tensor

from .errors import ConfigError
from .yaml_text import Yaml, parse

Ranks: TypeAlias = tuple[int, int] | int
"""Tucker ranks (D1, D2) of a convolution, or the rank of a linear layer or 1x1 convolution."""


@dataclass(frozen=True)
class Plan:
    """The ranks of each module, and the predicted time, loss and size of the network that has them.

    Build one with `compress`, `from_ranks`, `from_config` or `from_state_dict`.
    """

    layers: Mapping[str, Ranks]
    config: str | None = None
    """Text of the config, with ranks."""
    predicted: Mapping[str, float] = field(default_factory=dict)
    """Of the chosen network: `us` (time, microseconds), `loss`, `flops`, `weight_bytes`."""
    input_shape: tuple[int, ...] | None = None
    """B, C, H, W."""

    @classmethod
    def from_ranks(cls, ranks: Mapping[str, object]) -> Plan:
        """A plan from a mapping such as `{"layer1.0.conv1": (16, 32), "fc": 64}`.

        Raises:
            ConfigError: a value is neither a positive number nor two of them.
        """
        return cls({name: _ranks(name, value) for name, value in ranks.items()})

    @classmethod
    def from_config(cls, path: str | Path) -> Plan:
        """The keys `ranks` and `rank` of a config.

        Raises:
            ConfigError: the file is no config of a network, or has CP ranks, which cannot be trained here.
        """
        return cls.from_config_text(Path(path).read_text())

    @classmethod
    def from_config_text(cls, text: str, predicted: Mapping[str, float] | None = None) -> Plan:
        """As `from_config`, of the text."""
        config = parse(text)
        ops = config.get("ops") if isinstance(config, dict) else None
        if not isinstance(config, dict) or not isinstance(ops, list):
            raise ConfigError("the config has no list `ops`: only networks have a plan")
        layers: dict[str, Ranks] = {}
        for op in ops:
            if not isinstance(op, dict):
                raise ConfigError(f"an op of the config is no mapping: {op}")
            name = str(op.get("name"))
            if "cp_rank" in op:
                raise ConfigError(f"{name}: layers with `cp_rank` cannot be trained here; leave out the key")
            ranks = op.get("ranks", op.get("rank"))
            if ranks is not None:
                layers[name] = _ranks(name, ranks)
        return cls(layers, text, predicted or {}, _shape(config.get("input")))

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Tensor]) -> Plan:
        """The plan of a checkpoint that has factors: `<layer>.first.weight`, `<layer>.last.weight` and, for Tucker
        ranks, `<layer>.core.weight`."""
        layers: dict[str, Ranks] = {}
        for key, first in state.items():
            name, role, _ = key.rpartition(".first.weight")
            if not role or f"{name}.last.weight" not in state:
                continue
            core = state.get(f"{name}.core.weight")
            layers[name] = first.shape[0] if core is None else (core.shape[1], core.shape[0])
        return cls(layers)


def _ranks(name: str, value: object) -> Ranks:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(isinstance(rank, int) and rank > 0 for rank in value)
    ):
        return (value[0], value[1])
    raise ConfigError(f"{name}: ranks are two positive numbers [D1, D2], or one, not {value}")


def _shape(value: Yaml) -> tuple[int, ...] | None:
    if isinstance(value, dict):
        value = value.get("shape")
    if isinstance(value, str):
        return tuple(int(size) for size in value.split("x"))
    return tuple(int(str(size)) for size in value) if isinstance(value, list) else None
