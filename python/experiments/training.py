"""One training loop for every arm. On a GPU a step is a CUDA graph: Python launches such small kernels too slowly."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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


UPDATES = 4
"""Dual updates of ADMM in an epoch. Epochs of so few images are short."""
CHUNK = 4000
"""Images of a batch of the evaluation."""
TEMPERATURE = 4.0
"""Of distillation: divides the logits of both networks."""


class Stopped(Exception):  # noqa: N818 (no error: the user has interrupted the experiment)
    """Training was interrupted."""


@dataclass(frozen=True)
class Arithmetic:
    """How networks are computed on the device; the same for all runs of an experiment."""

    bf16: bool = False
    """Autocast to bf16 in training, else fp32 (TF32 in convolutions on a GPU). Evaluation is in fp32."""
    channels_last: bool = False


@dataclass(frozen=True)
class Pull:
    """Training by ADMM towards the ranks of a plan, with kappa from `first` to `last`."""

    plan: tdc.Plan
    first: float = 0.25
    last: float = 0.25


arithmetic = Arithmetic()
stop = threading.Event()
"""Set by an interrupt. Training ends within an epoch."""
exclusive = threading.Lock()
"""Held by every task, except while it replays graphs or waits for a program. On a CPU tasks take turns.

A capture fails if another thread allocates, synchronises the device or destroys a graph meanwhile. PyTorch's global
generator, which initialises networks, and torch.fx also need one thread at a time.
"""
_of_thread = threading.local()


@contextmanager
def others_run() -> Iterator[None]:
    """Other tasks may take the device meanwhile."""
    exclusive.release()
    try:
        yield
    finally:
        exclusive.acquire()


def stream_of_thread() -> torch.cuda.Stream:
    """The thread's own stream. PyTorch has 32, and would give one to two threads if each run asked for another."""
    if not hasattr(_of_thread, "stream"):
        _of_thread.stream = torch.cuda.Stream()
    return _of_thread.stream


class Loop:
    """SGD with Nesterov momentum and a cosine schedule over all steps.

    The number of the step, the order of the images and the rates are on the device, so that every step is the same
    sequence of kernels.
    """

    def __init__(
        self, model: nn.Module, split: Split, epochs: int, rate: float, seed: int, taught: Tensor | None = None
    ) -> None:
        self.model, self.images, self.labels, self.taught = model, split.images, split.labels, taught
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

    def advance(self, count: int, admm: tdc.Admm | None) -> None:
        """Some steps. A dual update of ADMM may fall on the last of them only."""
        eager = 0
        if self.images.is_cuda and self.graph is None:
            eager = min(WARM_UP, count - 1)
            for _ in range(eager):
                self._step()
                _pull(admm)
            self.graph = _captured(self._step)
        if self.graph is None:
            for _ in range(count - 1):
                self._step()
                _pull(admm)
            self._step()
        else:
            with others_run():
                for _ in range(eager, count - 1):
                    self.graph.replay()
                    _pull(admm)
                self.graph.replay()
                torch.cuda.current_stream().synchronize()
        _pull(admm)

    def close(self) -> None:
        """Frees the graph."""
        if self.graph is not None:
            self.graph.reset()
            self.graph = None

    def _step(self) -> None:
        index = self.order.index_select(0, self.at)[0]
        with torch.autocast(self.images.device.type, torch.bfloat16, arithmetic.bf16, cache_enabled=False):
            outputs = self.model(self.images[index])
        loss = F.cross_entropy(outputs.float(), self.labels[index])
        if self.taught is not None:
            loss = 0.5 * loss + 0.5 * distillation(outputs.float(), self.taught[index])
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


def distillation(outputs: Tensor, taught: Tensor) -> Tensor:
    """Divergence of the softened classes from those of the teacher, with gradients of the size of cross entropy's."""
    own, wanted = (F.log_softmax(logits / TEMPERATURE, dim=1) for logits in (outputs, taught))
    return TEMPERATURE**2 * F.kl_div(own, wanted, reduction="batchmean", log_target=True)


def _pull(admm: tdc.Admm | None) -> None:
    if admm:
        admm.step(stepped=True)


def _captured(step: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """A graph of the step, which is not run. All graphs of a thread share a memory pool, as they run in turn."""
    if not hasattr(_of_thread, "pool"):
        # A pool is freed with its last graph; this one stays.
        _of_thread.pool = torch.cuda.graph_pool_handle()
        _of_thread.keeper = _capture(lambda: setattr(_of_thread, "kept", torch.zeros(1, device="cuda")))
    return _capture(step)


def _capture(work: Callable[[], None]) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    torch.cuda.current_stream().synchronize()
    # Other threads replay meanwhile.
    graph.capture_begin(_of_thread.pool, capture_error_mode="thread_local")
    try:
        work()
    finally:
        graph.capture_end()
    return graph


def fit(
    model: nn.Module,
    split: Split,
    epochs: int,
    rate: float,
    seed: int,
    pull: Pull | None = None,
    taught: Tensor | None = None,
) -> dict[str, float]:
    """Trains. Returns the residuals of the layers that ADMM pulls. The caller holds `exclusive`.

    Args:
        model: the network.
        split: the images.
        epochs: of this training.
        rate: at its start.
        seed: of the order of the images.
        pull: trains by ADMM.
        taught: logits of a teacher for the images, for distillation.

    Raises:
        Stopped: the experiment was interrupted.
    """
    if arithmetic.channels_last:
        model.to(memory_format=torch.channels_last)
    loop = Loop(model, split, epochs, rate, seed, taught)
    # Tasks wait for each other between two calls of `advance`: not more often than needed.
    period = max(1, loop.steps // UPDATES) if pull else max(1, loop.steps)
    total = epochs * loop.steps
    admm = None
    if pull:
        # The last update has no pull after it.
        kappa = tdc.rising(pull.first, pull.last, total // period - 1)
        admm = tdc.Admm(model, pull.plan, period, kappa=kappa)
    model.train()
    try:
        for start in range(0, total, period):
            loop.advance(min(period, total - start), admm)
            if stop.is_set():
                raise Stopped
    finally:
        loop.close()
    return admm.residuals() if admm else {}


@torch.no_grad()
def logits(model: nn.Module, split: Split) -> Tensor:
    """The model's outputs in evaluation mode."""
    model.eval()
    return torch.cat([model(part) for part in split.images.split(CHUNK)])


def _right(model: nn.Module, split: Split) -> Tensor:
    return logits(model, split).argmax(1) == split.labels


def correct(model: nn.Module, split: Split) -> str:
    """The number of correct renderings of each base image, one digit for each, in ascending order of the images."""
    right = _right(model, split).cpu()
    return "".join(str(int(right[split.base == base].sum())) for base in split.base.unique())


def accuracy(model: nn.Module, split: Split) -> float:
    """The fraction of correct images."""
    return _right(model, split).double().mean().item()
