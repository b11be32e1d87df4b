"""A factorised model in PyTorch and the network that is generated from its weights give the same output.

Without a GPU the generated program is compiled unchanged against the headers of the CPU emulation.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import Small, give_statistics, relative, run_generated
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

import tdc_torch as tdc


class Branches(nn.Module):
    """What `Small` lacks of the config language."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, (3, 5), padding=(1, 2), padding_mode="replicate")
        self.wise = nn.Conv2d(8, 8, 3, 1, 2, dilation=2, groups=8, bias=False)
        self.norm = nn.BatchNorm2d(8, eps=1e-3)
        self.slope = nn.PReLU(8)
        self.squeeze = nn.Conv2d(8, 8, 1)
        self.pool = nn.AvgPool2d(3, 2, 1, count_include_pad=False)
        self.shuffle = nn.ChannelShuffle(4)
        self.wide = nn.Conv2d(16, 12, 3, 2, 1)
        self.fc = nn.Linear(12 * 9, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardswish(self.stem(x))
        y = self.slope(self.norm(self.wise(x)))
        y = y * torch.sigmoid(self.squeeze(F.adaptive_avg_pool2d(y, 1)))
        left, right = y.chunk(2, 1)
        z = torch.cat([F.max_pool2d(x, 3, 2, 1), self.pool(torch.cat([right, left], dim=1))], 1)
        z = F.leaky_relu(self.wide(self.shuffle(z)), 0.1)
        return self.fc(F.interpolate(z, size=(3, 3)).flatten(1))


def error(model: nn.Module, image: Tensor, folder: Path) -> float:
    tdc.export(model, folder, image)
    with torch.no_grad():
        expected = model.double()(image.double())
    return relative(run_generated(folder / "generated", image), expected)


def test_a_dense_network(tmp_path: Path, tdc_gen: str) -> None:
    torch.manual_seed(1)
    image = torch.randn(2, 3, 11, 11)
    assert error(give_statistics(Branches(), image), image, tmp_path) < 1e-5


def test_a_factorised_network_after_a_step_of_training(small: Small, tmp_path: Path, tdc_gen: str) -> None:
    image = torch.randn(2, 3, 11, 12)
    give_statistics(small, image)
    plan = tdc.Plan.from_ranks({"conv1": (2, 5), "conv2": (3, 4), "mix": 4, "fc": 3})
    model = tdc.decompose(small, plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(image).square().sum().backward()
    optimizer.step()
    assert error(model, image, tmp_path) < 1e-5
    names = set(load_file(tmp_path / "weights.safetensors"))
    assert {"conv1.first.weight", "conv1.core.weight", "conv1.last.weight", "conv1.bias"} <= names
    assert "conv1.last.bias" not in names
    assert tdc.Plan.from_config(tmp_path / "network.yaml").layers == plan.layers
    restored = tdc.decompose(small, plan).double()
    tdc.load_factors(restored, load_file(tmp_path / "weights.safetensors"))
    with torch.no_grad():
        torch.testing.assert_close(restored(image.double()), model(image.double()), rtol=1e-6, atol=1e-6)


def test_compress_chooses_ranks_within_its_budget(tmp_path: Path, tdc_gen: str) -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1))
    image = torch.randn(1, 3, 16, 16)
    plan = tdc.compress(model, image, flops_cut=0.4, keep=["0"], folder=tmp_path)
    assert list(plan.layers) == ["2"]
    assert plan.predicted["us"] > 0
    assert plan.predicted["flops"] <= 0.6 * 2 * 16 * 16 * 9 * (3 * 32 + 32 * 32)
    assert error(tdc.decompose(model, plan), image, tmp_path / "out") < 1e-5


def test_a_budget_that_cannot_be_kept_is_an_error(small: Small, tdc_gen: str) -> None:
    with pytest.raises(tdc.GeneratorError, match="compress"):
        tdc.compress(small, torch.zeros(1, 3, 16, 16), latency_us=0.01)


def test_a_missing_binary_is_an_error_with_advice(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TDC_GEN", "no-such-program")
    with pytest.raises(tdc.GeneratorError, match="TDC_GEN is no-such-program"):
        tdc.compress(small, torch.zeros(1, 3, 16, 16), flops_cut=0.1)


def test_the_binary_of_the_environment_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TDC_GEN", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    monkeypatch.setattr(tdc.generator.sysconfig, "get_path", lambda name: str(tmp_path / name))
    with pytest.raises(tdc.GeneratorError, match="no tdc-gen on PATH"):
        tdc.generator.find()
    for folder in ("other", "scripts"):
        program = tmp_path / folder / "tdc-gen"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        assert tdc.generator.find() == str(program), "the environment's comes first"


NETWORKS = ("resnet18", "resnet50", "vgg16", "densenet121", "mobilenet_v2")
SIZE = 64


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_torchvision(name: str, tmp_path: Path, tdc_gen: str) -> None:
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(1)
    model = torchvision.models.get_model(name, weights=None)
    if name == "vgg16":
        # Its pool of 7x7 outputs has equal windows from 224 rows on.
        model.avgpool, model.classifier[0] = nn.AdaptiveAvgPool2d(1), nn.Linear(512, 4096)
    image = torch.randn(1, 3, SIZE, SIZE)
    give_statistics(model, torch.randn(4, 3, SIZE, SIZE))
    ranks: dict[str, object] = {}
    for layer, module in model.named_modules():
        if isinstance(module, nn.Conv2d) and module.groups == 1:
            n, c = module.weight.shape[:2]
            if module.kernel_size[0] > 1 and c > 3:
                ranks[layer] = (max(8, c // 2), max(8, n // 2))
            elif module.kernel_size[0] == 1 and min(n, c) >= 256:
                ranks[layer] = min(n, c) // 2
    with torch.no_grad():
        single = relative(model(image), model.double()(image.double()))
    factorised = tdc.decompose(model.float(), tdc.Plan.from_ranks(ranks))
    found = error(factorised, image, tmp_path)
    print(f"{name}: {found:.2e}, dense in fp32 by PyTorch {single:.2e}, {len(ranks)} layers with factors")
    assert found < 1e-5
