"""Training under rank constraints by the alternating direction method of multipliers (TDC paper, eqs. 7-12)."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
import torch.distributed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook

from .errors import LayerError, TdcError
from .factors import axis_ranks, project
from .layers import dense_layers
from .plan import Plan

Schedule: TypeAlias = float | Callable[[int], float]
"""A number, or a function of the number of dual updates so far."""


class Admm:
    """Pulls the weights K of the layers of a plan to their ranks while the user's own loop trains the model.

    Call `step` after each step of the optimiser. It moves K by the fraction kappa / steps towards Z - U and, in every
    `steps`-th call, updates Z = proj(K + U) and U = U + K - Z (eq. 12 and Algorithm 1, which write Z as K-hat and U as
    M). The pull is no gradient: it depends neither on the optimiser nor on the learning rate. With `rho` the
    published penalty takes its place: call `add_gradients` before the optimiser's step.

    Args:
        model: may be wrapped by DistributedDataParallel or torch.compile. Move it to its device first.
        plan: the ranks.
        steps: optimiser steps between two dual updates, such as those of an epoch.
        kappa: the pulls of one period close about 1 - exp(-kappa) of the distance to Z - U. It is cut off at `steps`,
            where each pull closes all of it. `rising` is a schedule that ends near the ranks.
        rho: coefficient of the penalty rho / 2 ||K - Z + U||^2 of eq. 9, instead of kappa.
        hooi: sweeps of HOOI in each projection; 0 is truncated HOSVD.
        scaler: the GradScaler, needed with fused optimisers only; `step` then comes after `scaler.update()`.

    Raises:
        LayerError: a layer cannot be factorised or trained so; names all of them.
    """

    def __init__(
        self,
        model: nn.Module,
        plan: Plan,
        steps: int,
        *,
        kappa: Schedule = 0.25,
        rho: Schedule | None = None,
        hooi: int = 0,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        if steps < 1:
            raise TdcError(f"steps is {steps}; it is the number of optimiser steps between two dual updates")
        self.steps, self.kappa, self.rho, self.hooi = steps, kappa, rho, hooi
        self._group = model.process_group if isinstance(model, DistributedDataParallel) else None
        layers = dense_layers(model, plan)
        _refuse_untrainable(layers)
        self._names = list(layers)
        self._weights: list[Tensor] = [layer.weight for layer in layers.values()]
        self._ranks = [axis_ranks(layer.weight.shape, plan.layers[name]) for name, layer in layers.items()]
        self._count = 0
        self._updates = 0
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._scale = self._scaler.get_scale() if self._scaler else 1.0
        self._duals = [torch.zeros_like(weight) for weight in self._weights]
        self._z = self._projections([weight.detach().clone() for weight in self._weights])
        # In the memory format of the weights, so that one kernel pulls all layers.
        self._targets = [torch.empty_like(weight).copy_(z) for weight, z in zip(self._weights, self._z, strict=True)]
        self._versions = self._current_versions()
        self._stepped = False
        self._watch_optimizers()

    @property
    def updates(self) -> int:
        """Dual updates so far."""
        return self._updates

    @torch.no_grad()
    def step(self, *, stepped: bool | None = None) -> bool:
        """Pulls the weights, and updates Z and U in every `steps`-th call. Returns whether it did anything.

        It does nothing if no optimiser has changed the weights since the last call, as after a step that a GradScaler
        has skipped or between the steps of gradient accumulation. A fused optimiser decides on the device, so `scaler`
        must say that it has skipped the step.

        Args:
            stepped: whether the optimiser has stepped. Needed only where that cannot be found out: if the step was
                replayed as a part of a CUDA graph.
        """
        if not stepped and (stepped is False or self._was_skipped()):
            return False
        if self.rho is None and self._weights:
            torch._foreach_lerp_(self._weights, self._targets, self._penalty() / self.steps)
        self._count += 1
        if self._count % self.steps == 0:
            self._update()
        self._forget_changes()
        return True

    @torch.no_grad()
    def add_gradients(self) -> None:
        """Adds rho (K - Z + U), the gradient of the penalty of eq. 9, to the gradients.

        Call it before the optimiser's step; with a GradScaler after `scaler.unscale_`, with accumulation once.

        Raises:
            TdcError: `rho` was not given.
        """
        if self.rho is None:
            raise TdcError("add_gradients is the published penalty; give Admm a rho, which replaces the pull of step")
        rho = self._penalty()
        for weight, target in zip(self._weights, self._targets, strict=True):
            if weight.grad is not None:
                weight.grad.add_(weight - target, alpha=rho)

    @torch.no_grad()
    def residuals(self) -> dict[str, float]:
        """The gap of each layer to its ranks, ||K - proj(K)|| / ||K||: what `decompose` would lose now."""
        projections = self._projections([weight.detach() for weight in self._weights])
        gaps = {}
        for name, weight, near in zip(self._names, self._weights, projections, strict=True):
            gaps[name] = ((weight - near).norm() / weight.norm()).item()
        return gaps

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs for the same numbers, beside the states of model and optimiser."""
        layers = {
            name: {"z": z.clone(), "u": u.clone()} for name, z, u in zip(self._names, self._z, self._duals, strict=True)
        }
        return {"count": self._count, "updates": self._updates, "scale": self._scale, "layers": layers}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resumes. Load the state of the model first.

        Raises:
            TdcError: the state is of other layers.
        """
        if list(state["layers"]) != self._names:
            raise TdcError(f"the state is of the layers {list(state['layers'])}, the plan has {self._names}")
        self._count, self._updates, self._scale = state["count"], state["updates"], state["scale"]
        for index, layer in enumerate(state["layers"].values()):
            self._z[index].copy_(layer["z"])
            self._duals[index].copy_(layer["u"])
        self._set_targets()
        self._forget_changes()

    def _penalty(self) -> float:
        """The weight of the pull now: rho or kappa."""
        if self.rho is not None:
            return _at(self.rho, self._updates)
        return min(float(self.steps), _at(self.kappa, self._updates))

    def _update(self) -> None:
        """Eq. 12 and line 10 of Algorithm 1.

        U is the dual variable divided by the weight of the pull, so it is divided again where a schedule changes the
        weight (Boyd et al., "Distributed Optimization and Statistical Learning via ADMM", 2011, section 3.4.1). A
        schedule that is 0 before or after does not scale it.
        """
        self._z = self._projections([w + u for w, u in zip(self._weights, self._duals, strict=True)])
        for weight, z, dual in zip(self._weights, self._z, self._duals, strict=True):
            dual.add_(weight).sub_(z)
        before = self._penalty()
        self._updates += 1
        after = self._penalty()
        if before != after and before > 0 and after > 0:
            for dual in self._duals:
                dual.mul_(before / after)
        self._set_targets()

    def _set_targets(self) -> None:
        for target, z, dual in zip(self._targets, self._z, self._duals, strict=True):
            torch.sub(z, dual, out=target)

    def _projections(self, weights: list[Tensor]) -> list[Tensor]:
        """Projects layers of one shape together. With DistributedDataParallel all processes get those of the first."""
        stacks = defaultdict(list)
        for index, weight in enumerate(weights):
            stacks[weight.shape, tuple(self._ranks[index]), weight.device, weight.dtype].append(index)
        projected = list(weights)
        for indices in stacks.values():
            # Autocast would compute the Gram matrices in half precision.
            with torch.autocast(weights[indices[0]].device.type, enabled=False):
                stack = torch.stack([weights[index] for index in indices])
                near = project(stack, [self._ranks[index] for index in indices], self.hooi).contiguous()
            if self._group is not None:
                source = torch.distributed.get_global_rank(self._group, 0)
                torch.distributed.broadcast(near, source, group=self._group)
            for index, layer in zip(indices, near, strict=True):
                projected[index] = layer.clone()
        return projected

    def _was_skipped(self) -> bool:
        if self._scaler is not None:
            # The scale falls if and only if the step was skipped.
            before, self._scale = self._scale, self._scaler.get_scale()
            if self._scale < before:
                self._forget_changes()
                return True
        # Fused optimisers leave the versions as they are, compiled and foreign ones need not call hooks.
        return bool(self._weights) and not self._stepped and self._versions == self._current_versions()

    def _forget_changes(self) -> None:
        self._stepped = False
        self._versions = self._current_versions()

    def _watch_optimizers(self) -> None:
        """Notes every step of an optimiser that has one of the weights. The hook goes with this object."""
        weak, identities = weakref.ref(self), {id(weight) for weight in self._weights}

        def note(optimizer: torch.optim.Optimizer, *_: object) -> None:
            admm = weak()
            if admm is not None and any(
                id(p) in identities for group in optimizer.param_groups for p in group["params"]
            ):
                admm._stepped = True

        handle = register_optimizer_step_post_hook(note)
        weakref.finalize(self, handle.remove)

    def _current_versions(self) -> list[int]:
        """A tensor's version counts its changes in place; reading it does not wait for the device."""
        return [weight._version for weight in self._weights]


def _at(schedule: Schedule, updates: int) -> float:
    return schedule(updates) if callable(schedule) else schedule


def rising(first: float, last: float, updates: int) -> Callable[[int], float]:
    """A schedule of kappa or rho for `Admm`: from `first` to `last` in `updates` dual updates, by the same factor each.

    A pull that grows brings the weights to ranks that a constant one does not reach.
    """
    if not (first > 0 and last > 0):
        raise TdcError(f"a schedule from {first} to {last}: both must be above 0")
    return lambda update: first * (last / first) ** min(1.0, update / max(1, updates))


def _refuse_untrainable(layers: dict[str, nn.Conv2d | nn.Linear]) -> None:
    problems = []
    for name, layer in layers.items():
        if not layer.weight.requires_grad:
            problems.append(f"{name}: is frozen; set requires_grad, or leave it out of the plan and use decompose")
        if layer.weight.dtype not in (torch.float32, torch.float64):
            dtype = str(layer.weight.dtype).removeprefix("torch.")
            problems.append(
                f"{name}: a pull is smaller than the rounding of {dtype}; keep weights in fp32, use autocast"
            )
    if problems:
        raise LayerError(problems)
