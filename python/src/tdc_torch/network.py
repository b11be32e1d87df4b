"""A network in the config language."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from .yaml_text import flow


@dataclass
class Op:
    """One line of `ops`: its kind, its name, the names that it reads, and its other keys in order."""

    kind: str
    name: str
    inputs: list[str]
    keys: dict[str, object] = field(default_factory=dict)

    def line(self, before: str) -> str:
        """Flow style; `before` is the name of the op before it, whose output an op reads by default."""
        reads = {} if self.inputs == [before] else {"inputs": self.inputs}
        return "  - " + flow({"op": self.kind, "name": self.name, **reads, **self.keys})


@dataclass
class Network:
    """The ops in topological order."""

    name: str
    input_shape: tuple[int, ...]
    ops: list[Op]

    def text(self, gpu: str | Sequence[str] | None = None) -> str:
        """The config."""
        lines = [f"name: {self.name}"]
        if gpu is not None:
            lines.append(f"gpu: {flow(gpu)}")
        lines += ["input: " + "x".join(map(str, self.input_shape)), "ops:"]
        before = "input"
        for op in self.ops:
            lines.append(op.line(before))
            before = op.name
        return "\n".join(lines) + "\n"


def identifier(text: str) -> str:
    """A name for the network that is an identifier of C++, from the name of a class."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII).lower()[:100]
    return name if name[:1].isalpha() else f"net_{name}"[:100]
