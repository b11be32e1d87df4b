"""The results of an experiment: one file of JSON lines, appended to as runs end, from which a run resumes."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

Record = dict[str, object]
RATE_OF = {"distilled": "direct", "half": "direct", "rising": "admm"}
"""Arms that have the rate which was chosen for another."""


@dataclass(frozen=True)
class PlanKey:
    """What a plan of ranks depends on. The seed counts for `optimal`, which reads the weights; else it is 0."""

    network: str
    cut: float
    seed: int
    method: str


@dataclass(frozen=True)
class LatencyKey:
    """A generated network: `form` is dense, narrow or the method of its ranks."""

    network: str
    form: str
    cut: float
    batch: int = 1


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
    def plan(self) -> PlanKey:
        """The plan of ranks that the run needs, unless it is of a dense network."""
        return PlanKey(self.network, self.cut, self.seed if self.method == "optimal" else 0, self.method)


class Results:
    """Settings, notes for the page, chosen rates, plans of ranks, finished runs and latencies.

    Each line is a mapping with one of the keys `settings`, `note`, `rates`, `plan`, `job` and `latency`. A last line
    without its end, as a killed run leaves it, is dropped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings: Record = {}
        self.notes: list[str] = []
        self.rates: dict[tuple[str, str, float], float] = {}
        self.plans: dict[PlanKey, Record] = {}
        self.runs: dict[Job, Record] = {}
        self.latencies: dict[LatencyKey, float] = {}
        self.predicted: dict[LatencyKey, float | None] = {}
        self._lock = threading.Lock()
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            path.write_text(whole)
        for line in whole.splitlines():
            self._take(json.loads(line))

    def _take(self, record: Record) -> None:
        if "settings" in record:
            self.settings = record["settings"]
        elif "note" in record:
            self.notes.append(str(record["note"]))
        elif "rates" in record:
            self.rates |= {(network, arm, cut): rate for network, arm, cut, rate in record["rates"]}
        elif "plan" in record:
            self.plans[PlanKey(**record["plan"])] = record
        elif "latency" in record:
            key = LatencyKey(**record["latency"])
            self.latencies[key], self.predicted[key] = record["us"], record.get("predicted")
        else:
            self.runs[Job(**record["job"])] = record

    def _append(self, record: Record) -> None:
        with self._lock:
            with self.path.open("a") as file:
                file.write(json.dumps(record) + "\n")
            self._take(record)

    def set_settings(self, settings: Record) -> None:
        """Writes the settings, or checks that they are those of the file.

        Raises:
            ValueError: the file has results of other settings.
        """
        if not self.settings:
            self._append({"settings": settings})
        elif self.settings != settings:
            raise ValueError(f"{self.path} has results of other settings, {self.settings}; give another folder")

    def rate(self, network: str, arm: str, cut: float) -> float | None:
        """The chosen rate of an arm. Narrow networks of other cuts have that of the nearest."""
        arm = RATE_OF.get(arm, arm)
        cuts = [known for of, tuned, known in self.rates if (of, tuned) == (network, arm)]
        if arm == "narrow" and cuts:
            cut = min(cuts, key=lambda known: abs(known - cut))
        return self.rates.get((network, arm, cut))

    def grids(self) -> dict[str, list[float]]:
        """The rates that seed 0 has tried for each tuned arm."""
        tuned = sorted({arm for _, arm, _ in self.rates})
        return {arm: sorted({job.rate for job in self.runs if job.arm == arm and job.seed == 0}) for arm in tuned}

    def same_experiment(self, settings: Record) -> bool:
        """Whether the results have these settings, whatever runs have chosen the rates."""
        return {**self.settings, "rates": None} == {**settings, "rates": None}

    def add_note(self, note: str) -> None:
        """Writes a note, unless it is there."""
        if note not in self.notes:
            self._append({"note": note})

    def set_rates(self, rates: dict[tuple[str, str, float], float]) -> None:
        """Writes the chosen rates by network, arm and cut."""
        if any(self.rates.get(key) != rate for key, rate in rates.items()):
            self._append({"rates": [[*key, rate] for key, rate in rates.items()]})

    def add_plan(self, key: PlanKey, record: Record) -> None:
        """Writes a plan: `layers`, the ranks by module, or None with a `reason`."""
        self._append({"plan": asdict(key)} | record)

    def add_plans(self, plans: dict[PlanKey, Record]) -> None:
        """Writes plans of other results that are not there."""
        for key, plan in plans.items():
            if key not in self.plans:
                self._append(plan)

    def add_run(self, job: Job, record: Record) -> None:
        """Writes a finished run."""
        self._append({"job": asdict(job)} | record)

    def add_latency(self, key: LatencyKey, us: float, predicted: float) -> None:
        """Writes the measured time of a generated network for a batch, and that of its plan, microseconds."""
        self._append({"latency": asdict(key), "us": us, "predicted": predicted})
