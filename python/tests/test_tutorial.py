"""The tutorial's commands, as printed, on small images and for one epoch.

The C++ program is built by the host's compiler against the CPU emulation in the place of CMake and nvcc.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
from conftest import ROOT, build

TUTORIAL = ROOT / "docs" / "tutorials" / "compress-resnet18.md"
CLASSES = 3
SMALLER = {
    "--epochs 10": "--epochs 1 --size 32",
    "--speedup 1.3": "--speedup 1.2",  # so small a network gains less
    "dense.py photos": "dense.py photos --weights= ",
}


def files(text: str) -> dict[str, str]:
    """The blocks of code that begin with a comment of a file's name."""
    blocks = re.findall(r"```\w+\n(?:#|//) (\S+)\n(.*?)```", text, re.DOTALL)
    return dict(blocks)


def commands(text: str, program: str) -> list[str]:
    """The printed commands that begin so."""
    return re.findall(rf"^    ({re.escape(program)}.*)$", text, re.MULTILINE)


def write_photos(folder: Path) -> None:
    """Images that differ by class: three grey levels, with noise, of sizes that need resizing and cropping."""
    image = pytest.importorskip("PIL.Image")
    random = numpy.random.default_rng(0)
    for split, count in (("train", 12), ("val", 2)):
        for label in range(CLASSES):
            place = folder / split / f"class{label}"
            place.mkdir(parents=True)
            for index in range(count):
                pixels = 60 * label + random.integers(0, 100, (70 + index, 91, 3))
                image.fromarray(pixels.astype("uint8")).save(place / f"{index}.png")


def run(command: list[str], folder: Path) -> str:
    paths = os.pathsep.join([str(ROOT / "python" / "src"), str(folder)])
    result = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": paths}
    )
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


def smaller(command: str) -> list[str]:
    for printed, small in SMALLER.items():
        command = command.replace(printed, small)
    assert "--epochs 1 --size 32" in command, "the printed command has changed"
    return [sys.executable, *command.split()[1:]]


@pytest.mark.slow
def test_the_generated_program_has_the_accuracy_that_pytorch_prints(tmp_path: Path, tdc_gen: str) -> None:
    pytest.importorskip("torchvision")
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("no C++ compiler")
    text = TUTORIAL.read_text()
    written = files(text)
    assert set(written) == {"training.py", "dense.py", "compress.py", "accuracy.cpp", "CMakeLists.txt"}
    for name, content in written.items():
        (tmp_path / name).write_text(content)
    write_photos(tmp_path / "photos")
    dense, compress = (smaller(command) for command in commands(text, "python3 "))
    assert f"of {2 * CLASSES} right" in run(dense, tmp_path)
    output = run(compress, tmp_path)
    assert re.search(r"^layer\d\.\d\.conv\d: \(\d+, \d+\)$", output, re.MULTILINE), "no layer was compressed"
    trained = re.search(r"^decomposed, trained: (\d+ of \d+) right", output, re.MULTILINE)
    assert trained is not None
    images = numpy.fromfile(tmp_path / "images.bin", "float32").reshape(2 * CLASSES, 3, 32, 32)
    assert numpy.fromfile(tmp_path / "labels.bin", "int32").tolist() == [0, 0, 1, 1, 2, 2]
    assert torch.tensor(images).isfinite().all()
    program = build(tmp_path / "resnet18" / "generated", tmp_path / "accuracy.cpp")
    (command,) = commands(text, "./build/accuracy ")
    found = run([str(program), *command.split()[1:]], tmp_path)
    assert found.startswith(f"generated: {trained[1]} right"), f"{found}{output}"


def test_the_printed_paths_are_those_of_the_folder() -> None:
    text = TUTORIAL.read_text()
    assert "add_subdirectory(resnet18/generated)" in files(text)["CMakeLists.txt"]
    assert "target_link_libraries(accuracy PRIVATE resnet18::resnet18)" in files(text)["CMakeLists.txt"]
    assert 'tdc.export(model, "resnet18", gpu=options.gpu, name="resnet18")' in files(text)["compress.py"]
    for name, content in files(text).items():
        if name.endswith(".py"):
            compile(content, name, "exec")
