"""What differs on a GPU: the device, CUDA graphs, mixed precision, compiled models. Skipped without one."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from conftest import Small
from torch import nn
from torch.nn import functional as F

import tdc_torch as tdc

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

PLAN = tdc.Plan.from_ranks({"conv2": (3, 3), "mix": 4, "fc": 2})
IMAGES = torch.randn(32, 3, 8, 8, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(32) % 5


@pytest.fixture(autouse=True)
def fp32() -> None:
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


def train(model: nn.Module, steps: int, after: Callable[[], object]) -> None:
    device = next(model.parameters()).device
    images, labels = IMAGES.to(device), LABELS.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        after()


def test_training_gives_the_weights_of_the_cpu(small: Small) -> None:
    other = copy.deepcopy(small).cuda()
    admm, of_gpu = tdc.Admm(small, PLAN, steps=3), tdc.Admm(other, PLAN, steps=3)
    start = small.conv2.weight.detach().clone()
    train(small, 9, admm.step)
    train(other, 9, of_gpu.step)
    assert of_gpu.updates == 3
    moved = (small.conv2.weight - start).norm()
    assert (other.conv2.weight.cpu() - small.conv2.weight).norm() < 1e-3 * moved
    for name, gap in admm.residuals().items():
        assert of_gpu.residuals()[name] == pytest.approx(gap, abs=1e-3)


def test_decomposed_models_stay_on_the_device_and_compute_the_same(small: Small) -> None:
    small.eval()
    expected = tdc.decompose(small, PLAN)(IMAGES)
    model = tdc.decompose(small.cuda(), PLAN)
    assert all(parameter.is_cuda for parameter in model.parameters())
    torch.testing.assert_close(model(IMAGES.cuda()).cpu(), expected, rtol=1e-4, atol=1e-5)


def test_a_cuda_graph_of_the_step_trains_as_without_one(small: Small) -> None:
    model = small.cuda()
    eager = copy.deepcopy(model)
    images, labels = IMAGES.cuda(), LABELS.cuda()
    admm, expected = tdc.Admm(model, PLAN, steps=4), tdc.Admm(eager, PLAN, steps=4)
    parameters = list(model.parameters())

    def step() -> None:
        gradients = torch.autograd.grad(F.cross_entropy(model(images), labels), parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-0.05)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
            assert admm.step(stepped=True)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    admm.step(stepped=False)
    for _ in range(9):
        graph.replay()
        assert admm.step(stepped=True)
    assert admm.updates == 3
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.05)
    for _ in range(12):
        optimizer.zero_grad()
        F.cross_entropy(eager(images), labels).backward()
        optimizer.step()
        expected.step()
    torch.testing.assert_close(model.conv2.weight, eager.conv2.weight, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("fused", [False, True])
def test_mixed_precision_with_a_scaler(small: Small, fused: bool) -> None:
    model = small.cuda()
    images, labels = IMAGES.cuda(), LABELS.cuda()
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused)
    admm = tdc.Admm(model, PLAN, steps=2, scaler=scaler if fused else None)
    done = []
    for factor in (1.0, float("inf"), 1.0):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(model(images), labels) * factor
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        done.append(admm.step())
    assert done == [True, False, True]
    assert admm.updates == 1
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_a_compiled_model(small: Small) -> None:
    model = small.cuda()
    compiled = torch.compile(model)
    admm = tdc.Admm(compiled, PLAN, steps=5)
    before = admm.residuals()
    train(compiled, 20, admm.step)
    assert admm.updates == 4
    assert admm.residuals()["conv2"] < before["conv2"]
    model.eval()
    assert tdc.decompose(compiled, PLAN)(IMAGES.cuda()).isfinite().all()


def test_losses_are_those_of_the_cpu(small: Small, tmp_path) -> None:  # type: ignore[no-untyped-def]
    batches = [(IMAGES, LABELS)]
    losses = []
    for device in ("cpu", "cuda"):
        path = tmp_path / f"{device}.json"
        tdc.sensitivity(small.to(device), batches, path, criterion="output", evaluations=12)
        losses.append(path.read_text())
    import json

    cpu, gpu = (json.loads(text)["layers"] for text in losses)
    assert [layer["name"] for layer in cpu] == [layer["name"] for layer in gpu]
    for one, other in zip(cpu, gpu, strict=True):
        flat = [torch.tensor(layer["loss"]).flatten() for layer in (one, other)]
        torch.testing.assert_close(flat[0], flat[1], rtol=1e-3, atol=1e-5)
