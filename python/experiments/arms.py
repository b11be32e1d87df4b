"""The arms of the experiment. All have the same epochs after the base network, except the untrained ones."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, field
from pathlib import Path

import torch
from data import SIZE, Difficulty, Split, splits
from networks import NETWORKS
from results import Job, PlanKey, Record, Results
from torch import nn
from training import Pull, accuracy, correct, fit, logits

import tdc_torch as tdc

BASE_RATE = 0.1
RATES = {
    "dense": (0.1, 0.2, 0.4),
    "direct": (0.03, 0.1, 0.2),
    "admm": (0.01, 0.03, 0.1),
    "control": (0.01, 0.03, 0.1),
    "rising and distilled": (0.01, 0.03, 0.1),
    "narrow": (0.1, 0.2, 0.4),
}
"""Arms whose rate is chosen on validation images, for each network and cut. `fine` has 0.1 times the base rate."""
KAPPA = {"rising": (0.25, 4.0), "rising and distilled": (0.25, 4.0)}
"""Pulls of ADMM at the start and the end of its training that differ from the default."""
DISTILLED = ("distilled", "rising and distilled")
"""Arms that the base network teaches."""
WIDER = {"vgg": (0.75, 0.609375)}
"""Cuts of more narrow networks. The generated code of the first is faster, of the second slower than that of the
network with 84 % of the operations cut, at the batches at which `tdc-gen plan` predicts a gain from compression."""


@dataclass
class Experiment:
    """What all runs share. Its functions are called by threads that hold `training.exclusive`."""

    results: Results
    data: Path
    epochs: int
    device: str
    copies: int
    difficulty: Difficulty
    _parts: dict[int, dict[str, Split]] = field(default_factory=dict)

    def parts(self, seed: int) -> dict[str, Split]:
        """The images of a seed, rendered once and kept on the device."""
        if seed not in self._parts:
            rendered = splits(self.data, seed, self.difficulty, self.copies)
            self._parts[seed] = {name: split.to(self.device) for name, split in rendered.items()}
            if self.device == "cuda":
                torch.cuda.current_stream().synchronize()
        return self._parts[seed]

    def base(self, network: str, seed: int) -> nn.Module:
        """The trained dense network of a seed; trained at the first call, which must have ended before the next."""
        difficulty = f"{self.difficulty.clutter}-{self.difficulty.noise:g}"
        path = self.results.path.parent / f"base-{network}-{seed}-{difficulty}.pt"
        model = new(network, 1.0, seed).to(self.device)
        if path.exists():
            model.load_state_dict(torch.load(path, map_location=self.device))
            return model
        fit(model, self.parts(seed)["train"], self.epochs, BASE_RATE, seed)
        temporary = path.with_suffix(f".{os.getpid()}")
        torch.save(model.state_dict(), temporary)
        temporary.rename(path)
        return model

    def choose_ranks(self, key: PlanKey) -> None:
        """Ranks in steps of 2, by `tdc-gen compress`, that cut the operations by this fraction. Writes the plan.

        The published method has a grid of 32 for ranks, on which small networks have none to choose from: then the
        plan has no layers.
        """
        if key in self.results.plans:
            return
        model = self.base(key.network, key.seed).cpu()
        example = torch.zeros(1, 1, SIZE, SIZE)
        try:
            plan = tdc.compress(model, example, flops_cut=key.cut, method=key.method, step=2, name=key.network)
        except tdc.GeneratorError as error:
            if key.method != "tdc" or "the nearest is" not in str(error):
                raise
            self.results.add_plan(key, {"layers": None, "reason": str(error).splitlines()[-1]})
            return
        self.results.add_plan(key, {"layers": dict(plan.layers), "predicted": dict(plan.predicted)})

    def decomposed(self, model: nn.Module, key: PlanKey) -> nn.Module:
        """The model with the ranks of a plan. Small matrices are factorised faster on the CPU."""
        return tdc.decompose(copy.deepcopy(model).cpu(), self.plan(key)).to(self.device)

    def plan(self, key: PlanKey) -> tdc.Plan:
        """A plan that `choose_ranks` has written."""
        return tdc.Plan.from_ranks(self.results.plans[key]["layers"])

    def run(self, job: Job) -> None:
        """Runs a job and writes its result, unless it is there already."""
        if job in self.results.runs:
            return
        parts, result = self.parts(job.seed), Record()
        if job.arm == "narrow":
            model = new(job.network, (1 - job.cut) ** 0.5, job.seed).to(self.device)
            fit(model, parts["train"], 2 * self.epochs, job.rate, job.seed)
        else:
            model = self._trained(job, parts, result)
        result["train"] = round(accuracy(model, parts["train"]), 4)
        result["validation"] = round(accuracy(model, parts["validation"]), 4)
        result["test"] = correct(model, parts["test"])
        self.results.add_run(job, result)

    def _trained(self, job: Job, parts: dict[str, Split], result: Record) -> nn.Module:
        """The base network after an arm's training; notes in the result what it was before and between."""
        model = self.base(job.network, job.seed)
        taught = logits(model, parts["train"]) if job.arm in DISTILLED else None
        if job.arm == "dense":
            fit(model, parts["train"], self.epochs, job.rate, job.seed)
        elif job.arm in ("direct", "fine", "distilled"):
            model = self.decomposed(model, job.plan)
            result["untrained"] = correct(model, parts["test"])
            fit(model, parts["train"], self.epochs, job.rate, job.seed, taught=taught)
        else:
            last = self.epochs // 2 if job.arm == "half" else max(1, self.epochs // 5)
            pull = None if job.arm == "control" else Pull(self.plan(job.plan), *KAPPA.get(job.arm, ()))
            gaps = fit(model, parts["train"], self.epochs - last, BASE_RATE, job.seed, pull, taught)
            result["largest_residual"] = round(max(gaps.values()), 4) if gaps else None
            result["own_dense"] = correct(model, parts["test"])
            model = self.decomposed(model, job.plan)
            result["untrained"] = correct(model, parts["test"])
            fit(model, parts["train"], last, job.rate, job.seed, taught=taught)
        return model


def new(network: str, width: float, seed: int) -> nn.Module:
    """An untrained network."""
    torch.manual_seed(seed)
    return NETWORKS[network](width)
