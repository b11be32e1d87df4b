"""One training loop for every arm. On a GPU a step is a CUDA graph: Python launches such small kernels too slowly."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import torch
from data import Split
from torch import Tensor, nn
from torch.nn import functional as F

import tdc_torch as tdc

BATCH = 128
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4
WARM_UP = 3
"""Steps before a graph is captured, in which libraries choose their kernels and allocate workspace."""


class Stopped(Exception):  # noqa: N818 (no error: the user has interrupted the experiment)
    """Training was interrupted."""


stop = threading.Event()
"""Set by an interrupt. Training ends after the epoch."""

_capturing = threading.Lock()
_of_thread = threading.local()


class Loop:
    """SGD with Nesterov momentum and a cosine schedule over all steps.

    The number of the step, the order of the images and the rates are on the device, so that every step is the same
    sequence of kernels.
    """

    def __init__(self, model: nn.Module, split: Split, epochs: int, rate: float, seed: int) -> None:
        self.model, self.images, self.labels = model, split.images, split.labels
        device = split.images.device
        self.steps = len(split.labels) // BATCH
        generator = torch.Generator().manual_seed(seed)
        orders = [torch.randperm(len(split.labels), generator=generator) for _ in range(epochs)]
        total = epochs * self.steps
        self.order = torch.cat([order[: self.steps * BATCH] for order in orders]).reshape(total, BATCH).to(device)
        rates = [0.5 * rate * (1 + math.cos(math.pi * step / total)) for step in range(total)]
        self.factors = torch.tensor([-rate for rate in rates], device=device)
        self.at = torch.zeros(1, dtype=torch.long, device=device)
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.velocities = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.graph: torch.cuda.CUDAGraph | None = None
        self.done = 0

    def step(self) -> None:
        """The next step."""
        if self.graph is not None:
            self.graph.replay()
        elif self.images.is_cuda and self.done >= WARM_UP:
            self.graph = _captured(self._step)
            self.graph.replay()
        else:
            self._step()
        self.done += 1

    def _step(self) -> None:
        index = self.order.index_select(0, self.at)[0]
        loss = F.cross_entropy(self.model(self.images[index]), self.labels[index])
        gradients = list(torch.autograd.grad(loss, self.parameters))
        with torch.no_grad():
            self._update(gradients)
        self.at += 1

    def _update(self, gradients: list[Tensor]) -> None:
        torch._foreach_add_(gradients, self.parameters, alpha=WEIGHT_DECAY)
        torch._foreach_mul_(self.velocities, MOMENTUM)
        torch._foreach_add_(self.velocities, gradients)
        torch._foreach_add_(gradients, self.velocities, alpha=MOMENTUM)
        torch._foreach_mul_(gradients, self.factors.index_select(0, self.at).reshape(()))
        torch._foreach_add_(self.parameters, gradients)


def _captured(step: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """A graph of the step, which is not run. All graphs of a thread share a memory pool, as they run in turn."""
    with _capturing:
        if not hasattr(_of_thread, "pool"):
            # A pool is freed with its last graph; this one stays.
            _of_thread.pool = torch.cuda.graph_pool_handle()
            _of_thread.keeper = torch.cuda.CUDAGraph()
            _of_thread.keeper.capture_begin(_of_thread.pool, capture_error_mode="thread_local")
            _of_thread.kept = torch.zeros(1, device="cuda")
            _of_thread.keeper.capture_end()
        graph = torch.cuda.CUDAGraph()
        # Other threads may allocate meanwhile.
        graph.capture_begin(_of_thread.pool, capture_error_mode="thread_local")
        step()
        graph.capture_end()
    return graph


def fit(
    model: nn.Module, split: Split, epochs: int, rate: float, seed: int, plan: tdc.Plan | None = None
) -> dict[str, float]:
    """Trains; with a plan also by ADMM. Returns the residuals of the plan's layers.

    Raises:
        Stopped: the experiment was interrupted.
    """
    loop = Loop(model, split, epochs, rate, seed)
    admm = tdc.Admm(model, plan, loop.steps) if plan else None
    model.train()
    for _ in range(epochs):
        for _ in range(loop.steps):
            loop.step()
            if admm:
                admm.step(stepped=True)
        if split.images.is_cuda:
            torch.cuda.current_stream().synchronize()
        if stop.is_set():
            raise Stopped
    return admm.residuals() if admm else {}


@torch.no_grad()
def correct(model: nn.Module, split: Split) -> str:
    """The number of correct renderings of each base image, one digit for each, in ascending order of the images."""
    model.eval()
    right = torch.cat([model(part).argmax(1) for part in split.images.split(1000)]) == split.labels
    right = right.cpu()
    return "".join(str(int(right[split.base == base].sum())) for base in split.base.unique())


@torch.no_grad()
def accuracy(model: nn.Module, split: Split) -> float:
    """The fraction of correct images."""
    model.eval()
    right = torch.cat([model(part).argmax(1) for part in split.images.split(1000)]) == split.labels
    return right.double().mean().item()
