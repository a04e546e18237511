"""The client of the sweeps' tests, with the steps that most of them begin with."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select
from starlette.testclient import TestClient

from app.context import Context
from app.fence.watching import fenced_context
from app.runs import sweep_trials, worker
from app.runs.sweep_trials import Trials
from app.tables.runs import Run, RunSweep
from tests.app.runs.conftest import HEADER, REQUEST, ROWS, Service, quick

__all__ = ["quick"]

#: Rows of another data set with the same columns, to score models on.
TEST_ROWS = HEADER + "".join(f"{a},0.25,red,{'yes' if a > 5 else 'no'}\n" for a in range(10))
STEP_SIZES = [0.125, 0.5, 2.0]
BEST: dict[str, Any] = {
    "select": "best",
    "trials": {"kind": "geometric", "expected_trials": 3},
    "score": {"kind": "public"},
}


class Sweeps(Service):
    """The same for sweeps: three step sizes, on public data unless a test says otherwise."""

    def request(self, **changes: Any) -> dict[str, Any]:
        body = REQUEST | {
            "dataset_id": "ds_breast_cancer",
            "hyperparameters": {"step_size": STEP_SIZES},
            "iterations": 2,
            "select": "all",
        }
        return {name: value for name, value in (body | changes).items() if value is not ...}

    def ask(self, **changes: Any) -> Any:
        return self.post("/v1/run-sweeps", self.request(**changes))

    def swept(self, **changes: Any) -> dict[str, Any]:
        answer = self.ask(**changes)
        assert answer.status_code == 202, answer.text
        return dict(answer.json())

    def paid(self, epsilon: float = 20.0, **changes: Any) -> dict[str, Any]:
        """A sweep that a budget pays for, on public data: its runs end at once."""
        budget = self.budget(filter={"kind": "renyi_dp", "epsilon": epsilon, "delta": 1e-5})
        return self.swept(budget_id=budget["id"], **changes)

    def private_sweep(self, rows: str = ROWS, **changes: Any) -> dict[str, Any]:
        """A sweep on private data, scored on public ones."""
        budget = self.budget(filter={"kind": "renyi_dp", "epsilon": 20, "delta": 1e-5})
        private = self.dataset(rows, budget_id=budget["id"])
        public = self.dataset(TEST_ROWS, public=True, declared_size=10, name="test")
        return self.swept(dataset_id=private["id"], budget_id=budget["id"], test_dataset_id=public["id"], **changes)

    def work_all(self) -> int:
        """Carry out all that is queued, and what is queued after it; how many runs that were."""
        done = 0
        while worker.work_once(self.context, "wrk_test"):
            done += 1
        return done

    def sweep(self, sweep: dict[str, Any]) -> dict[str, Any]:
        return dict(self.get(f"/v1/run-sweeps/{sweep['id']}"))

    def later(self, seconds: float) -> Context:
        """The same service, so many seconds later."""
        now: datetime = self.context.clock() + timedelta(seconds=seconds)
        return fenced_context(self.context.settings, self.context.database, lambda: now)

    def runs_of(self, sweep: dict[str, Any]) -> list[Run]:
        """All rows, withheld ones too, in the order in which they were queued."""
        with self.context.database.read() as session:
            statement = select(Run).where(Run.sweep_id == sweep["id"]).order_by(Run.created_at, Run.id)
            return list(session.scalars(statement))

    def trials(self, sweep: dict[str, Any]) -> Trials:
        """What nobody else knows of a sweep for the best."""
        with self.context.database.read() as session:
            return sweep_trials.trials_of(self.context, session, session.get_one(RunSweep, sweep["id"]))

    def counted(self, sweep: dict[str, Any]) -> list[bool]:
        """Which of the trials that were made count, in the order in which they were made."""
        trials, made = self.trials(sweep), {row.id for row in self.runs_of(sweep)}
        ids = [trials.id_of(number) for number in range(len(made))]
        assert set(ids) == made
        return [trials.counts(run_id) for run_id in ids]

    def kinds(self, sweep: dict[str, Any]) -> list[str]:
        """The entries about the sweep's charge."""
        entries = self.get(f"/v1/budgets/{sweep['budget_id']}/entries")["items"]
        return [entry["kind"] for entry in entries][1:]


@pytest.fixture
def service(client: TestClient, context: Context) -> Sweeps:
    return Sweeps(client, context)


@pytest.fixture
def sweeps(quick: Service) -> Sweeps:
    """One service for a whole module, on SQLite: for what no database has a part in."""
    return Sweeps(quick.client, quick.context)


class Draws:
    """What follows from a secret, as a test decides: the number of trials, and their cells."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.trials = 1
        self.cells: Sequence[int] | None = None
        monkeypatch.setattr(sweep_trials, "draw_trials", lambda *_: self.trials)
        cell_of = Trials.cell_of

        def decided(trials: Trials, number: int) -> int:
            return cell_of(trials, number) if self.cells is None else self.cells[number]

        monkeypatch.setattr(Trials, "cell_of", decided)


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> Draws:
    return Draws(monkeypatch)
