"""One training loop for every arm."""

from __future__ import annotations

import torch
from data import Split
from torch import nn
from torch.nn import functional as F

import tdc_torch as tdc


def fit(
    model: nn.Module, split: Split, epochs: int, rate: float, seed: int, plan: tdc.Plan | None = None, batch: int = 128
) -> dict[str, float]:
    """SGD with momentum and a cosine schedule; with a plan also ADMM. Returns the residuals of the plan's layers."""
    device = next(model.parameters()).device
    images, labels = split.images.to(device), split.labels.to(device)
    steps = len(labels) // batch
    torch.manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, epochs * steps))
    admm = tdc.Admm(model, plan, steps) if plan else None
    model.train()
    for _ in range(epochs):
        for indices in torch.randperm(len(labels), device=device)[: steps * batch].split(batch):
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(model(images[indices]), labels[indices]).backward()
            optimizer.step()
            schedule.step()
            if admm:
                admm.step()
    return admm.residuals() if admm else {}


@torch.no_grad()
def correct(model: nn.Module, split: Split) -> dict[int, float]:
    """The fraction of correct renderings of each base image."""
    device = next(model.parameters()).device
    model.eval()
    right = torch.cat([model(part.to(device)).argmax(1).cpu() for part in split.images.split(1000)]) == split.labels
    return {int(base): right[split.base == base].double().mean().item() for base in split.base.unique()}
