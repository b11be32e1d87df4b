"""Errors that a user can act on."""

from __future__ import annotations

from collections.abc import Iterable


class TdcError(Exception):
    """Base class of all errors of this package."""


class UnsupportedNetworkError(TdcError):
    """A network has parts that the config language lacks. `problems` has all of them, one sentence each."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__("the network cannot be written as a config:\n" + _lines(self.problems))


class LayerError(TdcError):
    """A plan does not fit a model. `problems` has the reason for every layer."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__("the plan does not fit the model:\n" + _lines(self.problems))


class ConfigError(TdcError):
    """A config cannot be read."""


class GeneratorError(TdcError):
    """`tdc-gen` is missing or has failed."""


def _lines(problems: list[str]) -> str:
    return "\n".join(f"  {problem}" for problem in problems)
