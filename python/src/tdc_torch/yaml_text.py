"""Reads and writes the part of YAML that configs use: mappings, lists, scalars and comments.

PyYAML is no dependency of this package. Anchors, tags, several documents and multi-line strings are errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias, Union

from .errors import ConfigError

Yaml: TypeAlias = Union[bool, int, float, str, list["Yaml"], dict[str, "Yaml"], None]  # noqa: UP007 - 3.10

_PLAIN = re.compile(r"[A-Za-z_][\w.\-/]*\Z", re.ASCII)
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
_INTEGER = re.compile(r"[-+]?\d+\Z")
_FLOAT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\Z")
_TOKEN = re.compile(
    r"""\s*(?:(?P<mark>[{}\[\],])|(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')|(?P<plain>[^{}\[\],"']+))"""
)


def flow(value: object) -> str:
    """One line of flow style."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, str):
        return value if _PLAIN.match(value) and value.lower() not in _WORDS else json.dumps(value)
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return {"inf": ".inf", "-inf": "-.inf"}.get(str(value), repr(value))
    return str(value)


def parse(text: str) -> Yaml:
    """The value of a document.

    Raises:
        ConfigError: with the line.
    """
    lines = [(number, _without_comment(line).rstrip()) for number, line in enumerate(text.splitlines(), 1)]
    reader = _Blocks([(number, line) for number, line in lines if line.strip()])
    value = reader.block(0)
    if reader.lines:
        raise ConfigError(f"line {reader.lines[0][0]}: unexpected indentation")
    return value


def _without_comment(line: str) -> str:
    quote = ""
    for index, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char == "#" and (index == 0 or line[index - 1].isspace()):
            return line[:index]
    return line


def _scalar(text: str) -> Yaml:
    text = text.strip()
    if text.startswith('"'):
        return str(json.loads(text))
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    constants: dict[str, Yaml] = {"true": True, "false": False, "null": None, "~": None, "": None}
    constants |= {".inf": float("inf"), "-.inf": float("-inf")}
    if text in constants:
        return constants[text]
    if _INTEGER.match(text):
        return int(text)
    return float(text) if _FLOAT.match(text) else text


class _Flow:
    """Recursive descent over the tokens of a flow value."""

    def __init__(self, text: str, line: int) -> None:
        self.line = line
        self.tokens: list[str] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise ConfigError(f"line {line}: cannot read `{text[position:].strip()}`")
            self.tokens.append(match.group().strip())
            position = match.end()

    def take(self, expected: str | None = None) -> str:
        if not self.tokens or (expected is not None and self.tokens[0] != expected):
            raise ConfigError(f"line {self.line}: expected `{expected or 'a value'}`")
        return self.tokens.pop(0)

    def at(self, token: str) -> bool:
        return bool(self.tokens) and self.tokens[0] == token

    def value(self) -> Yaml:
        if self.at("["):
            return self.sequence()
        return self.mapping() if self.at("{") else _scalar(self.take())

    def sequence(self) -> Yaml:
        self.take("[")
        items: list[Yaml] = []
        while not self.at("]"):
            items.append(self.value())
            if not self.at("]"):
                self.take(",")
        self.take("]")
        return items

    def mapping(self) -> Yaml:
        self.take("{")
        items: dict[str, Yaml] = {}
        while not self.at("}"):
            key, colon, rest = self.take().partition(":")
            if not colon:
                raise ConfigError(f"line {self.line}: expected `:` after `{key}`")
            items[str(_scalar(key))] = _scalar(rest) if rest.strip() else self.value()
            if not self.at("}"):
                self.take(",")
        self.take("}")
        return items


class _Blocks:
    """Recursive descent over lines by their indentation."""

    def __init__(self, lines: list[tuple[int, str]]) -> None:
        self.lines = lines

    def block(self, least: int) -> Yaml:
        if not self.lines or _indent(self.lines[0][1]) < least:
            return None
        indent = _indent(self.lines[0][1])
        is_list = self.lines[0][1].lstrip().startswith("- ")
        return self.items(indent) if is_list else self.mapping(indent)

    def items(self, indent: int) -> Yaml:
        items: list[Yaml] = []
        while self.lines and _indent(self.lines[0][1]) == indent and self.lines[0][1].lstrip().startswith("- "):
            number, line = self.lines[0]
            rest = line.lstrip()[2:]
            if _is_entry(rest):
                # `- key: value` begins a mapping whose other keys are below the first one.
                self.lines[0] = (number, " " * (len(line) - len(rest.lstrip())) + rest.lstrip())
                items.append(self.mapping(_indent(self.lines[0][1])))
            else:
                self.lines.pop(0)
                items.append(self.inline(rest, number))
        return items

    def mapping(self, indent: int) -> Yaml:
        found: dict[str, Yaml] = {}
        while self.lines and _indent(self.lines[0][1]) == indent:
            number, line = self.lines.pop(0)
            key, colon, rest = line.partition(":")
            if not colon or (rest and not rest.startswith(" ")):
                raise ConfigError(f"line {number}: expected `key: value`")
            if rest.strip():
                found[str(_scalar(key))] = self.inline(rest, number)
            else:
                # A list may be as far to the left as its key.
                is_list = bool(self.lines) and self.lines[0][1].lstrip().startswith("- ")
                found[str(_scalar(key))] = self.block(indent if is_list else indent + 1)
        return found

    def inline(self, text: str, number: int) -> Yaml:
        text = text.strip()
        if text[:1] not in ("{", "["):
            if text[:1] in ("&", "*", "!", "|", ">"):
                raise ConfigError(f"line {number}: `{text[0]}` is not supported here")
            return _scalar(text)
        while _depth(text) > 0 and self.lines:
            text += " " + self.lines.pop(0)[1].strip()
        reader = _Flow(text, number)
        value = reader.value()
        if reader.tokens:
            raise ConfigError(f"line {number}: unexpected `{reader.tokens[0]}`")
        return value


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _is_entry(text: str) -> bool:
    return bool(re.match(r"[\w.\"'-]+:(\s|$)", text.lstrip()))


def _depth(text: str) -> int:
    return sum(text.count(mark) for mark in "{[") - sum(text.count(mark) for mark in "}]")
