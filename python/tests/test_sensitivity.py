"""The file that `tdc-gen compress --sensitivity` reads."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pytest
import torch
from conftest import Small
from torch import nn
from torch.nn import functional as F

import tdc_torch as tdc
from tdc_torch.factors import project_one
from tdc_torch.sensitivity import grid

IMAGES = torch.randn(24, 3, 8, 8, generator=torch.Generator().manual_seed(1))
LOADER = [(IMAGES[:16], torch.arange(16) % 5), (IMAGES[16:], torch.arange(8) % 5)]


@pytest.mark.parametrize("criterion", ["loss", "output", "fisher"])
def test_the_file_has_the_schema(small: Small, tmp_path: Path, criterion: str) -> None:
    before = {name: value.clone() for name, value in small.state_dict().items()}
    path = tmp_path / "sensitivity.json"
    result = tdc.sensitivity(small, LOADER, path, criterion=criterion, evaluations=50, progress=False)
    assert json.loads(path.read_text()) == result
    assert [layer["name"] for layer in result["layers"]] == ["conv1", "conv2", "mix", "fc"]
    points = 0
    for layer in result["layers"]:
        axes = [layer["d1"], layer["d2"]] if "d1" in layer else [layer["rank"]]
        for ranks in axes:
            assert all(a < b for a, b in itertools.pairwise(ranks))
        rows = layer["loss"] if len(axes) == 2 else [layer["loss"]]
        assert len(rows) == (len(axes[0]) if len(axes) == 2 else 1)
        assert all(len(row) == len(axes[-1]) for row in rows)
        losses = [value for row in rows for value in row]
        assert all(math.isfinite(value) and value >= 0 for value in losses)
        points += len(losses)
    assert points <= 50
    assert all(torch.equal(before[name], value) for name, value in small.state_dict().items())
    assert small.training
    assert small.fc.weight.grad is None


def test_the_rise_of_the_loss_is_that_of_the_projected_weight(small: Small, tmp_path: Path) -> None:
    found = tdc.sensitivity(small, LOADER[:1], tmp_path / "s", layers=["conv2"], evaluations=9, progress=False)
    layer = found["layers"][0]
    images, labels = LOADER[0]
    small.eval()
    with torch.no_grad():
        dense = F.cross_entropy(small(images), labels)
        small.conv2.weight.copy_(project_one(small.conv2.weight, (layer["d1"][0], layer["d2"][1])))
        rise = (F.cross_entropy(small(images), labels) - dense).item()
    assert layer["loss"][0][1] == pytest.approx(max(0.0, rise), abs=1e-6)


def test_fisher_is_half_the_mean_square_of_the_product(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8))
    images = torch.randn(6, 3, 2, 2)
    found = tdc.sensitivity(
        model, [(images, torch.zeros(6, dtype=torch.long))], tmp_path / "s", criterion="fisher", seed=4, progress=False
    )
    layer = found["layers"][0]
    labels = torch.multinomial(model(images).softmax(1), 1, generator=torch.Generator().manual_seed(4))[:, 0]
    error = project_one(model[1].weight, layer["rank"][0]) - model[1].weight.detach()
    expected = 0.0
    for image, label in zip(images, labels, strict=True):
        model.zero_grad()
        F.cross_entropy(model(image[None]), label[None]).backward()
        expected += 0.5 * (model[1].weight.grad * error).sum().item() ** 2 / 6
    assert layer["loss"][0] == pytest.approx(expected, rel=1e-4)


def test_output_error_falls_with_the_rank(small: Small, tmp_path: Path) -> None:
    found = tdc.sensitivity(small, LOADER, tmp_path / "s", criterion="output", layers=["fc"], progress=False)
    losses = found["layers"][0]["loss"]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > 2 * losses[-1]


@pytest.mark.usefixtures("tdc_gen")
def test_ranks_are_chosen_by_measured_losses(small: Small, tmp_path: Path) -> None:
    path = tmp_path / "sensitivity.json"
    measured = tdc.sensitivity(small, LOADER, path, layers=["conv2"], evaluations=9, progress=False)
    plan = tdc.compress(small, IMAGES[:1], flops_cut=0.05, step=1, sensitivity=path, folder=tmp_path)
    assert list(plan.layers) == ["conv2"]
    assert measured["criterion"] in (tmp_path / "network.yaml").read_text()


def test_grids_end_below_all_channels() -> None:
    assert grid(64, 4) == [4, 8, 16, 32]
    assert grid(3, 4)[-1] < 3
    assert grid(1, 3) == []


def test_wrong_arguments(small: Small, tmp_path: Path) -> None:
    for options, message in [
        ({"criterion": "luck"}, "no criterion luck"),
        ({"layers": ["bn1"]}, "bn1: only"),
        ({"evaluations": 3}, "fewer than the 4 layers"),
    ]:
        with pytest.raises(tdc.TdcError, match=message):
            tdc.sensitivity(small, LOADER, tmp_path / "s", progress=False, **options)
    with pytest.raises(tdc.TdcError, match="no data"):
        tdc.sensitivity(small, [], tmp_path / "s", progress=False)
