"""Runs the `tdc-gen` binary."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from .errors import GeneratorError


def find() -> str:
    """Path of the binary: `$TDC_GEN`, else that of the wheel, else `tdc-gen` on the search path.

    A wheel with the binary puts it into the scripts folder of the environment, which is on the search path only while
    the environment is active.

    Raises:
        GeneratorError: there is none.
    """
    named = os.environ.get("TDC_GEN")
    found = shutil.which(named) if named else shutil.which("tdc-gen", path=sysconfig.get_path("scripts"))
    if found is None and not named:
        found = shutil.which("tdc-gen")
    if found is None:
        where = f"TDC_GEN is {named}, which is no program" if named else "there is no tdc-gen on PATH"
        raise GeneratorError(f"{where}; build it with `cargo build --release -p tdc-generator`, and set TDC_GEN to it")
    return found


def run(arguments: Sequence[str | Path]) -> str:
    """Runs the binary and returns what it prints.

    Raises:
        GeneratorError: it is missing, or its exit code is not 0; with its own message.
    """
    command = [find(), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        # Progress is on the same stream; errors come last.
        raise GeneratorError(f"`tdc-gen {arguments[0]}` failed with code {result.returncode}:\n{result.stderr.strip()}")
    return result.stdout
