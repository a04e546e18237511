"""Whether the times of private runs tell one data set from its neighbours: the charge's start, and the end.

The reference is a data set of the declared size. Beside it are the others: no row, one row, a row less and a row more
at every boundary of the pieces in which rows are handled, a full set, subnormal numbers, and numbers that overflow.
Runs of all of them alternate in a random order. Each one's times are compared with the reference's by a Mann-Whitney
test. No difference may be significant at the level that is fixed here, shared by all comparisons.

In the control the waiting is switched off, and an empty and a full set must be told apart.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import mannwhitneyu
from starlette.testclient import TestClient

from app.db.database import Database
from app.fence.watching import fenced_context
from app.main import create_app
from app.runs import worker
from app.runs.schedule import Schedule
from app.settings import Settings
from tests.app.conftest import BASE_URL, LOOPBACK_PEER
from tests.app.runs.clocks import Watch
from tests.app.runs.conftest import Service
from tests.databases import DatabaseFactory
from tests.soak.report import write_report
from trainer.models.model import Model
from trainer.records import BLOCK_ROWS

ALPHA = 0.001
#: Runs of each data set. The environment makes it less for a quick look.
RUNS = int(os.environ.get("RUN_TIMES_RUNS", "60"))
DECLARED = 2 * BLOCK_ROWS
COLUMNS = 32
WARM_UP = 3
#: Runs without waiting take no time.
CONTROL_RUNS = max(RUNS, 40)

BOUNDARIES = (Model.block_rows, BLOCK_ROWS, DECLARED, 2 * DECLARED)
COUNTS = sorted({0, 1, *(near for edge in BOUNDARIES for near in (edge - 1, edge, edge + 1))} - {2 * DECLARED + 1})
REFERENCE = str(DECLARED)


def rows(count: int, value: str = "0.5") -> str:
    header = ",".join(f"x{index}" for index in range(COLUMNS)) + ",y\n"
    line = ",".join([value] * COLUMNS)
    return header + "".join(f"{line},{'no' if index % 2 else 'yes'}\n" for index in range(count))


def data_sets() -> dict[str, str]:
    found = {str(count): rows(count) for count in COUNTS}
    return found | {"subnormal": rows(DECLARED, "1e-310"), "too_large": rows(DECLARED, "1e308")}


class Times:
    """A service and the times of its private runs, by the name of their data set."""

    def __init__(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        self._service, self._watch = service, Watch(monkeypatch)
        self._data: dict[str, tuple[str, str]] = {}
        self.bounds: set[float] = set()

    def upload(self, contents: dict[str, str]) -> None:
        columns: list[dict[str, Any]] = [
            {"name": f"x{index}", "type": "number", "lower": -1, "upper": 1} for index in range(COLUMNS)
        ]
        columns.append({"name": "y", "type": "category", "categories": ["no", "yes"]})
        for name, content in contents.items():
            budget = self._service.budget(filter={"kind": "zcdp", "rho": 1e6})
            dataset = self._service.dataset(
                content, budget_id=budget["id"], declared_size=DECLARED, columns=columns, name=name
            )
            self._data[name] = dataset["id"], budget["id"]

    def of(self, name: str) -> tuple[float, float]:
        """Seconds from the claim to the start of the charge, and to the end of the run."""
        dataset, budget = self._data[name]
        run = self._service.queued(
            dataset_id=dataset, budget_id=budget, iterations=2, target={"kind": "zcdp", "rho": 1}
        )
        self._watch.told.clear()
        self._service.work()
        stored = self._service.stored(run)
        assert stored.state == "succeeded"
        assert stored.schedule is not None
        self.bounds.add(Schedule.from_json(stored.schedule).bound_s())
        [start], [end] = self._watch.told["start"], self._watch.told["end"]
        return start, end

    def alternating(self, names: list[str], runs: int) -> dict[str, list[tuple[float, float]]]:
        """Times of so many runs of each, one after the other in a random order; the first rounds do not count."""
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        order = random.Random(7)
        for number in range(WARM_UP + runs):
            for name in order.sample(names, len(names)):
                times = self.of(name)
                if number >= WARM_UP:
                    found[name].append(times)
        return found


def p_values(one: list[tuple[float, float]], other: list[tuple[float, float]]) -> list[float]:
    """Of the start and of the end."""
    return [
        float(mannwhitneyu(*pair).pvalue) for pair in zip(zip(*one, strict=True), zip(*other, strict=True), strict=True)
    ]


@pytest.mark.soak
def test_run_times_do_not_tell_neighbours_apart(
    sqlite_databases: DatabaseFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = sqlite_databases.migrated()
    context = fenced_context(
        Settings(data_dir=tmp_path, database_url=url, workers=0, release_interval_s=0.1, log_level="error"),
        Database(url),
    )
    contents = data_sets()
    with TestClient(create_app(context), base_url=BASE_URL, client=LOOPBACK_PEER) as client:
        times = Times(Service(client, context), monkeypatch)
        times.upload(contents)
        found = times.alternating(list(contents), RUNS)
        bounds = sorted(times.bounds)
        monkeypatch.setattr(worker.Timetable, "wait_for_training", lambda self: None)
        monkeypatch.setattr(worker.Timetable, "wait_for_release", lambda self, must_stop: True)
        control = times.alternating(["0", str(2 * DECLARED)], CONTROL_RUNS)
    context.database.dispose()

    compared = {name: p_values(found[name], found[REFERENCE]) for name in contents if name != REFERENCE}
    smallest = min(min(values) for values in compared.values())
    comparisons = sum(len(values) for values in compared.values())
    of_control = min(p_values(*control.values()))
    late = {name: sum(end > bounds[0] + 0.05 for _, end in each) for name, each in found.items()}
    assert of_control < ALPHA, "without waiting, an empty and a full set are told apart"
    assert len(bounds) == 1, "all have one schedule"
    assert smallest * comparisons > ALPHA
    write_report(
        "run_times",
        f"RUN_TIMES_RUNS={RUNS} python -m pytest -m soak -n 0 -o addopts='' tests/soak/test_run_times.py",
        {
            "alpha": ALPHA,
            "runs_of_each": RUNS,
            "runs_of_each_in_the_control": CONTROL_RUNS,
            "data_sets": len(contents),
            "comparisons": comparisons,
            "bound_s": bounds,
            "median_end_s": {name: round(sorted(end for _, end in each)[RUNS // 2], 4) for name, each in found.items()},
            "late": late,
            "p_values": {name: [round(value, 4) for value in values] for name, values in compared.items()},
            "smallest_p_times_comparisons": min(1.0, smallest * comparisons),
            "p_of_control": of_control,
        },
    )
