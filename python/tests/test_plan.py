"""Plans from mappings, configs and checkpoints."""

from __future__ import annotations

import pytest
import torch
from conftest import ROOT, Small

import tdc_torch as tdc
from tdc_torch.yaml_text import flow, parse


def test_a_config_gives_its_ranks() -> None:
    plan = tdc.Plan.from_config(ROOT / "configs" / "resnet18.yaml")
    assert plan.layers["layer1.0.conv1"] == (64, 32)
    assert plan.layers["layer4.1.conv2"] == (192, 160)
    assert len(plan.layers) == 16
    assert plan.input_shape == (1, 3, 224, 224)


def test_block_style_comments_and_quotes() -> None:
    text = """
name: net  # a comment
input: [1, 3, 8, 8]
ops:
- op: conv
  name: "0"
  ranks:
    - 2
    - 3
- {op: linear, name: 'f c', # not so
   rank: 4, activation: {clip: [0, .inf]}}
"""
    assert tdc.Plan.from_config_text(text).layers == {"0": (2, 3), "f c": 4}


def test_the_shape_of_an_input_in_bytes_is_read() -> None:
    text = "name: x\ninput: {shape: 4x3x9x7, dtype: uint8, layout: nhwc}\nops: []\n"
    assert tdc.Plan.from_config_text(text).input_shape == (4, 3, 9, 7)


@pytest.mark.parametrize(
    "value", [{"a": [1, -2.5, True], "b": "yes", "c": {"d": "0"}}, ["x.y-z", float("inf"), "a: b"]]
)
def test_flow_style_reads_back(value: object) -> None:
    assert parse(f"key: {flow(value)}") == {"key": value}


@pytest.mark.parametrize("ranks", [0, (1, 2, 3), (1, 0), "8", True])
def test_bad_ranks_are_refused(ranks: object) -> None:
    with pytest.raises(tdc.ConfigError, match="conv1: ranks are"):
        tdc.Plan.from_ranks({"conv1": ranks})


def test_errors_of_configs_have_the_line() -> None:
    with pytest.raises(tdc.ConfigError, match="line 2"):
        tdc.Plan.from_config_text("name: x\nops: [{op: conv name: y]\n")


def test_a_checkpoint_with_factors_is_recognised(small: Small) -> None:
    ranks = {"conv1": (3, 4), "mix": 5, "fc": 2}
    state = tdc.decompose(small, tdc.Plan.from_ranks(ranks)).state_dict()
    assert tdc.Plan.from_state_dict(state).layers == ranks
    copy = tdc.decompose(small, tdc.Plan.from_state_dict(state))
    copy.load_state_dict({name: torch.zeros_like(value) for name, value in state.items()})
