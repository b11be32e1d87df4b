"""Losses of Tucker ranks by criteria that `tdc-gen compress` does not have, for its option --sensitivity.

With a weight W, its replacement V by truncated HOSVD, and the scales s = gamma / sqrt(var + eps) of the BatchNorm that follows, the losses are:

- BN-folded weight error, squared: the sum over output channels n of s[n]^2 |W[n] - V[n]|^2
- weight error, squared: |W - V|^2
- output error, squared, scaled by BN: the mean over images, pixels and channels of (s[n] ((W - V) x)[n])^2, by the inputs x of the dense network
- relative output error, squared: the mean of |(W - V) x|^2 by that of |W x|^2, without BatchNorm
- Fisher information, sampled labels: half the mean over images of (g . (W - V))^2, where g is the gradient of the cross entropy of an image, at one
  label that is drawn from the network's own probabilities: the complete matrix of a layer, not only its diagonal
- rise of the loss, one layer at a time: what the mean cross entropy at the true labels gains when V replaces W; 0 if it falls

All arrays of losses are [D1, D2] over the ranks of `grid`.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F


@dataclass
class Layer:
    """A convolution and the BatchNorm that follows it."""

    name: str
    conv: nn.Conv2d
    norm: nn.BatchNorm2d

    @property
    def weight(self):
        return self.conv.weight.detach().double()

    @property
    def scales(self):
        return (self.norm.weight / (self.norm.running_var + self.norm.eps).sqrt()).detach().double()


def grid(channels, step):
    return [*range(step, channels, step), channels]


def bases(weight):
    """U1 [C, C] and U2 [N, N] of the HOSVD of a weight, whose first columns are the bases of any smaller ranks."""
    unfoldings = (weight.transpose(0, 1).flatten(1), weight.flatten(1))
    return [torch.linalg.eigh(unfolding @ unfolding.T).eigenvectors.flip(1) for unfolding in unfoldings]


def projection(basis, rank):
    return basis[:, :rank] @ basis[:, :rank].T


def projected(weight, ranks):
    """The product of the factors of a weight: truncated HOSVD on both channel dimensions."""
    inputs, outputs = (projection(basis, rank) for basis, rank in zip(bases(weight.double()), ranks, strict=True))
    return torch.einsum("ncrs,ci,nk->kirs", weight.double(), inputs, outputs).to(weight.dtype)


def channel_errors(weight, gram, step):
    """e G e^T of each output channel, [D1, D2, N], where e [C R S] is its row of W - V, and G the `gram`."""
    u1, u2 = bases(weight)
    rows = weight.flatten(1)
    whole = ((rows @ gram) * rows).sum(1)
    outputs = [projection(u2, d2) for d2 in grid(len(u2), step)]
    errors = []
    for d1 in grid(len(u1), step):
        # V is the product of `outputs` and this.
        first = torch.einsum("ncrs,ci->nirs", weight, projection(u1, d1)).flatten(1)
        cross, square = first @ gram @ rows.T, first @ gram @ first.T
        errors.append(torch.stack([whole - 2 * (p @ cross).diagonal() + ((p @ square) * p).sum(1) for p in outputs]))
    return torch.stack(errors).clamp(min=0)


def weight_losses(layer, step):
    errors = channel_errors(layer.weight, torch.eye(layer.weight[0].numel(), dtype=torch.double), step)
    return {"BN-folded weight error, squared": errors @ layer.scales**2, "weight error, squared": errors.sum(2)}


def inputs_of(model, layers, images):
    """The input of each layer."""
    inputs = {}
    hooks = [layer.conv.register_forward_pre_hook(lambda _, x, name=layer.name: inputs.update({name: x[0]})) for layer in layers]
    with torch.no_grad():
        model(images)
    for hook in hooks:
        hook.remove()
    return inputs


def output_losses(layer, x, step):
    conv, rows = layer.conv, layer.weight.flatten(1)
    patches = F.unfold(x.double(), conv.kernel_size, padding=conv.padding, stride=conv.stride).transpose(1, 2).flatten(0, 1)
    gram = patches.T @ patches / len(patches)
    errors = channel_errors(layer.weight, gram, step)
    square = ((rows @ gram) * rows).sum()
    scaled = errors @ layer.scales**2 / len(rows)
    return {"output error, squared, scaled by BN": scaled, "relative output error, squared": errors.sum(2) / square}


def sampled_gradients(model, layers, images):
    """The gradient of each image's cross entropy by the weight of each layer, at a label drawn from the network's probabilities."""
    with torch.no_grad():
        probabilities = model(images).softmax(1)
    labels = torch.multinomial(probabilities, 1, generator=torch.Generator().manual_seed(0))

    def loss(weights, image, label):
        return F.cross_entropy(functional_call(model, weights, (image[None],)), label)

    weights = {f"{layer.name}.weight": layer.conv.weight.detach() for layer in layers}
    gradients = vmap(grad(loss), in_dims=(None, 0, 0))(weights, images, labels)
    return {layer.name: gradients[f"{layer.name}.weight"] for layer in layers}


def fisher_losses(layer, gradients, step):
    u1, u2 = bases(layer.weight)
    # In the coordinates of both bases, V is the leading block of W.
    core = torch.einsum("ncrs,ci,nj->jirs", layer.weight, u1, u2)
    gradients = torch.einsum("bncrs,ci,nj->bjirs", gradients.double(), u1, u2)
    kept = (gradients * core).sum((3, 4)).cumsum(1).cumsum(2).transpose(1, 2)
    d1s, d2s = (torch.tensor(grid(len(u), step)) - 1 for u in (u1, u2))
    lost = kept[:, -1:, -1:] - kept[:, d1s][:, :, d2s]
    return {"Fisher information, sampled labels": lost.square().mean(0) / 2}


def cross_entropy(model, images, labels):
    with torch.no_grad():
        return F.cross_entropy(model(images).double(), labels)


def rise_losses(model, layer, images, labels, step):
    dense, conv, (u1, u2) = cross_entropy(model, images, labels), layer.conv, bases(layer.weight)
    kept, weight = conv.weight.data, layer.weight
    rises = []
    for d1 in grid(len(u1), step):
        first = torch.einsum("ncrs,ci->nirs", weight, projection(u1, d1))
        for d2 in grid(len(u2), step):
            conv.weight.data = torch.einsum("nirs,nk->kirs", first, projection(u2, d2)).float()
            rises.append(cross_entropy(model, images, labels) - dense)
    conv.weight.data = kept
    return {"rise of the loss, one layer at a time": torch.stack(rises).clamp(min=0).view(-1, len(grid(len(u2), step)))}


def sensitivities(model, layers, images, labels, step):
    """The contents of the files of losses, by criterion."""
    inputs, gradients = inputs_of(model, layers, images), sampled_gradients(model, layers, images)
    files = {}
    for layer in layers:
        losses = weight_losses(layer, step) | output_losses(layer, inputs[layer.name], step)
        losses |= fisher_losses(layer, gradients[layer.name], step) | rise_losses(model, layer, images, labels, step)
        n, c = layer.weight.shape[:2]
        for criterion, loss in losses.items():
            entry = {"name": layer.name, "d1": grid(c, step), "d2": grid(n, step), "loss": loss.tolist()}
            files.setdefault(criterion, {"criterion": criterion, "layers": []})["layers"].append(entry)
    return files
