"""The arms of the experiment. All have the same epochs after the base network, except the untrained ones."""

from __future__ import annotations

import copy
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from data import SIZE, Split, splits
from networks import NETWORKS
from torch import nn
from training import correct, fit

import tdc_torch as tdc

BASE_RATE = 0.1
RATES = (0.01, 0.03, 0.1)


@dataclass(frozen=True)
class Job:
    """One run. `rate` is that after the base network; for the narrow network that of its whole training."""

    network: str
    arm: str
    cut: float
    seed: int
    rate: float
    method: str = "optimal"

    @property
    def key(self) -> str:
        """Name of the file of the result."""
        return f"{self.network}-{self.arm}-{self.method}-{self.cut:g}-{self.rate:g}-{self.seed}"


TUNED = ("dense", "direct", "admm", "control", "narrow")
"""Arms whose rate is chosen on validation images, for each network and cut. `fine` has 0.1 times the base rate."""


def run(job: Job, folder: Path, data: Path, epochs: int, device: str, copies: int) -> None:
    """Runs a job and writes its result, unless it is there already."""
    path = folder / f"{job.key}.json"
    if path.exists():
        return
    torch.set_num_threads(1)
    parts = rendered(data, folder, job.seed, copies)
    # The base network has been trained with the same epochs before.
    model = base(job, folder, parts, epochs, device)
    result: dict[str, object] = {"job": asdict(job)}
    last = max(1, epochs // 5)
    if job.arm == "narrow":
        model = NETWORKS[job.network]((1 - job.cut) ** 0.5).to(device)
        fit(model, parts["train"], 2 * epochs, job.rate, job.seed)
    elif job.arm == "dense":
        fit(model, parts["train"], epochs, job.rate, job.seed)
    else:
        plan = ranks(model, job)
        result["ranks"] = dict(plan.layers)
        result["predicted"] = dict(plan.predicted)
        if job.arm in ("direct", "fine"):
            model = tdc.decompose(model, plan)
            result["untrained"] = correct(model, parts["test"])
            fit(model, parts["train"], epochs, job.rate, job.seed)
        else:
            pulls = plan if job.arm == "admm" else None
            result["residuals"] = fit(model, parts["train"], epochs - last, BASE_RATE, job.seed, pulls)
            result["own_dense"] = correct(model, parts["test"])
            model = tdc.decompose(model, plan)
            result["untrained"] = correct(model, parts["test"])
            fit(model, parts["train"], last, job.rate, job.seed)
    result |= {name: correct(model, parts[name]) for name in ("validation", "test")}
    write(path, result)


def rendered(data: Path, folder: Path, seed: int, copies: int) -> dict[str, Split]:
    """The images of a seed, rendered once."""
    path = folder / f"images-{seed}.pt"
    if not path.exists():
        temporary = path.with_suffix(f".{os.getpid()}")
        torch.save({name: vars(split) for name, split in splits(data, seed, copies).items()}, temporary)
        temporary.rename(path)
    return {name: Split(**fields) for name, fields in torch.load(path).items()}


def base(job: Job, folder: Path, parts: dict, epochs: int, device: str) -> nn.Module:
    """The trained dense network of a seed."""
    path = folder / f"base-{job.network}-{job.seed}.pt"
    torch.manual_seed(job.seed)
    model = NETWORKS[job.network]().to(device)
    if path.exists():
        model.load_state_dict(torch.load(path, map_location=device))
        return model
    fit(model, parts["train"], epochs, BASE_RATE, job.seed)
    temporary = path.with_suffix(f".{os.getpid()}")
    torch.save(model.state_dict(), temporary)
    temporary.rename(path)
    return model


def ranks(model: nn.Module, job: Job) -> tdc.Plan:
    """Ranks in steps of 2, by `tdc-gen compress`, that cut the operations by this fraction."""
    example = torch.zeros(1, 1, SIZE, SIZE, device=next(model.parameters()).device)
    return tdc.compress(copy.deepcopy(model), example, flops_cut=job.cut, method=job.method, step=2, name=job.network)


def write(path: Path, result: dict[str, object]) -> None:
    """All of the file or nothing, so that an interrupted run resumes."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False) as file:
        json.dump(result, file)
    os.replace(file.name, path)
