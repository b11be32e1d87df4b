"""Factors against an independent SVD with einsum, at odd sizes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tdc_torch.factors import axis_ranks, low_rank, project, project_one, tucker


def reference(weight: Tensor, d1: int, d2: int) -> Tensor:
    w = weight.double()
    n, c = w.shape[:2]
    u2 = torch.linalg.svd(w.reshape(n, -1), full_matrices=False)[0][:, :d2]
    u1 = torch.linalg.svd(w.permute(1, 0, 2, 3).reshape(c, -1), full_matrices=False)[0][:, :d1]
    core = torch.einsum("ncrs,nb,ca->bars", w, u2, u1)
    return torch.einsum("bars,nb,ca->ncrs", core, u2, u1)


def product(first: Tensor, core: Tensor, last: Tensor) -> Tensor:
    return torch.einsum("ac,bars,nb->ncrs", first[..., 0, 0], core, last[..., 0, 0])


@pytest.mark.parametrize(("shape", "ranks"), [((7, 5, 3, 3), (2, 3)), ((5, 9, 1, 5), (9, 2)), ((31, 3, 2, 3), (3, 17))])
def test_hosvd_is_that_of_svd(shape: tuple[int, ...], ranks: tuple[int, int]) -> None:
    weight = torch.randn(shape, dtype=torch.float64)
    expected = reference(weight, *ranks)
    torch.testing.assert_close(project_one(weight, ranks), expected)
    factors = tucker(weight, ranks)
    assert [tuple(f.shape) for f in factors] == [
        (ranks[0], shape[1], 1, 1),
        (ranks[1], ranks[0], *shape[2:]),
        (shape[0], ranks[1], 1, 1),
    ]
    torch.testing.assert_close(product(*factors), expected)


def test_a_stack_with_different_ranks_is_projected_as_each_weight_is() -> None:
    stack = torch.randn(4, 7, 5, 3, 3, dtype=torch.float64)
    ranks = [(2, 3), (5, 3), (4, 7), (1, 1)]
    together = project(stack, [axis_ranks((7, 5, 3, 3), r) for r in ranks], hooi=1)
    for weight, near, own in zip(stack, together, ranks, strict=True):
        torch.testing.assert_close(near, project_one(weight, own, hooi=1))


def test_projecting_twice_changes_nothing_and_full_ranks_neither() -> None:
    weight = torch.randn(6, 8, 3, 3)
    once = project_one(weight, (3, 4))
    torch.testing.assert_close(project_one(once, (3, 4)), once, rtol=1e-5, atol=1e-6)
    assert torch.equal(project_one(weight, (8, 6)), weight)


def test_hooi_is_nearer() -> None:
    weight = torch.randn(12, 10, 3, 3, dtype=torch.float64)
    errors = [(weight - project_one(weight, (3, 3), sweeps)).norm().item() for sweeps in (0, 1, 5)]
    assert errors[0] > errors[1] > errors[2]


@pytest.mark.parametrize("shape", [(7, 12), (12, 7), (9, 5, 1, 1)])
def test_low_rank_is_the_best_approximation(shape: tuple[int, ...]) -> None:
    weight = torch.randn(shape, dtype=torch.float64)
    first, last = low_rank(weight, 3)
    found = last.flatten(1) @ first.flatten(1)
    singular = torch.linalg.svdvals(weight.flatten(1))
    error = (weight.flatten(1) - found).norm()
    torch.testing.assert_close(error, singular[3:].norm())
    torch.testing.assert_close(project_one(weight, 3).flatten(1), found)
