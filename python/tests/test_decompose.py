"""Decomposed models."""

from __future__ import annotations

import pytest
import torch
from conftest import Small
from torch import nn

import tdc_torch as tdc


def test_full_ranks_give_the_original_network(small: Small) -> None:
    small.double().eval()
    model = tdc.decompose(small, tdc.Plan.from_ranks({"conv1": (3, 10), "conv2": (10, 10), "mix": 10, "fc": 5}))
    assert isinstance(model.get_submodule("conv1"), tdc.TuckerConv2d)
    assert isinstance(model.get_submodule("mix"), tdc.LowRankConv2d)
    assert isinstance(model.get_submodule("fc"), tdc.LowRankLinear)
    image = torch.randn(2, 3, 9, 11, dtype=torch.float64)
    torch.testing.assert_close(model(image), small(image))


def test_low_ranks_do_not_and_the_original_stays(small: Small) -> None:
    small.eval()
    image = torch.randn(2, 3, 9, 11)
    before = small(image)
    model = tdc.decompose(small, tdc.Plan.from_ranks({"conv2": (2, 2)}))
    assert not torch.allclose(model(image), before)
    assert torch.equal(small(image), before)


@pytest.mark.parametrize("stride", [1, 2])
def test_strides_dilation_and_padding_are_those_of_the_layer(stride: int) -> None:
    layer = nn.Conv2d(6, 8, (3, 5), stride, (2, 1), dilation=(2, 1), padding_mode="reflect").double()
    model = tdc.decompose(nn.Sequential(layer), tdc.Plan.from_ranks({"0": (6, 8)}))
    image = torch.randn(1, 6, 13, 12, dtype=torch.float64)
    torch.testing.assert_close(model(image), layer(image))


def test_all_layers_that_cannot_be_factorised_are_named_at_once() -> None:
    model = nn.ModuleDict(
        {
            "grouped": nn.Conv2d(4, 4, 3, groups=2),
            "norm": nn.BatchNorm2d(4),
            "up": nn.ConvTranspose2d(4, 4, 2),
            "wide": nn.Conv2d(4, 4, 3),
            "line": nn.Linear(4, 8),
            "pair": nn.Linear(4, 8),
            "hooked": nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 3)),
            "a": nn.Conv2d(4, 4, 3),
            "b": nn.Conv2d(4, 4, 3),
        }
    )
    model["b"].weight = model["a"].weight
    ranks = dict.fromkeys(model, (2, 2)) | {"wide": (2, 5), "line": 5, "gone": 1}
    with pytest.raises(tdc.LayerError) as caught:
        tdc.Admm(model, tdc.Plan.from_ranks(ranks), steps=1)
    expected = {
        "grouped": "2 groups",
        "norm": "is BatchNorm2d",
        "up": "is ConvTranspose2d",
        "wide": "D2 is 5",
        "line": "at most 4",
        "pair": "one rank, not two",
        "hooked": "parametrised",
        "a": "shares its weight",
        "b": "shares its weight",
        "gone": "no module",
    }
    problems = dict(problem.split(": ", 1) for problem in caught.value.problems)
    assert problems.keys() == expected.keys()
    for name, reason in expected.items():
        assert reason in problems[name]


def test_factors_are_kept_and_other_ranks_refused(small: Small) -> None:
    plan = tdc.Plan.from_ranks({"conv2": (4, 4)})
    model = tdc.decompose(small, plan)
    again = tdc.decompose(model, plan)
    assert torch.equal(again.get_parameter("conv2.core.weight"), model.get_parameter("conv2.core.weight"))
    assert tdc.Admm(model, plan, steps=1).residuals() == {}
    with pytest.raises(tdc.LayerError, match=r"conv2: has factors of ranks \(4, 4\)"):
        tdc.decompose(model, tdc.Plan.from_ranks({"conv2": (4, 5)}))
