"""What decides a charge is in the books: an edited column, a forged row and a forged principal are named."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
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
from app.entries.subjects import FIRST_SUBJECTS, LATER, Subject
from app.fence.watching import fenced_context
from app.kit.hash_chain import chain_hash
from app.kit.process_pool import ProcessPool
from app.ledger.books_repository import STATE_TABLES
from app.ledger.export_verification import verify_export
from app.ledger.recovery import rebuild_tables
from app.ledger.register_verification import CELLS, SWEEPS
from app.ledger.repository import get_budget
from app.ledger.statements import RESERVATIONS
from app.ledger.transparency import verified
from app.main import create_app
from app.runs import declarations
from app.runs.failures import RefusedError
from app.settings import Settings
from app.tables.base import UtcDateTime
from app.tables.states import REGISTER
from app.webhooks import service as webhooks
from app.webhooks.schemas import WebhookRequest
from tests.app.entries.found import forget_register, told_of
from tests.app.ledger import attacks
from tests.app.ledger.test_stored_values import changed
from tests.app.ledger.verdicts import first_bad, verdict_on
from tests.app.run_sweeps.conftest import BEST, Draws, Sweeps, draws
from tests.app.runs.conftest import ROWS, Service
from tests.conftest import RELEASE_INTERVAL_S
from tests.databases import DatabaseFactory, on_one_engine
from tests.local_access import local_client

__all__ = ["draws"]

RUNS = REGISTERED[Subject.RUN].table
#: No entry says these, so that nothing is wrong whatever stands there.
UNTOLD = {name for each in REGISTERED.values() for name in each.untold}
AUDIT = {"trials": 100, "delta": 1e-5, "seed": 3}


def webhook(service: Service, budget_id: str) -> str:
    """Register one, at an address that nobody asks; its id."""
    request = WebhookRequest.model_validate({"url": "https://hooks.example/a", "events": ["denied"]})
    with service.context.database.write() as session:
        return webhooks.register(session, service.context, get_budget(session, budget_id), request, "loopback").id


#: A database and its data folder, by the factory that made the database.
Lives = dict[DatabaseFactory, tuple[str, Path]]


@pytest.fixture(scope="module")
def lives() -> Lives:
    return {}


@pytest.fixture
def lived_in(
    databases: DatabaseFactory, lives: Lives, pools: dict[str, ProcessPool], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service on a copy of what `live` leaves: each test may do with it what it likes."""
    if databases not in lives:
        url, folder = databases.migrated(), tmp_path_factory.mktemp("life")
        with service_on(url, folder, pools) as service:
            live(service)
        lives[databases] = url, folder
    url, folder = lives[databases]
    copy = databases.copy_of(url)
    with service_on(copy, shutil.copytree(folder, tmp_path_factory.mktemp("copy") / "data"), pools) as service:
        yield service
    databases.drop(copy)


@contextmanager
def service_on(url: str, folder: Path, pools: dict[str, ProcessPool]) -> Iterator[Service]:
    settings = Settings(data_dir=folder, database_url=url, workers=0, release_interval_s=RELEASE_INTERVAL_S)
    database = Database(url)
    context = fenced_context(settings, database, **pools)
    with local_client(create_app(context)) as client:
        yield Service(client, context)
    database.dispose()


def live(service: Service) -> None:
    """Leave data sets, keys, runs, sweeps, audits and webhooks, some of which have ended."""
    budget, run = service.private()
    service.work()
    sweeps = Sweeps(service.client, service.context)
    sweeps.paid(**BEST | {"trials": {"kind": "poisson", "expected_trials": 0.5}})
    sweeps.work_all()
    gone = service.dataset(ROWS + "3,0.5,red,no\n", budget_id=budget["id"])
    assert service.client.delete(f"/v1/datasets/{gone['id']}").status_code == 204
    dataset_id = service.stored(run).dataset_id
    assert dataset_id is not None
    service.version(dataset_id)
    sweeps.paid(**BEST)
    _, cancelled = service.charged()
    assert service.post(f"/v1/runs/{cancelled['id']}/cancel").status_code == 200
    service.charged()
    answer = service.post("/v1/audits", {"run_id": run["id"], **AUDIT})
    assert answer.status_code == 201, answer.text
    context = service.context
    kept, ended = (auth.create_key(context, name, [Scope.ANALYST], budgets=[budget["id"]]) for name in "ab")
    assert kept is not None
    assert ended is not None
    gone, told = (webhook(service, budget["id"]) for _ in range(2))
    with context.database.write() as session:
        webhooks.remove(session, context, gone, "loopback")
        webhooks.change(session, context, told, "loopback", secret_version=2, state="disabled")
    with context.database.write() as session:
        auth.rotate_key(session, context, kept.id, timedelta(hours=1))
    assert auth.revoke_key(context, ended.id)
    assert verified(context).valid


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


@pytest.mark.parametrize("subject", REGISTERED)
@pytest.mark.one_in(8)
def test_every_edited_column_is_named(lived_in: Service, subject: Subject) -> None:
    database, registered = lived_in.context.database, REGISTERED[subject]
    table = registered.table
    with database.read() as session:
        rows = session.execute(select(table).where(registered.rows(table))).all()
    assert rows
    for row in rows:
        is_open = registered.ends is not None and row._mapping[registered.ends] is None
        for column in table.c:
            if column.name in registered.untold or column.name == "id":
                continue
            if is_open and column.name not in registered.columns(EntryKind.REGISTER):
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


@on_one_engine
@pytest.mark.parametrize("value", ["1000000000000", "'x'", "x'00ff'", "1.5"])
@pytest.mark.parametrize("table", [table.name for table in STATE_TABLES])
@pytest.mark.one_in(24)
def test_a_value_of_another_kind_is_named_with_its_row(lived_in: Service, table: str, value: str) -> None:
    """SQLite takes any value in any column. An integer in the place of bytes is no request for so much memory."""
    database = lived_in.context.database
    rows = attacks.rows(database, f'SELECT * FROM "{table}"')
    [where] = [each for each in STATE_TABLES if each.name == table]
    keys = [column.name for column in where.primary_key]
    for row in rows[:1]:
        chosen = " AND ".join(f"{key} = {row[key]!r}" for key in keys)
        for column in where.c:
            held = row[column.name]
            if column.name in keys or str(held) == value or column.name in UNTOLD:
                continue
            with changed(database, table, f'"{column.name}"', value, chosen):
                bad = verdict_on(database).first_bad
            assert bad is not None, column.name
            reason = bad.reason
            if reason.startswith("a stored value"):
                row_of = ", ".join(repr(row[key]) for key in keys)
                place = f"the column {column.name} of {table}, in the row of {row_of}"
                assert reason == f"a stored value is not of its column's kind: {place}"
            else:
                # It is of the kind, or is seen to be another value: then that is said, with the place.
                names = [column.name, *(str(row[key]) for key in keys), "budget's row", "head", "on private data"]
                assert any(name in reason for name in names), (column.name, reason)
    assert verdict_on(database).valid


def test_a_run_that_has_not_ended_is_in_no_state_of_those_that_have(lived_in: Service) -> None:
    database = lived_in.context.database
    attacks.run(database, "UPDATE runs SET state = 'succeeded' WHERE state = 'queued'")
    assert "the column state of the run" in first_bad(database).reason


@pytest.mark.parametrize("subject", REGISTERED)
@pytest.mark.one_in(4)
def test_rows_that_are_forged_or_gone_are_named(lived_in: Service, subject: Subject) -> None:
    database, table = lived_in.context.database, REGISTERED[subject].table
    with database.read() as session:
        statement = select(table).where(REGISTERED[subject].rows(table)).order_by(table.c.id.desc())
        row = session.execute(statement).first()
    assert row is not None
    unique = {"token_hash": "f" * 64, "reservation_id": None, "version": 99}
    forged = {**row._mapping, "id": "forged", **{name: unique[name] for name in unique if name in table.c}}
    with unchecked(database, table) as connection:
        connection.execute(insert(table).values(forged))
    assert first_bad(database).reason == f"the {subject} forged was never registered"
    with unchecked(database, table) as connection:
        connection.execute(delete(table).where(table.c.id.in_(["forged", row.id])))
    assert first_bad(database).reason == f"the {subject} {row.id} has no row"


@pytest.mark.parametrize("subject", REGISTERED)
@pytest.mark.one_in(8)
def test_what_is_registered_twice_hides_no_stranger(lived_in: Service, subject: Subject, tmp_path: Path) -> None:
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
    # Who has the file alone finds the same.
    export = tmp_path / "export.ndjson"
    export.write_bytes(lived_in.with_key(Scope.AUDITOR).client.get("/v1/ledger/export").content)
    found = verify_export(export).first_bad
    assert found is not None
    assert (found.budget_id, found.sequence, found.reason) == (REGISTER, bad.sequence, bad.reason)


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
    assert (bad.budget_id, bad.reason) == (REGISTER, "the principal key_nobody of the entry never had a key")
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
@pytest.mark.one_in(4)
def test_a_worker_refuses_what_is_not_as_registered(service: Service, statement: str) -> None:
    _, run = service.private()
    attacks.run(service.context.database, statement)
    service.work()
    ended = service.stored(run)
    assert ended.problem is not None
    assert (ended.state, ended.problem["code"]) == ("failed", "declaration_altered")


#: Of a sweep, each with what whoever writes it wants.
OF_A_SWEEP = {
    "another law": """UPDATE run_sweeps SET trials = '{"kind": "poisson", "expected_trials": 900.0}'""",
    "no release before": "UPDATE run_sweeps SET score = NULL",
    "all of them": "UPDATE run_sweeps SET \"select\" = 'all'",
    "a further cell": 'INSERT INTO run_sweep_cells SELECT sweep_id, 7, "values", plan_hash, achieved, draft '
    "FROM run_sweep_cells WHERE number = 1",
    "a cell less": "DELETE FROM run_sweep_cells WHERE number = 2",
    "another grid": """UPDATE run_sweep_cells SET "values" = '[99]'""",
    "another charge": "UPDATE run_sweeps SET reservation_id = NULL",
    "no entry": "DELETE FROM entries WHERE substr(subject_id, 1, 4) = 'swp_'",
}


@pytest.mark.parametrize("what", OF_A_SWEEP)
@pytest.mark.one_in(5)
def test_a_worker_makes_no_trial_of_a_sweep_that_is_not_as_registered(
    service: Service, draws: Draws, what: str
) -> None:
    draws.cells = [2]
    sweeps = Sweeps(service.client, service.context)
    sweep = sweeps.paid(**BEST)
    (trial,) = sweeps.runs_of(sweep)
    declarations.check(service.context, trial)
    attacks.run(service.context.database, OF_A_SWEEP[what])
    with pytest.raises(RefusedError, match="declaration_altered"):
        declarations.check(service.context, trial)


@pytest.mark.thorough
def test_what_is_written_into_a_cell_and_its_trial_is_refused(service: Service) -> None:
    """The trial is what its cell says; but the cell is not what was charged."""
    sweeps = Sweeps(service.client, service.context)
    sweep = sweeps.paid(**BEST)
    with attacks.attack(service.context.database) as connection:
        for number, draft in connection.execute(select(CELLS.c.number, CELLS.c.draft)).all():
            changed = draft | {"warnings": ["another"]}
            connection.execute(update(CELLS).where(CELLS.c.number == number).values(draft=changed))
        connection.execute(update(RUNS).values(warnings=["another"]))
    sweeps.work_all()
    assert sweeps.sweep(sweep)["state"] == "failed"
    assert "the cells of the sweep" in first_bad(service.context.database).reason


def test_a_trial_that_somebody_inserts_is_not_made_and_does_not_count(service: Service, draws: Draws) -> None:
    """It is a whole trial but for its id, which nobody can find without the secret."""
    draws.trials, draws.cells = 2, [0, 1]
    sweeps = Sweeps(service.client, service.context)
    sweep = sweeps.paid(**BEST)
    (trial,) = sweeps.runs_of(sweep)
    forged = {**{column.name: getattr(trial, column.name) for column in RUNS.c}, "id": "run_aaaaforged"}
    with attacks.attack(service.context.database) as connection:
        connection.execute(insert(RUNS).values(forged))
    sweeps.work_all()
    ended = service.stored({"id": "run_aaaaforged"})
    assert (ended.state, ended.stream_id, ended.result) == ("failed", None, None)
    trials = sweeps.trials(sweep)
    made = {run.id for run in sweeps.runs_of(sweep)} - {"run_aaaaforged"}
    assert made == {trials.id_of(0), trials.id_of(1)}
    assert sweeps.sweep(sweep)["best"]["run_id"] in made


@pytest.mark.thorough  # test_a_flag_that_is_cleared_before_the_claim_is_refused is shorter
def test_a_trial_whose_flag_is_cleared_is_not_published(service: Service, draws: Draws) -> None:
    draws.trials, draws.cells = 2, [0, 1]
    sweeps = Sweeps(service.client, service.context)
    sweep = sweeps.paid(**BEST)
    sweeps.work()
    first = next(run.id for run in sweeps.runs_of(sweep) if run.state == "succeeded")

    def shown() -> set[int]:
        paths = ("", "/report", "/model", "/model?format=npz", "/events")
        return {service.client.get(f"/v1/runs/{first}{path}").status_code for path in paths}

    attacks.run(service.context.database, f"UPDATE runs SET is_withheld = FALSE WHERE id = '{first}'")
    assert (shown(), service.get("/v1/runs")["items"]) == ({404}, [])
    # Also where the sweep is said to have released it: its model lies where no request looks.
    attacks.run(service.context.database, f"UPDATE run_sweeps SET best_run_id = '{first}'")
    for path in ("model", "model?format=npz"):
        answer = service.client.get(f"/v1/runs/{first}/{path}")
        assert (answer.status_code, answer.json()["code"]) == (409, "model_not_released")
    attacks.run(service.context.database, "UPDATE run_sweeps SET best_run_id = NULL")
    attacks.run(service.context.database, "UPDATE runs SET is_withheld = TRUE")
    sweeps.work_all()
    best = sweeps.sweep(sweep)["best"]["run_id"]
    assert service.client.get(f"/v1/runs/{best}/model").status_code == 200
    assert verdict_on(service.context.database).valid


def test_a_flag_that_is_cleared_before_the_claim_is_refused(service: Service) -> None:
    sweeps = Sweeps(service.client, service.context)
    sweep = sweeps.paid(**BEST)
    attacks.run(service.context.database, "UPDATE runs SET is_withheld = FALSE")
    sweeps.work()
    (trial,) = sweeps.runs_of(sweep)
    assert (trial.state, trial.stream_id) == ("failed", None)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("what", ["another law", "a cell less", "no release before"])
def test_nothing_is_released_of_a_sweep_that_was_altered_between_its_trials(
    service: Service, draws: Draws, what: str
) -> None:
    draws.trials, draws.cells = 2, [0, 1]
    sweeps = Sweeps(service.client, service.context)
    sweeps.paid(**BEST)
    sweeps.work()
    attacks.run(service.context.database, OF_A_SWEEP[what])
    sweeps.work_all()
    with service.context.database.read() as session:
        ended = session.execute(select(SWEEPS.c.outcome, SWEEPS.c.best_run_id)).one()
    assert tuple(ended) == ("failed", None)
    assert list((service.context.settings.data_dir / "models").glob("*")) == []


@pytest.mark.parametrize("is_revived", [False, True])
@pytest.mark.one_in(1000)
def test_a_sweep_that_has_ended_makes_no_trial(service: Service, draws: Draws, is_revived: bool) -> None:
    draws.trials, draws.cells = 2, [0, 1]
    sweeps = Sweeps(service.client, service.context)
    sweep = sweeps.paid(**BEST)
    sweeps.work_all()
    loser = next(run for run in sweeps.runs_of(sweep) if run.is_withheld)
    if is_revived:
        ended = "outcome = NULL, finished_at = NULL, best_run_id = NULL"
        attacks.run(service.context.database, f"UPDATE run_sweeps SET {ended}")
    with pytest.raises(RefusedError, match="declaration_altered"):
        declarations.check(service.context, loser)


@pytest.mark.thorough  # test_the_register_begins_with_what_was_there is shorter
def test_what_the_register_did_not_have_yet_is_entered_with_the_next_entry(service: Service) -> None:
    """Build a database whose register is older than its sweeps."""
    sweeps = Sweeps(service.client, service.context)
    ended = sweeps.paid(**BEST | {"trials": {"kind": "poisson", "expected_trials": 0.5}})
    sweeps.work_all()
    database = service.context.database
    forget_register(service.context, FIRST_SUBJECTS)
    assert verified(service.context).valid
    assert not {row["subject_id"] for row in attacks.entries(database)} & {REGISTER, ended["id"]}
    opened = sweeps.paid(**BEST)
    old, new = (told_of(service.context, each["id"]) for each in (ended, opened))
    assert old is not None and old.has_ended  # noqa: PT018
    assert new is not None and not new.has_ended  # noqa: PT018
    assert verified(service.context).valid
    attacks.run(database, f"UPDATE run_sweeps SET sweep_hash = 'f' WHERE id = '{ended['id']}'")
    assert "the column sweep_hash of the sweep" in first_bad(database).reason


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
@pytest.mark.one_in(5)
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

    # Its leaf is in the tree before: nobody puts the other one there meanwhile.
    assert verified(service.context).valid
    declare(changed, True)
    run = service.queued(dataset_id=dataset["id"])
    service.work()
    assert service.stored(run).state == "succeeded", service.stored(run).problem
    declare(bytes(entry["canonical"]), False)
    assert (
        first_bad(database).reason
        == f"the run {run['id']} is on private data, but no charge to their root budget belongs to it"
    )


@on_one_engine
def test_the_charge_of_a_sweep_is_for_its_runs(service: Service) -> None:
    sweeps = Sweeps(service.client, service.context)
    sweeps.private_sweep()
    assert verdict_on(service.context.database).valid
    sweeps.work_all()
    assert verdict_on(service.context.database).valid
    attacks.run(service.context.database, "UPDATE run_sweeps SET reservation_id = NULL")
    assert "the column reservation_id of the sweep" in first_bad(service.context.database).reason


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
    key = next(item["subject_id"] for item in items if (item["kind"], item["subject"]) == ("change", "key"))
    about = lived_in.get(f"/v1/ledger/register?subject_id={key}")["items"]
    assert [item["kind"] for item in about] == ["register", "change"]
    assert about[0]["says"]["scopes"] == ["analyst"]
    ends = lived_in.get("/v1/ledger/register?kind=end")["items"]
    assert {item["subject"] for item in ends} == {"dataset", "key", "run", "sweep", "webhook"}


def test_what_no_entry_says_has_a_reason() -> None:
    assert {name: set(each.untold) for name, each in REGISTERED.items() if each.untold} == {
        "key": {"last_used_at"},
        "run": {"heartbeat", "stream_id"},
        "webhook": {"dropped"},
    }


def test_a_webhook_is_entered_with_who_registered_and_who_deleted_it(service: Service) -> None:
    """No entry has the address itself, in which a receiver may have put a secret; a row that comes back is named."""
    budget = service.budget()
    gone = webhook(service, budget["id"])
    database = service.context.database
    [row] = attacks.rows(database, "SELECT * FROM webhooks")
    by = auth.create_key(service.context, "owner", [Scope.OWNER])
    assert by is not None
    with database.write() as session:
        webhooks.change(session, service.context, gone, by.id, state="disabled")
        webhooks.change(session, service.context, gone, by.id, state="disabled")
        webhooks.remove(session, service.context, gone, by.id)
    entries = [entry for entry in attacks.entries(database) if entry["subject_id"] == gone]
    assert [(entry["kind"], entry["principal_id"]) for entry in entries] == [
        ("register", "loopback"),
        ("change", by.id),
        ("end", by.id),
    ]
    assert not any(b"hooks.example" in bytes(entry["canonical"]) for entry in entries)
    assert budget["id"].encode() in bytes(entries[0]["canonical"])
    assert verdict_on(database).valid
    table = REGISTERED[Subject.WEBHOOK].table
    with attacks.attack(database) as connection:
        values = {**row, "created_at": service.context.clock(), "events": ["denied"], "fractions": []}
        connection.execute(insert(table).values(values))
    assert first_bad(database).reason == f"the webhook {gone} has ended according to the register, but still has a row"
