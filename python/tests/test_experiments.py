"""The experiment's own code: data, training loop, results, page, and what an interrupt leaves."""

from __future__ import annotations

import copy
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest
import torch
from conftest import ROOT, Small
from torch.nn import functional as F

EXPERIMENTS = ROOT / "python" / "experiments"
sys.path.insert(0, str(EXPERIMENTS))

import arms  # noqa: E402
import data  # noqa: E402
import join  # noqa: E402
import report  # noqa: E402
import training  # noqa: E402
from results import Job, LatencyKey, PlanKey, Results  # noqa: E402

FIXTURE = Path(__file__).parent / "fixtures" / "results.jsonl"


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """A file as scikit-learn's digits: 770 images, each of one grey level that says its number."""
    path = tmp_path / "digits.npz"
    images = numpy.broadcast_to(numpy.arange(770)[:, None, None] % 16 + 1, (770, 8, 8))
    numpy.savez_compressed(path, images=images.astype("uint8"), labels=(numpy.arange(770) % 10).astype("uint8"))
    return path


def test_images_are_rendered_whole_and_no_base_image_is_in_two_splits(digits: Path) -> None:
    parts = data.splits(digits, 0, data.Difficulty(0, 0.0), 3)
    assert [len(parts[name].labels) for name in ("train", "validation", "test")] == [60, 1500, 3000]
    bases = [set(part.base.tolist()) for part in parts.values()]
    assert len(set.union(*bases)) == sum(map(len, bases)) == 770
    part = parts["test"]
    assert torch.equal(part.labels, part.base % 10)
    pixels = part.images * 0.55 + 0.15
    levels = (part.base % 16 + 1) / 16
    # Without noise and clutter a digit of this level covers a square of 10 to 14 pixels.
    torch.testing.assert_close(pixels.amax((1, 2, 3)), levels)
    sides = (pixels[:, 0] > 1e-3).sum((1, 2)).double().sqrt()
    assert sides.unique().tolist() == [10, 11, 12, 13, 14]


def test_rendering_depends_on_the_seed_alone(digits: Path) -> None:
    one, same, other = (data.splits(digits, seed, data.Difficulty(), 1)["test"].images for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert 0.2 < (one[:, :, 0, 0] * 0.55).std() < 0.5


def test_the_loop_is_sgd_with_nesterov_momentum_and_a_cosine_schedule(small: Small) -> None:
    generator = torch.Generator().manual_seed(0)
    split = data.Split(torch.randn(300, 3, 5, 7, generator=generator), torch.arange(300) % 5, torch.arange(300))
    expected = copy.deepcopy(small)
    with training.exclusive:
        training.fit(small, split, 3, 0.1, seed=4)
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
    order = torch.Generator().manual_seed(4)
    expected.train()
    for _ in range(3):
        for index in torch.randperm(300, generator=order)[:256].split(128):
            optimizer.zero_grad()
            F.cross_entropy(expected(split.images[index]), split.labels[index]).backward()
            optimizer.step()
            schedule.step()
    for found, right in zip(small.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)


def test_correct_counts_the_renderings_of_each_base_image() -> None:
    # The model answers with the class that a pixel names.
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 4, bias=False))
    with torch.no_grad():
        model[1].weight.copy_(torch.eye(4))
    answers = torch.tensor([2, 3, 1, 2, 0, 2])
    images = F.one_hot(answers, 4).float().reshape(6, 1, 2, 2)
    split = data.Split(images, torch.tensor([2, 1, 1, 2, 0, 3]), torch.tensor([30, 7, 7, 30, 8, 8]))
    assert training.correct(model, split) == "112"
    assert training.accuracy(model, split) == pytest.approx(4 / 6)


def test_the_page_of_the_fixture() -> None:
    text = report.page(Results(FIXTURE))
    # Seed 2 has no run of the control; the run of `direct` at another rate than the chosen one does not count.
    assert "| direct | 17.2 | 0.1 | 97.0 | 75.0 | 43.8 to 100.0 | 66.7 83.3 |" in text
    assert "| admm, own dense weights |  |  |  | 95.8 |" in text
    assert "| fine | 17.2 | 0.01 |" in text
    assert "| dense | 16.1 |" in text
    assert "| direct, uniform ranks | 21.5 |" in text
    assert "| narrow |  | 0.1 |" in text
    assert "| direct minus dense | -22.9 | -56.2 to 0.0 |" in text
    assert "| direct minus direct, uniform ranks | 25.0 |" in text
    assert "- `tdc` found no ranks for vgg at 84 %; its arm is left out." in text
    assert "tdc ranks |" not in text
    assert "- **admm**: largest gap of a layer to its ranks when it is decomposed, each seed: 0.030 0.030\n" in text
    assert "At an end of its grid is the chosen rate of " in text


def test_the_interval_is_that_of_all_resamples_of_the_base_images() -> None:
    # Two seeds, four base images: the 256 resamples can be counted.
    values = numpy.array([[1.0, 0.5, 1.0, 1 / 6], [1.0, 1.0, 1.0, 1 / 3]])
    means = [100 * numpy.mean(resample) for resample in itertools.product(values.mean(0), repeat=4)]
    mean, low, high = report.interval(values)
    assert mean == pytest.approx(75)
    assert numpy.percentile(means, 1.5) <= low <= numpy.percentile(means, 3.5)
    assert numpy.percentile(means, 96.5) <= high <= numpy.percentile(means, 98.5)


def test_the_published_page_is_that_of_its_results() -> None:
    folder = ROOT / "docs" / "results"
    assert report.page(Results(folder / "training.jsonl")) == (folder / "training.md").read_text()


def test_results_resume_after_a_line_without_its_end(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    text = FIXTURE.read_text()
    path.write_text(text + '{"job": {"network": "vgg", "arm": "con')
    results = Results(path)
    assert path.read_text() == text
    job = Job("vgg", "control", 0.84, 2, 0.1)
    assert job not in results.runs
    results.add_run(job, {"train": 0.9, "validation": 0.8, "test": "6666", "untrained": "1111"})
    results.add_plan(PlanKey("vgg", 0.84, 7, "optimal"), {"layers": {"3": [4, 6], "22": 4}})
    again = Results(path)
    assert again.runs[job]["test"] == "6666"
    assert again.plans[PlanKey("vgg", 0.84, 7, "optimal")]["layers"] == {"3": [4, 6], "22": 4}
    assert "66.7 83.3 " in report.page(again)
    again.set_settings(results.settings)
    with pytest.raises(ValueError, match="other settings"):
        again.set_settings({**results.settings, "epochs": 3})


DRIVER = """
import sys
sys.path[:0] = {paths!r}
import networks
from torch import nn
def tiny(width=1.0):
    n = max(4, round(16 * width))
    return nn.Sequential(nn.Conv2d(1, n, 3, 2, 1), nn.ReLU(), nn.Conv2d(n, n, 3, 2, 1), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n, 10))
networks.NETWORKS.clear()
networks.NETWORKS["tiny"] = tiny
import run
sys.exit(run.main())
"""


def test_an_interrupted_experiment_ends_and_resumes(digits: Path, tmp_path: Path, tdc_gen: str) -> None:
    folder = tmp_path / "results"
    driver = DRIVER.format(paths=[str(EXPERIMENTS), str(ROOT / "python" / "src")])
    options = ["--data", digits, "--results", folder, "--device", "cpu", "--cuts", "0.4", "--seeds", "1"]
    command = [sys.executable, "-c", driver, *map(str, options), "--epochs", "2", "--copies", "8", "--jobs", "2"]
    # A process group of its own: an interrupt from the terminal reaches `tdc-gen` as well.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0)
    lines = folder / "results.jsonl"
    deadline = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < deadline:
        if lines.exists() and '"job"' in lines.read_text():
            break
        time.sleep(0.05)
    # Twice, as `timeout` does.
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    output = process.communicate(timeout=300)[0]
    assert process.returncode == 130, output
    assert "interrupted" in output
    before = lines.read_text().splitlines()
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    after = lines.read_text().splitlines()
    assert after[: len(before)] == before
    jobs = [json.dumps(json.loads(line)["job"]) for line in after if '"job"' in line]
    assert len(jobs) == len(set(jobs))
    assert {json.loads(job)["arm"] for job in jobs} == {*arms.RATES, *arms.KAPPA, "fine", "distilled", "half"}
    plans = [line for line in after if '"plan"' in line]
    assert len(plans) == 3, "each method once"
    assert "| admm |" in report.page(Results(lines))
    other = tmp_path / "other"
    parts = [*command, "--results", str(other), "--first-seed", "1", "--rates", str(lines)]
    result = subprocess.run(parts, capture_output=True, text=True, check=False, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    assert not list(other.glob("base-tiny-0-*")), "ranks that do not depend on the seed come with the rates"
    # Some arms: the rate of one is known, that of the other is not.
    some, known = tmp_path / "some", tmp_path / "known.jsonl"
    rates = Results(lines).rates
    Results(known).set_settings(Results(lines).settings)
    Results(known).set_rates({key: rate for key, rate in rates.items() if key[1] != "rising and distilled"})
    parts = [*command, "--results", str(some), "--arms", "half", "rising and distilled", "--rates", str(known)]
    result = subprocess.run(parts, capture_output=True, text=True, check=False, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    arms_of_runs = sorted(job.arm for job in Results(some / "results.jsonl").runs)
    assert arms_of_runs == ["half", *["rising and distilled"] * len(arms.RATES["rising and distilled"])]
    join.join(tmp_path / "joined.jsonl", [lines, other / "results.jsonl"])
    joined = Results(tmp_path / "joined.jsonl")
    assert {job.seed for job in joined.runs} == {0, 1}
    assert len(joined.runs) == len(jobs) + len(Results(other / "results.jsonl").runs)
    direct = report.tables(joined)["tiny", 0.4]["direct"]
    assert list(direct.test) == [0, 1]
    with pytest.raises(ValueError, match="other settings"):
        join.join(tmp_path / "mixed.jsonl", [FIXTURE, lines])


def test_distillation_is_the_divergence_from_the_softened_classes() -> None:
    outputs = torch.tensor([[1.0, 2.0, 0.5], [0.0, 0.0, 3.0]], requires_grad=True)
    taught = torch.tensor([[1.0, 1.5, -2.0], [0.0, 4.0, 1.0]])
    p, q = (torch.softmax(x / training.TEMPERATURE, 1) for x in (taught, outputs))
    expected = training.TEMPERATURE**2 * (p * (p / q).log()).sum() / 2
    torch.testing.assert_close(training.distillation(outputs, taught), expected)
    torch.testing.assert_close(training.distillation(taught, taught), torch.tensor(0.0))


def test_a_student_learns_the_classes_of_its_teacher(small: Small) -> None:
    # The labels are of no use; only the teacher tells the images apart.
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(256, 3, 5, 7, generator=generator)
    split = data.Split(images, torch.arange(256) % 5, torch.arange(256))
    wanted = (images.mean((1, 2, 3)) > 0).long()
    with training.exclusive:
        training.fit(small, split, 30, 0.05, 0, taught=10.0 * F.one_hot(wanted, 5).float())
    assert (training.logits(small, split).argmax(1) == wanted).double().mean() > 0.9


def test_narrow_networks_of_equal_latency_are_not_faster() -> None:
    results = Results(FIXTURE)
    assert report.equal_latency(results, "vgg", 64) == []
    times = {("dense", 0.0): 48.0, ("optimal", 0.84): 37.0, ("narrow", 0.84): 26.0, ("narrow", 0.6): 40.0}
    for (form, cut), us in times.items():
        results._take({"latency": {"network": "vgg", "form": form, "cut": cut, "batch": 64}, "us": us, "predicted": us})
    rate = results.rate("vgg", "narrow", 0.84)
    assert results.rate("vgg", "narrow", 0.6) == rate
    for seed in (0, 1):
        results.runs[Job("vgg", "narrow", 0.6, seed, rate)] = {"test": "6666"}
    text = "\n".join(report.equal_latency(results, "vgg", 64))
    assert "| narrow | 60 | 40.0 | 40.0 | 100.0 |" in text
    assert "| direct, 84 % cut, minus narrow, 60 % cut | -25.0 |" in text
    results.latencies[LatencyKey("vgg", "optimal", 0.84, 64)] = 50.0
    assert report.equal_latency(results, "vgg", 64) == [], "compression must have a gain"
