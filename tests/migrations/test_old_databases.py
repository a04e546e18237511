"""A database of any earlier revision, with what the code of the time wrote into it, is right after every migration.

The rows come from `tests/migrations/make_rows.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Boolean, DateTime, LargeBinary, create_engine, inspect, select, text

from app.audits import service as audits
from app.audits.schemas import AuditRequest
from app.auth import database_secrets as secrets
from app.auth.database_secrets import SecretRefused
from app.auth.service import authenticate
from app.datasets import repository
from app.datasets import service as datasets
from app.datasets.files import DatasetFiles
from app.datasets.table import Table
from app.db.database import Database
from app.db.migrate import MIGRATIONS, upgrade
from app.fence.watching import fenced_context
from app.kit.process_pool import ProcessPool
from app.ledger.recovery import Rebuilt, rebuild_tables
from app.ledger.rows import budget_state
from app.ledger.states import plus
from app.ledger.verification import verify
from app.main import create_app
from app.runs import service as runs
from app.runs import worker
from app.runs.stored import stored_plan
from app.secrets.material import Purpose
from app.settings import Settings
from app.tables.datasets import Dataset
from app.tables.ledger import Budget, Reservation
from tests.databases import DatabaseFactory, on_postgresql
from tests.local_access import local_client
from trainer.audit.held_out import TWO_CLASSES

ROWS = {path.stem: path for path in (Path(__file__).parent / "rows").glob("*.json")}
REVISIONS = sorted(revision.revision for revision in ScriptDirectory(str(MIGRATIONS)).walk_revisions())
#: `make test` goes on from one in the middle, and from the first and the last of those that have rows of their own.
QUICK = {min(ROWS), max(ROWS), REVISIONS[len(REVISIONS) // 2]}


#: By the revision of rows: where paths begin whose bodies the code of the time read otherwise. It remembers another
#: request than the same body is now, as where a run that named no relation meant add_or_remove_one.
OTHER_REQUESTS = {"0004": ("/v1/",), "0006": ("/v1/runs",)}


class Old:
    """A database that was filled at an earlier revision and is at the newest one now."""

    def __init__(
        self, url: str, made: dict[str, Any], folder: Path, revision: str, pools: dict[str, ProcessPool]
    ) -> None:
        self.made, self.revision = made, revision
        self.now = datetime.fromisoformat(made["now"])
        folder.mkdir()
        (folder / "secret.key").write_bytes(bytes.fromhex(made["secret"]))
        settings = Settings(data_dir=folder, database_url=url, workers=0)
        self.context = fenced_context(settings, Database(url), lambda: self.now, **pools)
        self.has_keys = "api_keys" in self.tables
        headers = {"Authorization": f"Bearer {made['token']}"} if self.has_keys else {}
        self.client = local_client(create_app(self.context), headers=headers)
        self._keys = 0

    @property
    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """The rows that there were."""
        return {table: rows for table, rows in self.made["rows"].items() if table in self.made["present"]}

    def post(self, path: str, body: Any = None, key: str | None = None) -> Any:
        self._keys += 1
        return self.client.post(path, json=body, headers={"Idempotency-Key": key or f"new-{self._keys}"})

    def get(self, path: str) -> Any:
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def check(self) -> None:
        """The books are valid, and rebuild the state without changing anything."""
        with self.context.database.read() as session:
            verdict = verify(session)
        assert verdict.valid, verdict.in_words()
        with self.context.database.write() as session:
            assert rebuild_tables(session) == Rebuilt(entries=verdict.entries)


def rows_for(revision: str) -> Path:
    """Rows of this revision, of the next one that has some, or of the last one."""
    return ROWS[min((name for name in ROWS if name >= revision), default=max(ROWS))]


#: The URL of a database that was filled at a revision and is at the newest one, and what was made for it.
Upgraded = Callable[[DatabaseFactory, str], tuple[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def upgraded() -> Upgraded:
    """Each is made once, for every test to work on a copy."""

    @cache
    def upgraded(databases: DatabaseFactory, revision: str) -> tuple[str, dict[str, Any]]:
        made = json.loads(rows_for(revision).read_text())
        url = databases.empty()
        upgrade(url, min(revision, made["revision"]))
        present = insert(url, made["rows"])
        upgrade(url, revision)
        upgrade(url)
        return url, {**made, "present": present}

    return upgraded


@pytest.fixture(params=[pytest.param(each, marks=() if each in QUICK else pytest.mark.thorough) for each in REVISIONS])
def old(
    request: pytest.FixtureRequest,
    databases: DatabaseFactory,
    upgraded: Upgraded,
    tmp_path: Path,
    pools: dict[str, ProcessPool],
) -> Iterator[Old]:
    revision: str = request.param
    original, made = upgraded(databases, revision)
    url = databases.copy_of(original)
    found = Old(url, made, tmp_path / "data", revision, pools)
    yield found
    found.context.database.dispose()
    databases.drop(url)


def insert(url: str, tables: dict[str, list[dict[str, Any]]]) -> set[str]:
    """Insert the rows into the tables and columns that there are, as plain SQL; the names of the tables."""
    engine = create_engine(url)
    is_sqlite = engine.dialect.name == "sqlite"
    inspector = inspect(engine)
    present = set(inspector.get_table_names()) & set(tables)
    with engine.begin() as connection:
        for table in sorted(present, key=list(tables).index):
            types = {column["name"]: column["type"] for column in inspector.get_columns(table)}
            for row in tables[table]:
                values = {name: stored(row[name], types[name], is_sqlite) for name in row if name in types}
                marks = ", ".join(f":{name}" if is_sqlite else f"%({name})s" for name in values)
                statement = f"INSERT INTO {table} ({', '.join(map(quoted, values))}) VALUES ({marks})"
                connection.exec_driver_sql(statement, values)
        if not is_sqlite:
            statement = "SELECT setval(pg_get_serial_sequence('entries', 'leaf_index'), max(leaf_index)) FROM entries"
            connection.execute(text(statement))
    engine.dispose()
    return present


def quoted(name: str) -> str:
    return f'"{name}"'


def stored(value: Any, kind: Any, is_sqlite: bool) -> Any:
    """A value as SQLite has it, as the engine has it."""
    if isinstance(value, dict):
        return value["utf8"].encode()
    if isinstance(kind, DateTime) and value is not None and not is_sqlite:
        return f"{value}+00:00"
    assert not isinstance(kind, Boolean | LargeBinary) or value is None or isinstance(value, bool)
    return value


def test_the_amounts_are_what_they_were(old: Old) -> None:
    old.check()
    with old.context.database.read() as session:
        budgets = {budget.id: budget for budget in session.scalars(select(Budget))}
        reservations = {row.id: row for row in session.scalars(select(Reservation))}
    before = {row["id"]: row for row in old.tables["budgets"]}
    assert set(budgets) == set(before)
    for budget_id, row in before.items():
        state = budget_state(budgets[budget_id])
        assert list(state.spent) == json.loads(row["spent"])
        if "reserved" in row:
            assert list(state.reserved) == json.loads(row["reserved"])
            started = [each for each in old.tables["reservations"] if each["state"] == "started"]
            total = state.filter.zero
            for each in started:
                if each["budget_id"] == budget_id:
                    total = plus(total, tuple(json.loads(each["cost"])))
            assert state.started == total
        else:
            assert (list(state.started), list(state.pending)) == (
                json.loads(row["started"]),
                json.loads(row["pending"]),
            )
        assert state.filter.to_json() == json.loads(row["filter"])
        assert (budgets[budget_id].headroom, budgets[budget_id].head_hash) == (row["headroom"], row["head_hash"])
    assert set(reservations) == {row["id"] for row in old.tables["reservations"]}
    for row in old.tables["reservations"]:
        now = reservations[row["id"]]
        assert (now.state, now.sequence, now.purpose) == (row["state"], row["sequence"], row["purpose"])
        assert list(now.cost) == json.loads(row["cost"])
        assert now.charged == (None if row["charged"] is None else tuple(json.loads(row["charged"])))


@on_postgresql
@pytest.mark.one_in(1000)
def test_the_ledger_goes_on(old: Old) -> None:
    for row in old.tables["reservations"]:
        path = f"/v1/reservations/{row['id']}"
        shown = old.get(path)
        assert shown["state"] == row["state"]
        if row["run_id"] is not None:
            continue
        if row["state"] == "started":
            assert old.post(f"{path}/commit").status_code == 200
        elif row["purpose"] == "pending":
            assert old.post(f"{path}/extend", {"expires_in": 10**6}).status_code == 200
            assert old.post(f"{path}/void").status_code == 200
        elif row["purpose"] == "whole":
            answer = old.post(
                f"/v1/budgets/{row['budget_id']}/corrections", {"reservation_id": row["id"], "reason": "r"}
            )
            assert answer.status_code == 201, answer.text
            assert answer.json()["charged"] == shown["charged"]
    for budget in old.get("/v1/budgets?limit=200")["items"]:
        again = next(row for row in old.tables["reservations"] if row["budget_id"] == budget["id"])
        events = old.get(f"/v1/reservations/{again['id']}")["events"]
        body = {"events": [{**events[0], "count": 1}], "purpose": "new"}
        held = old.post(f"/v1/budgets/{budget['id']}/reservations", body)
        assert held.status_code == 201, held.text
        assert old.post(f"/v1/reservations/{held.json()['id']}/commit").status_code == 200
        below = {**budget, "name": "below", "parent_id": budget["id"]}
        terms = {name: below[name] for name in ("name", "parent_id", "neighboring_relation", "filter")}
        child = old.post("/v1/budgets", terms)
        assert child.status_code == 201, child.text
        assert old.post(f"/v1/budgets/{child.json()['id']}/reservations", body).status_code == 201
        assert old.get(f"/v1/budgets/{budget['id']}?delta=1e-6")["report"]["different_steps"] > 0
        entries = old.get(f"/v1/budgets/{budget['id']}/entries?limit=200")["items"]
        assert entries[-1]["kind"] == "commit"
    old.check()


@pytest.mark.one_in(4)
def test_holds_that_ran_out_make_room(old: Old) -> None:
    late = [row for row in old.tables["reservations"] if row["purpose"] == "late" and row["state"] == "pending"]
    assert late, "there are some"
    old.now += timedelta(days=30)
    for budget in old.get("/v1/budgets?limit=200")["items"]:
        events = [{"mechanism": {"kind": "pure_dp", "epsilon": 1000}}]
        body: dict[str, Any] = {"events": events, "purpose": "too much"}
        refused = old.post(f"/v1/budgets/{budget['id']}/reservations", body)
        assert refused.status_code == 409, refused.text
    for row in late:
        assert old.get(f"/v1/reservations/{row['id']}")["state"] == "expired"
    old.check()


@pytest.mark.one_in(4)
def test_what_was_answered_is_answered_again_and_never_done_again(old: Old) -> None:
    """Also a denial stays what it was, whatever room there is by now."""
    records = {row["key"]: json.loads(row["answer"]) for row in old.tables["idempotency_records"]}
    old.now += timedelta(days=1)
    requests = [request for request in old.made["requests"] if request["with_key"] == old.has_keys]
    remembered = [request for request in requests if request["key"] in records]
    assert {200, 201, 409} <= {request["status"] for request in remembered}
    with old.context.database.read() as session:
        before = verify(session)
    replayed = 0
    for request in remembered:
        answer = old.post(request["path"], request["body"], key=request["key"])
        read_otherwise = request["path"].startswith(OTHER_REQUESTS.get(old.made["revision"], ()))
        if read_otherwise and answer.json().get("code") == "idempotency_key_reused":
            continue
        replayed += 1
        assert answer.status_code == request["status"], answer.text
        assert answer.headers["Idempotency-Replayed"] == "true"
        if request["status"] != 409:
            assert answer.json() == records[request["key"]]["body"]
    assert replayed > 3
    with old.context.database.read() as session:
        assert verify(session) == before


def test_the_first_start_enters_the_secrets_that_there_are(old: Old, tmp_path: Path) -> None:
    """Keys of then go on, also over a rotation; a server with another secret is refused from now on."""
    assert secrets.listed(old.context) == []
    secrets.admit(old.context)
    other = Settings(data_dir=tmp_path / "other", database_url=old.context.database.url, secret_key="k" * 32)
    with pytest.raises(SecretRefused, match="The content secret is not the one of this database"):
        secrets.admit(fenced_context(other, old.context.database))
    assert secrets.rotate(old.context, Purpose.KEYS) == 2
    if old.has_keys:
        assert authenticate(old.context, old.made["token"]) is not None, "under the first version, then the second"
        assert secrets.retire(old.context, Purpose.KEYS, 1).revoked == []
        assert authenticate(old.context, old.made["token"]) is not None


@pytest.mark.one_in(4)
def test_runs_are_read_as_they_were_and_their_plans_can_be_audited(old: Old) -> None:
    """Plans, targets and reports of before there were other models, targets and algorithms."""
    before = {row["id"]: row for row in old.tables.get("runs", [])}
    assert bool(before) == (old.revision >= "0004")
    listed = old.get("/v1/runs?limit=200")["items"]
    assert {run["id"] for run in listed} == set(before)
    assert old.get("/v1/audits")["items"] == []
    for run in listed:
        row = before[run["id"]]
        assert (run["state"], run["plan_hash"]) == (row["state"], row["plan_hash"])
        assert run["model"]["kind"] == json.loads(row["model"])["kind"]
        report = old.get(f"/v1/runs/{run['id']}/report")
        assert report["target"] == json.loads(row["target"])
        assert report["achieved"] == json.loads(row["achieved"])
        assert "differentially private" in report["statement"]
        assert report["literal"] is None
        request = AuditRequest(run_id=run["id"], trials=10, seed=1)
        with old.context.database.read() as session:
            plan = stored_plan(runs.get(session, run["id"]))
        found = audits.Audited(plan, audits.attack(plan.canonical(), TWO_CLASSES, request.model_dump(), seconds=60.0))
        with old.context.database.write() as session:
            identifier = audits.store(session, old.context, "loopback", request, found).id
        [audit] = old.get(f"/v1/audits?run_id={run['id']}")["items"]
        assert (audit["id"], audit["plan_hash"], audit["verdict"]) == (identifier, run["plan_hash"], "consistent")
    old.check()


@pytest.mark.one_in(4)
def test_data_sets_get_room_for_twice_their_declared_size(old: Old) -> None:
    """A set of then that is fuller is named to its owner, and its runs fail without a charge."""
    before = {row["id"]: row for row in old.tables.get("datasets", [])}
    assert bool(before) == (old.revision >= "0003")
    with old.context.database.read() as session:
        now = {dataset.id: dataset for dataset in session.scalars(select(Dataset))}
        for bundled in ("ds_breast_cancer", "ds_diabetes", "ds_digits"):
            assert now.pop(bundled).capacity == datasets.load(old.context, session, bundled).capacity
        assert set(now) == set(before)
        for dataset_id, row in before.items():
            assert now[dataset_id].capacity == 2 * row["declared_size"]
        # What a content is bound to follows from its data sets.
        for row in old.tables.get("dataset_contents", []):
            roots = {row["root_budget_id"]} - {None}
            assert repository.roots_of_content(session, row["content_hash"]) == roots
    private = [row for row in before.values() if row["budget_id"] is not None and row["deleted_at"] is None]
    assert bool(private) == bool(before)
    files = DatasetFiles(old.context.settings.data_dir, old.context.settings.encryption)
    for row in private:
        for more, codes in ((0, []), (1, ["dataset_too_full"])):
            rows = 2 * row["declared_size"] + more
            table = Table(features=np.zeros((rows, 1)), labels=np.zeros(rows, np.int64), values_clipped=0, content=b"")
            files.write(row["id"], table)
            shown = old.get(f"/v1/datasets/{row['id']}")
            assert shown["capacity"] == 2 * row["declared_size"]
            assert [warning["code"] for warning in shown["warnings"]] == codes
        runs_of_then = [each for each in old.tables.get("runs", []) if each["dataset_id"] == row["id"]]
        queued = [each for each in runs_of_then if each["state"] == "queued"]
        assert bool(queued) == (old.revision >= "0004"), "there is one that waits"
        while worker.work_once(old.context, "wrk_test"):
            pass
        for run in queued:
            failed = old.get(f"/v1/runs/{run['id']}")
            assert (failed["state"], failed["problem"]["code"]) == ("failed", "dataset_too_full")
            assert "Nothing was charged" in failed["problem"]["detail"]
            assert old.get(f"/v1/reservations/{run['reservation_id']}")["state"] == "voided"
    old.check()
