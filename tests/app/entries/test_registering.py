"""What decides a charge is in the books: an edited column, a forged row and a forged principal are named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Table, delete, insert, select, text, update

from app.auth import repository as keys
from app.auth import service as auth
from app.auth.principal import Scope
from app.db.database import Database
from app.entries import registering
from app.entries.kinds import EntryKind
from app.entries.registered import REGISTERED, content_under
from app.entries.registering import Registration
from app.entries.subjects import LATER, Subject
from app.kit.hash_chain import chain_hash
from app.ledger.recovery import rebuild_tables
from app.ledger.statements import RESERVATIONS
from app.ledger.transparency import verified
from app.runs import declarations
from app.runs.lifecycle import RefusedError
from app.tables.base import UtcDateTime
from app.tables.states import REGISTER
from tests.app.entries.found import forget_register, told_of
from tests.app.ledger import attacks
from tests.app.ledger.verdicts import first_bad, verdict_on
from tests.app.run_sweeps.conftest import BEST, Sweeps
from tests.app.runs.conftest import ROWS, Service
from tests.databases import on_one_engine

AUDIT = {"trials": 100, "delta": 1e-5, "seed": 3}


@pytest.fixture
def lived_in(service: Service) -> Service:
    """A service with data sets, keys, runs and audits, some of which have ended."""
    budget, run = service.private()
    service.work()
    gone = service.dataset(ROWS + "3,0.5,red,no\n", budget_id=budget["id"])
    assert service.client.delete(f"/v1/datasets/{gone['id']}").status_code == 204
    dataset_id = service.stored(run).dataset_id
    assert dataset_id is not None
    service.version(dataset_id)
    _, cancelled = service.charged()
    assert service.post(f"/v1/runs/{cancelled['id']}/cancel").status_code == 200
    service.charged()
    answer = service.post("/v1/audits", {"run_id": run["id"], **AUDIT})
    assert answer.status_code == 201, answer.text
    context = service.context
    kept, ended = (auth.create_key(context, name, [Scope.ANALYST], budgets=[budget["id"]]) for name in "ab")
    assert kept is not None
    assert ended is not None
    with context.database.write() as session:
        auth.rotate_key(session, context, kept.id, timedelta(hours=1))
    assert auth.revoke_key(context, ended.id)
    assert verified(context).valid
    return service


@contextmanager
def unchecked(database: Database, table: Table) -> Iterator[Connection]:
    """A connection on which no constraint of the table stands in the way."""
    with attacks.attack(database) as connection:
        if database.is_sqlite:
            connection.execute(text("PRAGMA ignore_check_constraints = ON"))
        else:
            found = text("SELECT conname FROM pg_constraint WHERE conrelid = :name ::regclass AND contype = 'c'")
            for (name,) in connection.execute(found, {"name": table.name}).all():
                connection.execute(text(f"ALTER TABLE {table.name} DROP CONSTRAINT {name}"))
        yield connection


def another(value: Any, kind: type) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, datetime):
        return value + timedelta(seconds=1)
    if isinstance(value, bytes):
        return value + b" "
    if isinstance(value, str):
        return "another"
    if value is not None:
        return ["another"]
    return {str: "another", int: 7, float: 0.5, datetime: datetime.fromisoformat("2026-01-01T00:00:00Z")}.get(
        kind, ["another"]
    )


def kind_of(column: Any) -> type:
    if isinstance(column.type, UtcDateTime):
        return datetime
    found: type = column.type.python_type
    return found


@pytest.mark.parametrize("subject", Subject)
def test_every_edited_column_is_named(lived_in: Service, subject: Subject) -> None:
    database, registered = lived_in.context.database, REGISTERED[subject]
    table = registered.table
    with database.read() as session:
        rows = session.execute(select(table)).all()
    assert rows
    for row in rows:
        open_run = registered.ended_states and row._mapping["finished_at"] is None
        for column in table.c:
            if column.name in registered.untold or column.name == "id":
                continue
            if open_run and column.name not in registered.columns(EntryKind.REGISTER):
                continue
            before = row._mapping[column.name]
            with unchecked(database, table) as connection:
                changed = another(before, kind_of(column))
                connection.execute(update(table).where(table.c.id == row.id).values({column.name: changed}))
            reason = first_bad(database).reason
            assert reason == f"the column {column.name} of the {subject} {row.id} is not what the register says"
            with unchecked(database, table) as connection:
                connection.execute(update(table).where(table.c.id == row.id).values({column.name: before}))
    assert verdict_on(database).valid


def test_a_run_that_has_not_ended_is_in_no_state_of_those_that_have(lived_in: Service) -> None:
    database = lived_in.context.database
    attacks.run(database, "UPDATE runs SET state = 'succeeded' WHERE state = 'queued'")
    assert "the column state of the run" in first_bad(database).reason


@pytest.mark.parametrize("subject", Subject)
def test_rows_that_are_forged_or_gone_are_named(lived_in: Service, subject: Subject) -> None:
    database, table = lived_in.context.database, REGISTERED[subject].table
    with database.read() as session:
        row = session.execute(select(table).order_by(table.c.id.desc())).first()
    assert row is not None
    unique = {"token_hash": "f" * 64, "reservation_id": None, "version": 99}
    forged = {**row._mapping, "id": "forged", **{name: unique[name] for name in unique if name in table.c}}
    with unchecked(database, table) as connection:
        connection.execute(insert(table).values(forged))
    assert first_bad(database).reason == f"the {subject} forged was never registered"
    with unchecked(database, table) as connection:
        connection.execute(delete(table).where(table.c.id.in_(["forged", row.id])))
    assert first_bad(database).reason == f"the {subject} {row.id} has no row"


@pytest.mark.parametrize("subject", Subject)
def test_what_is_registered_twice_hides_no_stranger(lived_in: Service, subject: Subject) -> None:
    """As many entries as rows: what has ended, or never changes, is registered again, and a row is forged."""
    context, table = lived_in.context, REGISTERED[subject].table
    twice = [row for row in attacks.entries(context.database) if f'"subject":"{subject}"'.encode() in row["canonical"]][
        -1
    ]["subject_id"]
    kinds = [EntryKind.REGISTER, *([EntryKind.END] if EntryKind.END in LATER[subject] else [])]
    told = told_of(context, twice)
    assert told is not None
    with context.database.write() as session:
        if not told.is_final:
            registering.enter(session, context.clock(), [Registration(EntryKind.END, subject, twice)])
        registering.enter(session, context.clock(), [Registration(kind, subject, twice) for kind in kinds])
        row = session.execute(select(table).where(table.c.id == twice)).one()
    unique = {"token_hash": "f" * 64, "reservation_id": None, "version": 99}
    forged = {**row._mapping, "id": "forged", **{name: unique[name] for name in unique if name in table.c}}
    with unchecked(context.database, table) as connection:
        connection.execute(insert(table).values(forged))
    bad = first_bad(context.database)
    assert (bad.budget_id, bad.reason) == (REGISTER, f"{twice} is registered already")
    assert bad.leaf_index is not None


def test_a_content_without_its_row_is_named(lived_in: Service) -> None:
    attacks.run(lived_in.context.database, "UPDATE dataset_contents SET content_hash = 'x' || substr(content_hash, 2)")
    assert "has no row in dataset_contents" in first_bad(lived_in.context.database).reason


@pytest.mark.parametrize("how", ["cut", "row", "head"])
def test_an_end_of_the_register_that_is_cut_or_moved_is_named(lived_in: Service, how: str) -> None:
    statement = {
        "cut": "DELETE FROM entries WHERE budget_id = 'register' AND sequence = (SELECT sequence FROM registers)",
        "row": "UPDATE registers SET sequence = sequence - 1",
        "head": f"UPDATE registers SET head_hash = '{'f' * 64}'",
    }[how]
    attacks.run(lived_in.context.database, statement)
    bad = first_bad(lived_in.context.database)
    assert bad.budget_id == REGISTER
    assert "the register's row says" in bad.reason


@on_one_engine
def test_who_never_had_a_key_made_no_entry(lived_in: Service) -> None:
    """A whole chain by a principal that does not exist."""
    context = lived_in.context
    with context.database.write() as session:
        [key] = [row for row in keys.list_all(session) if row.revoked_at is None]
        entered = Registration(EntryKind.CHANGE, Subject.KEY, key.id, "key_nobody")
        registering.enter(session, context.clock(), [entered])
    bad = first_bad(context.database)
    assert (bad.budget_id, bad.reason) == (REGISTER, "its principal key_nobody never had a key")
    assert bad.leaf_index is not None


@on_one_engine
def test_no_entry_says_the_keyed_hash_of_rows(service: Service) -> None:
    ids = [service.dataset(budget_id=service.budget()["id"])["id"]]
    first = told_of(service.context, ids[0])
    assert first is not None
    stored = attacks.rows(service.context.database, "SELECT content_hash FROM dataset_contents")
    assert first.columns["content_hash"] not in [row["content_hash"] for row in stored]


@on_one_engine
def test_the_register_begins_with_what_was_there(service: Service) -> None:
    """As after a migration: rows that no entry has said anything of are entered before anything new, once."""
    budget, run = service.private()
    service.work()
    database = service.context.database
    forget_register(service.context)
    assert verified(service.context).valid
    with database.write() as session:
        registering.begin(session, service.context.clock())
    assert verified(service.context).valid
    told = told_of(service.context, run["id"])
    assert told is not None
    assert told.has_ended
    count = len(attacks.entries(database))
    with database.write() as session:
        registering.begin(session, service.context.clock())
    assert len(attacks.entries(database)) == count
    service.dataset(ROWS + "3,0.5,red,no\n", budget_id=budget["id"])
    assert verified(service.context).valid


@on_one_engine
def test_the_register_tells_of_no_trial_but_the_one_that_is_released(service: Service) -> None:
    """How many trials a sweep for the best makes is secret: no entry counts them, also where the register begins."""
    sweeps = Sweeps(service.client, service.context)
    sweep = sweeps.paid(**BEST | {"trials": {"kind": "poisson", "expected_trials": 4}})

    def registered() -> set[str]:
        rows = attacks.entries(sweeps.context.database)
        return {row["subject_id"] for row in rows if (row["subject_id"] or "").startswith("run_")}

    with sweeps.context.database.write() as session:
        registering.begin(session, sweeps.context.clock())
    assert registered() == set()
    assert verified(sweeps.context).valid
    sweeps.work_all()
    ended = sweeps.sweep(sweep)
    best = ended["best"]
    assert registered() == (set() if best is None else {best["run_id"]})
    assert verified(sweeps.context).valid


@on_one_engine
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE datasets SET is_public = TRUE, budget_id = NULL",
        "UPDATE datasets SET capacity = capacity + 1",
        "UPDATE runs SET reservation_id = NULL",
        "UPDATE runs SET seed = 7",
        "UPDATE runs SET is_withheld = TRUE, seed = 7",
        "UPDATE entries SET canonical = 'x' WHERE subject_id LIKE 'ds_%'",
        "DELETE FROM entries WHERE subject_id LIKE 'run_%'",
        "UPDATE reservations SET run_id = 'run_another'",
        "UPDATE runs SET dataset_version = 2",
        """UPDATE reservations SET dataset = '{"content": "", "id": "ds_another", "version": 1}'""",
    ],
)
def test_a_worker_refuses_what_is_not_as_registered(service: Service, statement: str) -> None:
    _, run = service.private()
    attacks.run(service.context.database, statement)
    service.work()
    ended = service.stored(run)
    assert ended.problem is not None
    assert (ended.state, ended.problem["code"]) == ("failed", "declaration_altered")


@on_one_engine
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs SET seed = 7",
        """UPDATE runs SET model = '{"kind": "mean"}'""",
        "UPDATE run_sweep_cells SET draft = NULL",
        "UPDATE runs SET sweep_cell = NULL",
        "UPDATE runs SET sweep_id = NULL",
    ],
)
def test_a_worker_refuses_a_trial_that_is_not_its_cells(service: Service, statement: str) -> None:
    """No entry tells of trials, so that a forged one would be trained beside what the sweep has drawn."""
    sweeps = Sweeps(service.client, service.context)
    sweep = sweeps.paid(**BEST)
    (trial,) = sweeps.runs_of(sweep)
    declarations.check(service.context, trial)
    attacks.run(service.context.database, statement)
    with pytest.raises(RefusedError, match="declaration_altered"):
        declarations.check(service.context, service.stored({"id": trial.id}))


@on_one_engine
def test_a_worker_refuses_an_entry_that_was_changed_with_its_row(service: Service) -> None:
    """The bytes say what the row says, and do not have their hash."""
    _, run = service.private()
    database = service.context.database
    [entry] = [row for row in attacks.entries(database) if row["subject_id"] == service.stored(run).dataset_id]
    changed = bytes(entry["canonical"]).replace(b'"declared_size":"1000"', b'"declared_size":"999"')
    assert changed != bytes(entry["canonical"])
    with attacks.attack(database) as connection:
        statement = text("UPDATE entries SET canonical = :canonical WHERE leaf_index = :place")
        connection.execute(statement, {"canonical": changed, "place": entry["leaf_index"]})
        connection.execute(text("UPDATE datasets SET declared_size = 999 WHERE NOT is_bundled"))
    service.work()
    ended = service.stored(run)
    assert ended.problem is not None
    assert (ended.state, ended.problem["code"]) == ("failed", "declaration_altered")


@on_one_engine
def test_a_run_on_private_data_without_a_charge_is_named(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Private rows are declared public, row and entry alike, for as long as a run takes, and everything is put back.

    The worker is one that compares nothing.
    """
    monkeypatch.setattr(declarations._Check, "check", lambda *_: None)
    budget = service.budget()
    dataset = service.dataset(budget_id=budget["id"])
    database = service.context.database
    [entry] = [row for row in attacks.entries(database) if row["subject_id"] == dataset["id"]]
    changed = bytes(entry["canonical"]).replace(b'"is_public":false', b'"is_public":true')
    changed = changed.replace(f'"budget_id":"{budget["id"]}"'.encode(), b'"budget_id":null')
    [row] = attacks.rows(database, f"SELECT content_hash FROM datasets WHERE id = '{dataset['id']}'")
    private, public = (content_under(root, dataset["id"], 1, row["content_hash"]) for root in (budget["id"], None))
    changed = changed.replace(private.encode(), public.encode())

    def declare(canonical: bytes, public: bool) -> None:
        hashed = chain_hash(entry["previous_hash"], canonical)
        said = {"canonical": canonical, "hash": hashed, "place": entry["leaf_index"]}
        row = {"public": public, "budget": None if public else budget["id"], "id": dataset["id"]}
        with attacks.attack(database) as connection:
            statement = "UPDATE entries SET canonical = :canonical, hash = :hash WHERE leaf_index = :place"
            connection.execute(text(statement), said)
            statement = "UPDATE datasets SET is_public = :public, budget_id = :budget WHERE id = :id"
            connection.execute(text(statement), row)

    declare(changed, True)
    run = service.queued(dataset_id=dataset["id"])
    service.work()
    assert service.stored(run).state == "succeeded", service.stored(run).problem
    declare(bytes(entry["canonical"]), False)
    assert (
        first_bad(database).reason == f"the run {run['id']} is on private data, and no charge to their root is for it"
    )


@on_one_engine
def test_the_charge_of_a_sweep_is_for_its_runs(service: Service) -> None:
    sweeps = Sweeps(service.client, service.context)
    sweeps.private_sweep()
    assert verdict_on(service.context.database).valid
    sweeps.work_all()
    assert verdict_on(service.context.database).valid
    attacks.run(service.context.database, "UPDATE run_sweeps SET reservation_id = NULL")
    assert "is on private data, and no charge" in first_bad(service.context.database).reason


@on_one_engine
def test_a_charge_names_its_data(service: Service) -> None:
    _, run = service.private()
    [row] = attacks.rows(service.context.database, "SELECT dataset FROM reservations")
    body = service.get(f"/v1/budgets/{service.stored(run).budget_id}/entries")
    [reserved] = [entry for entry in body["items"] if entry["kind"] == "reserve"]
    assert reserved["dataset"]["id"] == service.stored(run).dataset_id
    assert reserved["dataset"]["version"] == 1
    attacks.run(service.context.database, "UPDATE reservations SET dataset = NULL")
    assert "the column dataset of the reservation" in first_bad(service.context.database).reason
    with service.context.database.write() as session:
        assert rebuild_tables(session).reservations == 1
    with service.context.database.read() as session:
        assert session.execute(select(RESERVATIONS.c.dataset)).scalar_one() == reserved["dataset"] | {"version": 1}
    assert row


def test_the_register_is_listed(lived_in: Service) -> None:
    lived_in = lived_in.with_key(Scope.AUDITOR)
    items = lived_in.get("/v1/ledger/register?limit=200")["items"]
    assert [item["sequence"] for item in items] == list(range(1, len(items) + 1))
    assert {item["subject"] for item in items} == set(Subject)
    key = next(item["subject_id"] for item in items if item["kind"] == "change")
    about = lived_in.get(f"/v1/ledger/register?subject_id={key}")["items"]
    assert [item["kind"] for item in about] == ["register", "change"]
    assert about[0]["says"]["scopes"] == ["analyst"]
    ends = lived_in.get("/v1/ledger/register?kind=end")["items"]
    assert {item["subject"] for item in ends} == {"dataset", "key", "run"}


def test_what_no_entry_says_has_a_reason() -> None:
    assert {name: set(each.untold) for name, each in REGISTERED.items() if each.untold} == {
        "key": {"last_used_at"},
        "run": {"heartbeat", "stream_id"},
    }
