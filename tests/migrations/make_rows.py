"""Make the rows of `tests/migrations/rows`: what the code of some commit writes into a database, as JSON.

Run it with the code of that commit::

    git worktree add --detach /tmp/then 47055c1
    cd /tmp/then && PYTHONPATH=. python .../tests/migrations/make_rows.py .../tests/migrations/rows/0004.json

It uses little but the HTTP contract, and skips what the code of the time does not have.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from sqlalchemy import Boolean, create_engine, inspect, text

from app.auth.principal import Scope
from app.auth.service import create_key, revoke_key
from app.db.database import Database
from app.db.migrate import head_revision, upgrade
from app.fence.watching import fenced_context
from app.main import create_app
from app.runs import worker
from app.runs.executors import local
from app.settings import Settings
from tests.local_access import local_client

FILTERS: list[tuple[dict[str, Any], str]] = [
    ({"kind": "zcdp", "rho": "2"}, "add_or_remove_one"),
    ({"kind": "pure_dp", "epsilon": 3}, "replace_one"),
    ({"kind": "gaussian_dp", "mu": 3}, "replace_one"),
    ({"kind": "approximate_dp", "epsilon": 20, "delta": 1e-3}, "replace_special"),
    ({"kind": "renyi_dp", "epsilon": 2, "delta": 1e-6, "orders": [4, 8.5, 32]}, "add_or_remove_one"),
]
GAUSSIAN = {"kind": "gaussian", "noise_multiplier": 20.0}
LISTS: dict[str, list[dict[str, Any]]] = {
    "zcdp": [{"mechanism": {"kind": "zcdp", "rho": 0.01}, "count": 5}, {"mechanism": GAUSSIAN, "count": 4}],
    "pure_dp": [{"mechanism": {"kind": "laplace", "noise_multiplier": 40}, "count": 4}],
    "gaussian_dp": [{"mechanism": GAUSSIAN, "sampling": {"kind": "shuffled_epochs", "steps_per_epoch": 2}, "count": 5}],
    "approximate_dp": [{"mechanism": {"kind": "approximate_dp", "epsilon": 0.1, "delta": 1e-7}, "count": 3}],
    "renyi_dp": [
        {
            "mechanism": GAUSSIAN,
            "sampling": {"kind": "poisson", "sampling_probability": 0.01},
            "count": 100,
        },
        {"mechanism": {"kind": "pure_dp", "epsilon": 0.01}, "count": 2},
    ],
}
RUN = {
    "algorithm": "dp_sgd",
    "model": {"kind": "logistic_regression"},
    "iterations": 20,
    "sampling": "full_batch",
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
    "target": {"kind": "approximate_dp", "epsilon": 0.5, "delta": 1e-5},
    "hyperparameters": {"step_size": 0.5},
}
COLUMNS = [
    {"name": "a", "type": "number", "lower": 0, "upper": 10},
    {"name": "y", "type": "category", "categories": ["no", "yes"]},
]
ROWS = "a,y\n1,no\n9,yes\n2,no\n8,yes\n"
#: Made by the migrations themselves.
BUNDLED = ("ds_breast_cancer", "ds_diabetes", "ds_digits")


class Then:
    """The service of the time, under a clock that is turned by hand."""

    def __init__(self, folder: Path) -> None:
        self.now = datetime(2026, 5, 1, tzinfo=UTC)
        url = f"sqlite:///{folder / 'then.sqlite3'}"
        upgrade(url)
        self.context = fenced_context(
            Settings(data_dir=folder, database_url=url, workers=0), Database(url), lambda: self.now
        )
        app = create_app(self.context)
        self.paths = app.openapi()["paths"]
        self.client = local_client(app)
        self.requests: list[dict[str, Any]] = []
        self.token: str | None = None
        self._keys = count()

    def post(self, path: str, body: Any = None, *statuses: int) -> Any:
        key = f"key-{next(self._keys)}"
        answer = self.client.post(path, json=body, headers={"Idempotency-Key": key})
        assert answer.status_code in (statuses or (200, 201, 202)), answer.text
        # What the service remembers, it must still remember after every migration.
        with_key = "authorization" in self.client.headers
        self.requests.append(
            {"key": key, "path": path, "body": body, "status": answer.status_code, "with_key": with_key}
        )
        return answer.json()

    def use_a_key(self) -> None:
        """From the first one on, nobody comes without."""
        if self.token is None:
            created = create_key(self.context, "owner", [Scope.ADMIN])
            gone = create_key(self.context, "gone", [Scope.ANALYST])
            assert created is not None
            assert gone is not None
            assert revoke_key(self.context, gone.id)
            self.token = created.token
            self.client.headers["Authorization"] = f"Bearer {self.token}"

    def has(self, path: str) -> bool:
        return path in self.paths


def live(then: Then) -> None:
    """Budgets of all kinds with reservations in all states; runs and data sets; keys."""
    for number, (budget_filter, relation) in enumerate(FILTERS):
        terms = {"name": f"budget {number}, é", "neighboring_relation": relation, "filter": budget_filter}
        budget = then.post("/v1/budgets", {**terms, "labels": {"a": "b"}, "report_delta": 1e-6}, 201, 422)
        if "id" in budget:
            spend(then, budget["id"], LISTS[budget_filter["kind"]])
            if then.has("/v1/budgets/{budget_id}/limit"):
                tree(then, budget["id"], terms)
            then.use_a_key()
    runs(then)
    then.now += timedelta(hours=1)


def spend(then: Then, budget_id: str, events: list[dict[str, Any]]) -> None:
    """One reservation of every fate."""

    def hold(purpose: str, seconds: int = 10**6, *, of: list[dict[str, Any]] = events) -> str:
        body = {"events": of, "purpose": purpose, "expires_in": seconds}
        identifier: str = then.post(f"/v1/budgets/{budget_id}/reservations", body)["id"]
        return identifier

    def resolve(command: str, reservation_id: str, body: Any = None, *statuses: int) -> None:
        then.post(f"/v1/reservations/{reservation_id}/{command}", body, *statuses)

    whole, part, both = hold("whole"), hold("part"), hold("both")
    resolve("start", whole)
    resolve("commit", whole)
    resolve("commit", part, {"events": [{**events[0], "count": 2}]})
    resolve("start", both)
    resolve("commit", both, {"events": [{**events[0], "count": 1}]})
    resolve("commit", both, None, 409)
    resolve("void", hold("voided"))
    resolve("start", hold("started"))
    too_many = [{**event, "count": 10**7} for event in events]
    body = {"events": too_many, "purpose": "too much"}
    then.post(f"/v1/budgets/{budget_id}/reservations", body, 409)
    # Past their time, one of them told so; and one that is in time.
    touched = hold("touched", 60)
    hold("late", 60)
    then.now += timedelta(minutes=2)
    resolve("start", touched, None, 409)
    hold("pending")


def tree(then: Then, budget_id: str, terms: dict[str, Any]) -> None:
    """A budget below, with what later versions can do: corrections, limits, extensions."""
    kind = terms["filter"]["kind"]
    child = then.post("/v1/budgets", {**terms, "name": "below", "parent_id": budget_id})["id"]
    events = LISTS[kind]
    body = {"events": events, "purpose": "below"}
    below = then.post(f"/v1/budgets/{child}/reservations", body)["id"]
    then.post(f"/v1/reservations/{below}/extend", {"expires_in": 7200})
    then.post(f"/v1/reservations/{below}/commit")
    then.post(
        f"/v1/budgets/{child}/corrections",
        {"reservation_id": below, "events": [*events, {**events[0], "count": 1}], "reason": "one more"},
    )
    then.post(f"/v1/budgets/{child}/corrections", {"events": events[:1], "reason": "told late"})
    field = next(name for name in ("epsilon", "rho", "mu") if name in terms["filter"])
    limit = {**terms["filter"], field: float(terms["filter"][field]) * 1.5}
    then.post(f"/v1/budgets/{budget_id}/limit", {"filter": limit, "reason": "approved"})


def runs(then: Then) -> None:
    """A run of every fate, on private data."""
    terms = {"name": "of runs", "neighboring_relation": "add_or_remove_one"}
    budget = then.post("/v1/budgets", {**terms, "filter": {"kind": "renyi_dp", "epsilon": 9, "delta": 1e-5}})["id"]
    metadata = {"name": "d", "declared_size": 1000, "columns": COLUMNS, "label": "y", "budget_id": budget}
    answer = then.client.post(
        "/v1/datasets",
        files={"file": ("d.csv", ROWS.encode(), "text/csv")},
        data={"metadata": json.dumps(metadata)},
        headers={"Idempotency-Key": "upload"},
    )
    assert answer.status_code == 201, answer.text
    request = {**RUN, "dataset_id": answer.json()["id"], "budget_id": budget}
    then.post("/v1/runs", request)
    assert worker.work_once(then.context, "wrk_1")
    then.post("/v1/runs", request)
    train, local.run = local.run, explode  # type: ignore[assignment]
    assert worker.work_once(then.context, "wrk_1")
    local.run = train
    cancelled = then.post("/v1/runs", request)["id"]
    then.post(f"/v1/runs/{cancelled}/cancel")
    then.post("/v1/runs", request)
    states = [run["state"] for run in then.client.get("/v1/runs").json()["items"]]
    assert sorted(states) == ["cancelled", "failed", "queued", "succeeded"], states
    if then.has("/v1/audits"):
        then.post("/v1/audits", {"run_id": cancelled, "trials": 10})
        calibration = {name: value for name, value in RUN.items() if name != "model"} | {"dataset_size": 1000}
        then.post("/v1/audits", {"calibration": calibration, "trials": 10})


def explode(*_: Any, **__: Any) -> Any:
    raise ValueError("a training that fails")


def dump(url: str) -> dict[str, list[dict[str, Any]]]:
    """All rows, in an order in which references lead to what is there."""
    engine = create_engine(url)
    with engine.connect() as connection:
        inspector = inspect(connection)
        tables = [name for name, _ in inspector.get_sorted_table_and_fkc_names() if name]
        found = {}
        for table in tables:
            if table != "alembic_version":
                booleans = {c["name"] for c in inspector.get_columns(table) if isinstance(c["type"], Boolean)}
                statement = text(f"SELECT * FROM {table}")
                rows = [dict(row._mapping) for row in connection.execute(statement)]
                found[table] = [
                    {name: plain(value, name in booleans) for name, value in row.items()}
                    for row in rows
                    if row.get("id") not in BUNDLED
                ]
    engine.dispose()
    return found


def plain(value: Any, is_boolean: bool) -> Any:
    if isinstance(value, bytes):
        return {"utf8": value.decode()}
    return bool(value) if is_boolean and value is not None else value


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        then = Then(Path(folder))
        live(then)
        rows = dump(then.context.database.url)
        kept = some_of_each_kind(then.requests)
        keys = {request["key"] for request in kept}
        rows["idempotency_records"] = [row for row in rows["idempotency_records"] if row["key"] in keys]
        secret = then.context.settings.secret.hex()
        then.context.database.dispose()
    made = {
        "revision": head_revision(),
        "now": then.now.isoformat(),
        "secret": secret,
        "token": then.token,
        "requests": kept,
        "rows": rows,
    }
    Path(sys.argv[1]).write_text(written(made) + "\n")


def some_of_each_kind(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Not all: their answers take most of the space."""
    kept, counts = [], Counter[tuple[Any, ...]]()
    for request in requests:
        kind = (
            *(part for part in request["path"].split("/") if "_" not in part),
            request["status"],
            request["with_key"],
        )
        counts[kind] += 1
        if counts[kind] <= 2:
            kept.append(request)
    return kept


def written(made: dict[str, Any]) -> str:
    """JSON with a line for each row and each request."""
    lines = [f'"{name}": {compact(value)}' for name, value in made.items() if name not in ("requests", "rows")]
    lines.append(f'"requests": {list_of(made["requests"])}')
    tables = [f'"{table}": {list_of(rows)}' for table, rows in made["rows"].items()]
    return "{" + ",\n".join([*lines, '"rows": {' + ",\n".join(tables) + "}"]) + "}"


def list_of(rows: list[dict[str, Any]]) -> str:
    return "[\n" + ",\n".join(map(compact, rows)) + "]"


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    main()
