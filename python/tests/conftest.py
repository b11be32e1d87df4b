"""Networks and helpers of several tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[2]


class Small(nn.Module):
    """A convolution, a residual, a 1x1 convolution and a linear layer, all of odd sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 10, 3, 2, 1)
        self.bn1 = nn.BatchNorm2d(10)
        self.conv2 = nn.Conv2d(10, 10, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(10)
        self.mix = nn.Conv2d(10, 14, 1)
        self.fc = nn.Linear(14, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)) + x)
        return self.fc(self.mix(x).mean((2, 3)))


@pytest.fixture
def small() -> Small:
    torch.manual_seed(3)
    return Small()


@pytest.fixture
def tdc_gen() -> str:
    """The binary; tests that need it are skipped without one."""
    built = ROOT / "target" / "release" / "tdc-gen"
    found = os.environ.get("TDC_GEN") or shutil.which("tdc-gen") or (str(built) if built.exists() else None)
    if found is None:
        pytest.skip("no tdc-gen: set TDC_GEN or build it")
    os.environ["TDC_GEN"] = found
    return found


def build(folder: Path, main: Path) -> Path:
    """The program of a generated folder and a main file.

    It is compiled by nvcc where there is a GPU, else against the headers of the CPU emulation.
    """
    gpu = torch.cuda.is_available()
    compiler = shutil.which("nvcc" if gpu else os.environ.get("CXX", "g++"))
    if compiler is None:
        pytest.skip("no compiler")
    sources = [main, *(folder / "src").glob("*.cu"), *(folder / "src" / "units").glob("*.cu")]
    headers = ROOT / "generator" / "src" / "compile" / "cpu"
    flags, options = ["-std=c++17", f"-I{folder / 'include'}"], ["-pthread"]
    if gpu:
        flags, options = [*flags, "-O3", "-arch=native"], ["-arch=native"]
    else:
        flags += ["-O1", "-march=native", "-pthread", "-w", f"-I{headers}", "-x", "c++"]

    def compiled(source: Path) -> Path:
        result = source.with_suffix(".o")
        subprocess.run([compiler, *flags, "-c", source, "-o", result], check=True)
        return result

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, sources))
    program = folder / "program"
    subprocess.run([compiler, *options, *objects, "-o", program], check=True)
    return program


def run_generated(folder: Path, image: Tensor) -> Tensor:
    """The output of a generated program for a batch of images."""
    program = build(folder, folder / "main.cu")
    (folder / "input.bin").write_bytes(image.contiguous().numpy().tobytes())
    files = ["--weights", "weights.bin", "--input", "input.bin", "--output", "output.bin"]
    subprocess.run([program, *files, "--runs", "0"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return torch.frombuffer(bytearray((folder / "output.bin").read_bytes()), dtype=torch.float32)


def give_statistics(model: nn.Module, image: Tensor) -> nn.Module:
    """Random BatchNorm parameters and the statistics of one batch, so that every layer matters."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.2, 0.2)
            module.momentum = 1.0
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    model.train()
    with torch.no_grad():
        model(image)
    return model.eval()


def relative(found: Tensor, expected: Tensor) -> float:
    expected = expected.double().flatten()
    return ((found.double().flatten() - expected).norm() / expected.norm()).item()
