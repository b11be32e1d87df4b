"""Finds the layers of a plan in a model, and says why a layer cannot be factorised."""

from __future__ import annotations

from collections import Counter

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrize

from .errors import LayerError
from .modules import FACTORISED, LowRankConv2d, LowRankLinear, TuckerConv2d
from .plan import Plan, Ranks


def unwrap(model: nn.Module) -> nn.Module:
    """The user's module inside DistributedDataParallel, DataParallel, torch.compile and AveragedModel."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(
            model, DistributedDataParallel | nn.DataParallel | torch.optim.swa_utils.AveragedModel
        ):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def dense_layers(model: nn.Module, plan: Plan) -> dict[str, nn.Conv2d | nn.Linear]:
    """The layers of the plan that are still dense, by name. Layers that have factors of these ranks are left out.

    Raises:
        LayerError: names every layer that cannot be factorised, with the reason.
    """
    modules = dict(unwrap(model).named_modules())
    uses = Counter(id(parameter) for module in modules.values() for parameter in module._parameters.values())
    found: dict[str, nn.Conv2d | nn.Linear] = {}
    problems = []
    for name, ranks in plan.layers.items():
        module = modules.get(name)
        if isinstance(module, FACTORISED):
            if module.ranks != ranks:
                problems.append(f"{name}: has factors of ranks {module.ranks} already, the plan says {ranks}")
            continue
        reason = why_not(module, ranks)
        if reason is None and isinstance(module, nn.Conv2d | nn.Linear):
            if uses[id(module.weight)] > 1:
                reason = "shares its weight with another module; factorise a copy of it, or leave it dense"
            else:
                found[name] = module
        if reason is not None:
            problems.append(f"{name}: {reason}")
    if problems:
        raise LayerError(problems)
    return found


def why_not(module: nn.Module | None, ranks: Ranks) -> str | None:
    """Why a module cannot have these ranks; None if it can."""
    if module is None:
        return "the model has no module of this name"
    if not isinstance(module, nn.Conv2d | nn.Linear):
        return f"is {type(module).__name__}, and only Conv2d and Linear can be factorised; leave it dense"
    if parametrize.is_parametrized(module, "weight"):
        return "its weight is parametrised; remove it with torch.nn.utils.parametrize.remove_parametrizations"
    if not isinstance(module.weight, nn.Parameter):
        return "its weight is no parameter but computed by a hook; remove the hook, such as weight_norm"
    if not module.weight.is_floating_point():
        return "its weight is quantised; factorise before quantising"
    if isinstance(module, nn.Conv2d):
        if module.groups != 1:
            return f"has {module.groups} groups, and a factorised layer has one; leave it dense"
        limits = (module.in_channels, module.out_channels)
        is_pointwise = tuple(module.kernel_size) == (1, 1)
    else:
        limits = (module.in_features, module.out_features)
        is_pointwise = True
    if isinstance(ranks, tuple):
        if not isinstance(module, nn.Conv2d):
            return "a linear layer has one rank, not two"
        for rank, limit, which in zip(ranks, limits, ("D1", "D2"), strict=True):
            if rank > limit:
                return f"{which} is {rank}, and the layer has {limit} channels there"
        return None
    if not is_pointwise:
        return "one rank is for linear layers and 1x1 convolutions; larger filters have two, [D1, D2]"
    if ranks > min(limits):
        return f"the rank is {ranks}, and that of its weight is at most {min(limits)}"
    return None


def factorised_layers(model: nn.Module) -> dict[str, TuckerConv2d | LowRankConv2d | LowRankLinear]:
    """The layers of a model that have factors, by name."""
    return {name: module for name, module in unwrap(model).named_modules() if isinstance(module, FACTORISED)}
