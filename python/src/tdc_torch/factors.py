"""Factors of weights: truncated HOSVD, HOOI and truncated SVD, for stacks of layers of one shape.

A weight is N x C x R x S (convolution) or N x C (linear layer). A stack has one more axis in front. Axes of a weight
are counted from 0 here: axis 0 has the N output channels (rank D2), axis 1 the C input channels (rank D1). The paper
writes weights as C x N x R x S, so its mode 1 is axis 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .plan import Ranks


def axis_ranks(shape: Sequence[int], ranks: Ranks) -> dict[int, int]:
    """Ranks by axis. A rank below that of a whole axis constrains the weight, so full ones are left out.

    A low-rank matrix is constrained on its shorter axis alone: the projection on the leading singular vectors of one
    side is the best approximation (Eckart and Young).
    """
    wanted = {0: ranks[1], 1: ranks[0]} if isinstance(ranks, tuple) else {int(shape[1] < shape[0]): ranks}
    return {axis: rank for axis, rank in wanted.items() if rank < shape[axis]}


def unfold(stack: Tensor, axis: int) -> Tensor:
    """The matricisation of each weight of a stack: L x size of the axis x all others."""
    return stack.movedim(axis + 1, 1).flatten(2)


def multiply(stack: Tensor, matrices: Tensor, axis: int) -> Tensor:
    """The mode product of each weight with its matrix (L x new size x old size)."""
    moved = stack.movedim(axis + 1, 1)
    product = torch.matmul(matrices, moved.flatten(2))
    return product.reshape(*product.shape[:2], *moved.shape[2:]).movedim(1, axis + 1)


def leading(stack: Tensor, axis: int, ranks: Sequence[int]) -> Tensor:
    """The leading left singular vectors of each matricisation, as columns in descending order: L x size x max(ranks).

    They are eigenvectors of the Gram matrix, which takes a fraction of the time of an SVD. Weights of a lower rank than
    the largest have zeros in their last columns, so that a stack may have different ranks.
    """
    matrices = unfold(stack, axis)
    most = max(ranks)
    vectors: Tensor = torch.linalg.eigh(matrices @ matrices.mT)[1].flip(-1)[..., :most]
    if min(ranks) < most:
        columns = torch.arange(most, device=stack.device)
        limits = torch.tensor(list(ranks), device=stack.device)
        vectors = vectors * (columns < limits[:, None])[:, None, :]
    return vectors


def bases(stack: Tensor, ranks: Sequence[dict[int, int]], hooi: int = 0) -> dict[int, Tensor]:
    """Orthonormal bases by axis, of truncated HOSVD and, for `hooi` > 0, of as many sweeps of HOOI after it.

    HOSVD takes every basis from the weight itself, as eq. 12 of the paper does. A sweep of HOOI takes each from the
    weight projected on the others.
    """
    axes = sorted({axis for layer in ranks for axis in layer})
    limits = {axis: [layer.get(axis, stack.shape[axis + 1]) for layer in ranks] for axis in axes}
    found = {axis: leading(stack, axis, limits[axis]) for axis in axes}
    if len(axes) > 1:
        for _ in range(hooi):
            for axis in axes:
                rest = stack
                for other in axes:
                    if other != axis:
                        rest = multiply(rest, found[other].mT, other)
                found[axis] = leading(rest, axis, limits[axis])
    return found


@torch.no_grad()
def project(stack: Tensor, ranks: Sequence[dict[int, int]], hooi: int = 0) -> Tensor:
    """The weights of the given ranks that are nearest, up to the factor sqrt(2) of HOSVD: eq. 12."""
    projected = stack
    for axis, basis in bases(stack, ranks, hooi).items():
        projected = multiply(projected, basis @ basis.mT, axis)
    return projected


def project_one(weight: Tensor, ranks: Ranks, hooi: int = 0) -> Tensor:
    """`project` of one weight, in float64, in the dtype of the weight."""
    stack = weight.detach().double()[None]
    return project(stack, [axis_ranks(weight.shape, ranks)], hooi)[0].to(weight.dtype)


@torch.no_grad()
def tucker(weight: Tensor, ranks: tuple[int, int], hooi: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """The factors first (D1 x C x 1 x 1), core (D2 x D1 x R x S) and last (N x D2 x 1 x 1), computed in float64."""
    stack = weight.detach().double()[None]
    full = {0: ranks[1], 1: ranks[0]}
    basis = bases(stack, [full], hooi)
    core = multiply(multiply(stack, basis[0].mT, 0), basis[1].mT, 1)[0]
    first, last = basis[1][0].T[:, :, None, None], basis[0][0][:, :, None, None]
    return first.to(weight.dtype), core.to(weight.dtype), last.to(weight.dtype)


@torch.no_grad()
def low_rank(weight: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """The factors first (rank x C ...) and last (N x rank ...) of a matrix or 1x1 filter, with equal norms."""
    u, s, v = torch.linalg.svd(weight.detach().double().flatten(1), full_matrices=False)
    root = s[:rank].sqrt()
    first, last = root[:, None] * v[:rank], u[:, :rank] * root
    ones = [1] * (weight.dim() - 2)
    return first.reshape(rank, -1, *ones).to(weight.dtype), last.reshape(-1, rank, *ones).to(weight.dtype)
