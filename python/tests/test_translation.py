"""Models as configs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tdc_torch as tdc


def text(model: nn.Module, *shape: int) -> str:
    return tdc.translate(model, torch.zeros(shape), "net").text()


def test_norms_and_activations_join_the_op_before_them() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8, eps=1e-3), nn.ReLU6())
    assert text(model, 2, 3, 8, 8) == (
        "name: net\ninput: 2x3x8x8\nops:\n"
        '  - {op: conv, name: "0", n: 8, bn: {name: "1", eps: 0.001}, activation: {clip: [0, 6]}}\n'
    )


def test_an_output_that_is_read_twice_stays_as_it_is() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            return torch.sigmoid(y) * y

    assert "activation" not in text(Twice(), 1, 3, 8, 8).splitlines()[3]


def test_everything_unsupported_is_named_at_once() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.ConvTranspose2d(3, 3, 2)
            self.side = nn.Conv2d(3, 3, 3, padding=1, padding_mode="circular")
            self.conv = nn.Conv2d(3, 3, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv(x)
            return self.up(x).sum() + self.side(x) + self.conv(x) + torch.cumsum(x, 1)

    with pytest.raises(tdc.UnsupportedNetworkError) as caught:
        text(Odd(), 1, 3, 8, 8)
    found = "\n".join(caught.value.problems)
    assert len(caught.value.problems) == 4
    for part in ("up (ConvTranspose2d)", "side (Conv2d): pads circularly", "conv (Conv2d): is called twice", "cumsum"):
        assert part in found


def test_data_dependent_control_flow_is_an_error_with_advice() -> None:
    class Branch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(tdc.UnsupportedNetworkError, match="no branch may depend"):
        text(Branch(), 1, 3, 8, 8)


def test_an_inplace_activation_of_a_shared_tensor_is_refused() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            y = x + x
            return self.act(y) + y

    with pytest.raises(tdc.UnsupportedNetworkError, match="in place"):
        text(Shared(), 1, 3, 8, 8)


def test_outputs_have_names_and_ops_without_readers_are_dropped() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = (nn.Conv2d(3, 3, 1) for _ in range(3))

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            F.relu(self.b(x))
            return {"first": self.a(x), "second": self.c(x)}

    found = text(Two(), 1, 3, 8, 8)
    assert "output: {name: first}" in found
    assert "name: b" not in found


def test_the_mode_of_training_is_kept() -> None:
    model = nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3)).train()
    model[1].eval()
    before = model[1].running_mean.clone()
    text(model, 1, 3, 8, 8)
    assert model.training
    assert not model[1].training
    assert torch.equal(model[1].running_mean, before)
