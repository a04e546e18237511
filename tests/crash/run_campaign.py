"""Runs are ordered and carried out, and what takes part is killed at random instants; then the books are read.

What `make test`, `make test-all` and `make soak` all run. The instants are drawn after some run has started, so that a
kill has something to hit: that run, or one after it before its start or at its end. It is a matter of luck, and of how
many kills there are, which of them is hit.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from tests.crash.connection import Connection
from tests.crash.history import Json
from tests.crash.orders import Order, sending
from tests.crash.run_auditor import audit_runs
from tests.crash.run_books import RunTable, read_books
from tests.crash.run_victims import RunVictim
from tests.crash.server_process import ServerProcess
from tests.local_access import authorization

SEED = 11
#: A checkpoint is due so often: a run that lasts some tenths of a second has some to go on from.
CHECKPOINT_INTERVAL_S = 0.02
#: Public runs whose noise is chosen repeat one of so many.
SEEDS = 4
#: One run in so many is of private rows: its worker's part ends at a tick of its schedule. Every second one of these
#: is evaluated on held-out rows, the first one too.
PRIVATE_ONE_IN = 7
BUDGETS = 3
RUNS_BETWEEN_KILLS = 10
#: Longer than a lease: a run whose claim was answered to nobody waits for it.
PATIENCE_S = 240
CAMPAIGN_S = 3600
#: Settings of a server that a campaign is run with.
SETTINGS = {"EPSILOND_CHECKPOINT_INTERVAL_S": str(CHECKPOINT_INTERVAL_S)}

COLUMNS = [
    {"name": "a", "type": "number", "lower": 0, "upper": 10},
    {"name": "y", "type": "category", "categories": ["no", "yes"]},
]
ROWS = [[value, "yes" if value > 4 else "no"] for value in range(10)]


@dataclass
class Outcome:
    """What a campaign found; ``faults`` is empty where the promise was kept.

    Attributes:
        kills: By victim.
        workers_lost: By runs that they were at.
        resumed: Claims that went on from a checkpoint, and with how many steps done.
    """

    kills: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    evaluated: int = 0
    charged: int = 0
    repeated: int = 0
    claims: int = 0
    workers_lost: int = 0
    resumed: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def check(self, kills: Counter[str]) -> None:
        """Assert that nothing is wrong, and that something could have been found."""
        assert not self.faults, "\n".join([*self.faults, str(self)])
        assert self.kills >= kills, self
        assert self.workers_lost > 0, self
        assert self.resumed, self
        assert self.states["succeeded"] > self.states["failed"], self
        assert self.evaluated > 0, self

    def figures(self) -> Json:
        return {
            "seed": SEED,
            "runs": self.states.total(),
            "runs_by_state": dict(self.states),
            "evaluated_on_held_out_rows": self.evaluated,
            "charged": self.charged,
            "compared_with_their_undisturbed_twins": self.repeated,
            "kills": dict(self.kills),
            "claims": self.claims,
            "workers_lost_at_a_run": self.workers_lost,
            "resumed": len(self.resumed),
            "resumed_after_their_first_step": sum(steps > 0 for steps in self.resumed),
            "faults": len(self.faults),
        }

    def __str__(self) -> str:
        return json.dumps(self.figures())


class RunCampaign:
    """One campaign on a server that runs.

    Args:
        server: With workers of its own.
        database_url: The server's database.
        data_dir: The server's data folder.
        steps: Of every run.
    """

    def __init__(self, server: ServerProcess, database_url: str, data_dir: Path, steps: int) -> None:
        self._server = server
        self._table = RunTable(database_url)
        self._data_dir = data_dir
        self._steps = steps
        self._orders: list[Order] = []
        self._payers: list[str] = []
        self._private: Json = {}
        self.random = random.Random(SEED)
        self.outcome = Outcome()

    def prepare(self) -> None:
        """Make budgets and data sets, and carry out undisturbed what later runs must repeat."""
        with Connection(self._server.address) as connection:
            self._payers = [_new_budget(connection, f"public {number}") for number in range(BUDGETS)]
            payer = _new_budget(connection, "private")
        self._private = {"dataset_id": _upload(self._server, payer), "budget_id": payer}
        calm = [self._repeatable(f"calm {kind} {seed}", kind, seed) for kind, seed in self._kinds()]
        with sending(self._server, calm):
            pass
        self._orders += calm
        self._wait_until_all_have_ended()

    def new_orders(self, count: int) -> list[Order]:
        """Of all kinds: charged and free, public and private."""
        first, kinds = len(self._orders), list(self._kinds())
        for number in range(first, first + count):
            if number % PRIVATE_ONE_IN == len(kinds) % PRIVATE_ONE_IN:
                is_evaluated = (number - len(kinds)) // PRIVATE_ONE_IN % 2 == 0
                more: Json = {"evaluation": {}} if is_evaluated else {}
                order = Order(f"order {number}", self._request() | self._private | more)
            else:
                order = self._repeatable(f"order {number}", *kinds[number % len(kinds)])
            self._orders.append(order)
        return self._orders[first:]

    def kill_once_a_run_has_started(self, victim: RunVictim, within_s: float) -> None:
        """`kill`, as soon as there is something to hit."""
        deadline = time.monotonic() + PATIENCE_S
        while not self._table.started():
            assert time.monotonic() < deadline, "no worker starts a run"
            time.sleep(0.01)
        self.kill(victim, within_s)

    def kill_until_all_have_ended(self, victims: Iterator[RunVictim], within_s: float) -> None:
        """Whenever some more runs have ended and one has started, kill the next victim.

        Kills that came faster than workers start would end nothing but the starts of workers.
        """
        deadline = time.monotonic() + CAMPAIGN_S
        next_kill_at = self._table.unfinished() - RUNS_BETWEEN_KILLS
        while unfinished := self._table.unfinished():
            assert time.monotonic() < deadline, f"{unfinished} runs do not end"
            if unfinished <= next_kill_at and self._table.started():
                self.kill(next(victims), within_s)
                next_kill_at = unfinished - RUNS_BETWEEN_KILLS
            else:
                time.sleep(0.02)

    def kill(self, victim: RunVictim, within_s: float) -> None:
        """After a drawn delay of at most ``within_s``; what does not come back by itself is started again."""
        time.sleep(self.random.uniform(0, within_s))
        victim.kill()
        self.outcome.kills[victim.name] += 1
        victim.recover()

    @property
    def has_hit(self) -> bool:
        """Whether a kill has cost a run its worker, and a run has gone on from a checkpoint; when all have ended."""
        self._wait_until_all_have_ended()
        return bool(self._resumed()) and any(lost for _, lost in self._table.claims().values())

    @property
    def unfinished(self) -> int:
        return self._table.unfinished()

    def finish(self) -> Outcome:
        """Wait until all have ended, and audit everything."""
        self._wait_until_all_have_ended()
        with Connection(self._server.address) as connection:
            books = read_books(connection, self._table, self._data_dir)
        outcome = self.outcome
        outcome.faults += audit_runs(self._orders, books)
        outcome.states.update(run.body["state"] for run in books.runs.values())
        outcome.evaluated = sum("evaluation" in run.body["plan"] for run in books.runs.values())
        outcome.charged = sum(entry["kind"] == "commit" for view in books.budgets for entry in view.entries)
        outcome.repeated = sum(order.twin is not None for order in self._orders)
        outcome.claims = sum(run.epoch for run in books.runs.values())
        outcome.workers_lost = sum(run.workers_lost for run in books.runs.values())
        outcome.resumed = self._resumed()
        return outcome

    def _resumed(self) -> list[int]:
        """With how many steps claims went on, as their workers have logged."""
        return [json.loads(line)["steps"] for line in self._server.printed().splitlines() if '"run_resumed"' in line]

    def _wait_until_all_have_ended(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self._table.unfinished():
            assert time.monotonic() < deadline, f"{self._table.unfinished()} runs do not end"
            time.sleep(0.1)

    def _kinds(self) -> Iterator[tuple[str, int]]:
        return ((kind, seed) for seed in range(SEEDS) for kind in ("charged", "free"))

    def _repeatable(self, key: str, kind: str, seed: int) -> Order:
        dataset = {"public": True, "columns": COLUMNS, "label": "y", "rows": ROWS}
        given: Json = {"dataset_id": "ds_breast_cancer"} if kind == "charged" else {"dataset": dataset}
        if kind == "charged":
            given["budget_id"] = self.random.choice(self._payers)
        return Order(key, self._request() | given | {"seed": seed}, twin=f"calm {kind} {seed}")

    def _request(self) -> Json:
        return {
            "algorithm": "dp_sgd",
            "model": {"kind": "logistic_regression"},
            "iterations": self._steps,
            # Calibrated in closed form, so that an order takes milliseconds.
            "sampling": "full_batch",
            "neighboring_relation": "add_or_remove_one",
            "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
            "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5},
            "hyperparameters": {"step_size": 0.5},
        }


def _new_budget(connection: Connection, name: str) -> str:
    body = {"name": name, "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1000}}
    answer = connection.send("POST", "/v1/budgets", body, name)
    assert answer.status_code == 201, answer
    identifier: str = answer.json()["id"]
    return identifier


def _upload(server: ServerProcess, budget_id: str) -> str:
    """A private data set that this budget pays for."""
    rows = "".join(f"{value},{label}\n" for value, label in ROWS)
    metadata = {"name": "private", "declared_size": 1000, "columns": COLUMNS, "label": "y", "budget_id": budget_id}
    metadata["held_out_share"] = 0.25
    host, port = server.address
    answer = httpx2.post(
        f"http://{host}:{port}/v1/datasets",
        files={"file": ("rows.csv", f"a,y\n{rows}".encode(), "text/csv")},
        data={"metadata": json.dumps(metadata)},
        headers={"Idempotency-Key": "private rows", **authorization(port)},
    )
    assert answer.status_code == 201, answer.text
    identifier: str = answer.json()["id"]
    return identifier
