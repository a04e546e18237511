"""Somebody with the database's password, and not the fence, changes what a run is about to do, or what it is charged.

Every edit is made by hand, and hashes are made anew where that helps. The worker refuses the run and releases nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from app.context import Context
from app.db.database import Database
from app.entries import registering
from app.entries.kinds import EntryKind
from app.entries.records import record_from_canonical
from app.entries.registered import content_under
from app.entries.registering import Registration
from app.entries.subjects import Subject
from app.fence.marks import Reason
from app.fence.watching import fence_of
from app.kit.hash_chain import chain_hash
from app.reservations.service import release_due_holds
from app.runs import declarations, lifecycle, worker
from app.tables.runs import Run
from app.tables.states import REGISTER
from calibrators.plan import Plan
from tests.app.entries.found import forget_what_was_read
from tests.app.ledger import attacks
from tests.app.ledger.verdicts import verdict_on
from tests.app.runs.conftest import ROWS, Service

Change = Callable[[bytes], bytes]


def rewrite(database: Database, chain: str, place: int, change: Change) -> str:
    """Write an entry anew, with its hash and those of all that follow. Return the hash that the chain ends in."""
    statement = f"SELECT * FROM entries WHERE budget_id = '{chain}' AND sequence >= {place} ORDER BY sequence"
    rows = attacks.rows(database, statement)
    before: str = rows[0]["previous_hash"]
    changed = change(bytes(rows[0]["canonical"]))
    assert changed != bytes(rows[0]["canonical"])
    update = text(
        "UPDATE entries SET canonical = :canonical, previous_hash = :before, hash = :hash WHERE leaf_index = :place"
    )
    with attacks.attack(database) as connection:
        for row in rows:
            canonical = changed if row is rows[0] else bytes(row["canonical"])
            made = chain_hash(before, canonical)
            said = {"canonical": canonical, "before": before, "hash": made, "place": row["leaf_index"]}
            connection.execute(update, said)
            before = made
    return before


def place_of(database: Database, column: str, value: str) -> int:
    """The sequence of the first entry about something."""
    return int(
        attacks.rows(database, f"SELECT min(sequence) AS place FROM entries WHERE {column} = '{value}'")[0]["place"]
    )


def declare_public(database: Database, dataset_id: str) -> Change:
    """Declare a private data set public in its row; what does the same in its entry."""
    [row] = attacks.rows(database, f"SELECT budget_id, content_hash FROM datasets WHERE id = '{dataset_id}'")
    private, public = (content_under(root, dataset_id, 1, row["content_hash"]) for root in (row["budget_id"], None))
    attacks.run(database, f"UPDATE datasets SET is_public = TRUE, budget_id = NULL WHERE id = '{dataset_id}'")

    def change(canonical: bytes) -> bytes:
        changed = canonical.replace(b'"is_public":false', b'"is_public":true').replace(
            private.encode(), public.encode()
        )
        return changed.replace(f'"budget_id":"{row["budget_id"]}"'.encode(), b'"budget_id":null')

    return change


def assert_refused(service: Service, run: dict[str, Any]) -> None:
    service.work()
    ended = service.stored(run)
    assert ended.problem is not None, ended.state
    assert (ended.state, ended.problem["code"]) == ("failed", "declaration_altered")
    assert ended.result is None


@pytest.fixture
def dataset(service: Service) -> dict[str, Any]:
    """A private data set whose root budget has room for several runs."""
    budget = service.budget(filter={"kind": "renyi_dp", "epsilon": 20, "delta": 1e-5})
    return service.dataset(budget_id=budget["id"])


@pytest.mark.parametrize("is_known", [True, False])
def test_an_entry_that_was_written_anew_with_its_hash_is_refused(
    service: Service, dataset: dict[str, Any], is_known: bool
) -> None:
    """Also by a process that has read the register before."""
    database = service.context.database
    if is_known:
        service.trained(dataset_id=dataset["id"], budget_id=dataset["budget_id"])
    place = place_of(database, "subject_id", dataset["id"])
    change = declare_public(database, dataset["id"])
    [entry] = attacks.rows(database, f"SELECT * FROM entries WHERE subject_id = '{dataset['id']}'")
    canonical = change(bytes(entry["canonical"]))
    with attacks.attack(database) as connection:
        update = text("UPDATE entries SET canonical = :canonical, hash = :hash WHERE leaf_index = :place")
        hashed = chain_hash(entry["previous_hash"], canonical)
        connection.execute(update, {"canonical": canonical, "hash": hashed, "place": entry["leaf_index"]})
    assert entry["sequence"] == place
    assert_refused(service, service.queued(dataset_id=dataset["id"]))


@pytest.mark.parametrize("is_known", [True, False])
def test_a_register_whose_rest_was_written_anew_with_an_entry_is_refused(
    service: Service, dataset: dict[str, Any], is_known: bool
) -> None:
    """All hashes fit. The chain has another end than its row says, which is compared with the fence."""
    database = service.context.database
    if is_known:
        service.trained(dataset_id=dataset["id"], budget_id=dataset["budget_id"])
    change = declare_public(database, dataset["id"])
    run = service.queued(dataset_id=dataset["id"])
    rewrite(database, REGISTER, place_of(database, "subject_id", dataset["id"]), change)
    assert_refused(service, run)


def test_the_fence_takes_no_longer_chain_that_was_written_anew(service: Service, dataset: dict[str, Any]) -> None:
    """The old end keeps its hash beside its bytes until the fence would have the new one."""
    database, fence = service.context.database, fence_of(service.context)
    assert fence.check() is None
    change = declare_public(database, dataset["id"])
    [end] = attacks.rows(database, "SELECT * FROM registers")
    hashed = rewrite(database, REGISTER, place_of(database, "subject_id", dataset["id"]), change)
    last = f"SELECT * FROM entries WHERE budget_id = '{REGISTER}' AND sequence = {end['sequence']}"
    [row] = attacks.rows(database, last)
    more = dict(row, id="ent_more", sequence=row["sequence"] + 1, leaf_index=row["leaf_index"] + 100)
    more |= {"previous_hash": hashed, "hash": chain_hash(hashed, bytes(row["canonical"]))}
    with attacks.attack(database) as connection:
        names = list(more)
        values = ", ".join(f":{name}" for name in names)
        connection.execute(text(f"INSERT INTO entries ({', '.join(names)}) VALUES ({values})"), more)
        keep = text("UPDATE entries SET hash = :hash WHERE leaf_index = :leaf_index")
        connection.execute(keep, {"hash": end["head_hash"], "leaf_index": row["leaf_index"]})
        move = text("UPDATE registers SET sequence = :sequence, head_hash = :hash")
        connection.execute(move, {"sequence": more["sequence"], "hash": more["hash"]})
    found = fence.check()
    assert found is not None
    assert (found.reason, [each.budget_id for each in found.missing]) == (Reason.BEHIND, [REGISTER])


@pytest.mark.parametrize("subject", [Subject.DATASET, Subject.VERSION])
def test_what_is_registered_again_after_its_last_entry_is_refused(
    service: Service, dataset: dict[str, Any], subject: Subject
) -> None:
    """Entries are appended as the service makes them, so that the fence takes them."""
    context, subject_id = service.context, dataset["id"]
    if subject is Subject.VERSION:
        subject_id = service.version(dataset["id"])["id"]
    with context.database.write() as session:
        if subject is Subject.DATASET:
            registering.enter(session, context.clock(), [Registration(EntryKind.END, subject, subject_id)])
    if subject is Subject.DATASET:
        declare_public(context.database, dataset["id"])
    else:
        attacks.run(context.database, "UPDATE dataset_versions SET capacity = capacity + 1")
    with context.database.write() as session:
        registering.enter(session, context.clock(), [Registration(EntryKind.REGISTER, subject, subject_id)])
    charge = {} if subject is Subject.DATASET else {"budget_id": dataset["budget_id"]}
    assert_refused(service, service.queued(dataset_id=dataset["id"], **charge))


@pytest.fixture
def held(service: Service, dataset: dict[str, Any]) -> dict[str, Any]:
    """A run that waits, and the charge of another one, which cost less."""
    target = {"kind": "approximate_dp", "epsilon": 0.1, "delta": 1e-5}
    cheap = service.trained(dataset_id="ds_breast_cancer", budget_id=service.budget()["id"], target=target)
    run = service.queued(dataset_id=dataset["id"], budget_id=dataset["budget_id"])
    return {**run, "cheap": cheap["reservation_id"]}


@pytest.mark.parametrize(
    "change",
    [
        "cost = (SELECT cost FROM reservations WHERE id = '{cheap}')",
        "events = (SELECT events FROM reservations WHERE id = '{cheap}')",
        "plan_hash = (SELECT plan_hash FROM reservations WHERE id = '{cheap}')",
        "charge_delta = 0.5",
        "state = 'started'",
        "engine_version = '0'",
        "budget_id = (SELECT budget_id FROM reservations WHERE id = '{cheap}'), sequence = 999",
        "purpose = 'another'",
        "entry_hash = (SELECT entry_hash FROM reservations WHERE id = '{cheap}')",
        "dataset = NULL",
    ],
)
@pytest.mark.one_in(6)
def test_a_charge_whose_row_is_not_what_its_entries_say_is_refused(
    service: Service, held: dict[str, Any], change: str
) -> None:
    statement = f"UPDATE reservations SET {change.format(**held)} WHERE id = '{held['reservation_id']}'"
    attacks.run(service.context.database, statement)
    assert_refused(service, held)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_charge_that_was_written_anew_in_its_entries_is_refused(
    service: Service, dataset: dict[str, Any], held: dict[str, Any], is_known: bool
) -> None:
    """The entry that reserves and the row say a lower cost, and all hashes fit."""
    database = service.context.database
    if is_known:
        declarations.check(service.context, service.stored(held))
    of = "SELECT canonical FROM entries WHERE reservation_id = '{id}' ORDER BY sequence"
    statement = "UPDATE reservations SET cost = (SELECT cost FROM reservations WHERE id = '{cheap}') WHERE id = '{id}'"
    attacks.run(database, statement.format(cheap=held["cheap"], id=held["reservation_id"]))
    first = {
        name: bytes(attacks.rows(database, of.format(id=held[name]))[0]["canonical"]).partition(b"]")[0]
        for name in ("cheap", "reservation_id")
    }
    place = place_of(database, "reservation_id", held["reservation_id"])
    hashed = rewrite(
        database,
        dataset["budget_id"],
        place,
        lambda canonical: canonical.replace(first["reservation_id"], first["cheap"]),
    )
    attacks.run(database, f"UPDATE reservations SET entry_hash = '{hashed}' WHERE sequence = {place}")
    assert_refused(service, held)


def test_a_hold_that_has_expired_is_not_started_again(service: Service, dataset: dict[str, Any]) -> None:
    """Its row is put back to what it was."""
    run = service.queued(dataset_id=dataset["id"], budget_id=dataset["budget_id"])
    context = service.context
    late = context.clock() + timedelta(days=365)
    assert release_due_holds(replace(context, clock=lambda: late)) == 1
    attacks.run(
        context.database,
        "UPDATE reservations SET state = 'pending', resolved_at = NULL",
        "UPDATE budgets SET pending = (SELECT cost FROM reservations)",
    )
    assert_refused(service, run)


def test_a_budget_that_is_under_the_root_by_its_row_alone_pays_for_nothing(
    service: Service, dataset: dict[str, Any]
) -> None:
    other = service.budget()["id"]
    path = f"{dataset['budget_id']}/{other}"
    attacks.run(service.context.database, f"UPDATE budgets SET path = '{path}' WHERE id = '{other}'")
    assert_refused(service, service.queued(dataset_id=dataset["id"], budget_id=other))


@pytest.mark.parametrize("column", ["seed = 7", "steps_total = 1"])
def test_a_run_that_was_another_one_when_it_was_claimed_is_refused(
    service: Service, dataset: dict[str, Any], monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    """The row is put back before it is compared."""
    run = service.queued(dataset_id=dataset["id"], budget_id=dataset["budget_id"])
    database, claim = service.context.database, lifecycle.claim
    name = column.split(maxsplit=1)[0]
    [row] = attacks.rows(database, f"SELECT {name} FROM runs WHERE id = '{run['id']}'")
    attacks.run(database, f"UPDATE runs SET {column} WHERE id = '{run['id']}'")

    def claim_and_put_back(*arguments: Any) -> Any:
        claimed = claim(*arguments)
        value = "NULL" if row[name] is None else row[name]
        attacks.run(database, f"UPDATE runs SET {name} = {value} WHERE id = '{run['id']}'")
        return claimed

    monkeypatch.setattr(worker.lifecycle, "claim", claim_and_put_back)
    assert_refused(service, run)


@pytest.mark.parametrize("moment", ["timetable_for", "load_job"])
def test_what_is_changed_after_the_check_is_refused(
    service: Service, dataset: dict[str, Any], monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Scores on rows that are public are shown, and runs on them tell their progress."""
    run = service.queued(dataset_id=dataset["id"], budget_id=dataset["budget_id"])
    done = getattr(worker, moment)

    def change_first(*arguments: Any) -> Any:
        declare_public(service.context.database, dataset["id"])
        return done(*arguments)

    monkeypatch.setattr(worker, moment, change_first)
    assert_refused(service, run)


@pytest.mark.parametrize("change", ["cost = (SELECT cost FROM reservations WHERE id = '{cheap}')", "state = 'started'"])
def test_a_charge_that_is_changed_for_the_start_alone_draws_no_noise(
    service: Service, held: dict[str, Any], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """What the start enters is what the row says at that moment; or it enters nothing, as for a second claim."""
    database, start = service.context.database, lifecycle.start

    def change_first(context: Context, claimed: Run, plan: Plan, stream_id: str, *more: Any, **named: Any) -> None:
        attacks.run(database, f"UPDATE reservations SET {change.format(**held)} WHERE id = '{held['reservation_id']}'")
        attacks.run(database, f"UPDATE runs SET stream_id = '{stream_id}' WHERE id = '{held['id']}'")
        start(context, claimed, plan, stream_id, *more, **named)

    monkeypatch.setattr(worker.lifecycle, "start", change_first)
    assert_refused(service, held)


def test_a_process_that_has_read_a_chain_reads_on(service: Service, dataset: dict[str, Any]) -> None:
    """Runs go on in one process, in a new one, and after what a crash left ahead of the fence."""
    charge = {"dataset_id": "ds_breast_cancer", "budget_id": dataset["budget_id"]}
    service.trained(**charge, iterations=3)
    service.dataset(ROWS + "3,0.5,red,no\n", budget_id=dataset["budget_id"])
    service.trained(**charge, iterations=4)
    forget_what_was_read(service.context)
    service.trained(**charge, iterations=5)
    assert verdict_on(service.context.database).valid


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "change",
    [
        "cost = (SELECT cost FROM reservations WHERE id = '{cheap}')",
        "state = 'voided', resolved_at = created_at",
        "charge_delta = 0.5",
        "state = 'pending'",
    ],
)
def test_a_charge_that_is_changed_while_its_run_is_trained_is_not_lowered(
    service: Service, held: dict[str, Any], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """The run has its model, and fails: nothing is entered of the row that somebody has written."""
    database, end = service.context.database, lifecycle.end
    statement = f"UPDATE reservations SET {change.format(**held)} WHERE id = '{held['reservation_id']}'"

    def change_first(*arguments: Any) -> bool:
        attacks.run(database, statement)
        return end(*arguments)

    monkeypatch.setattr(worker.lifecycle, "end", change_first)
    service.work()
    ended = service.stored(held)
    about = f"SELECT canonical FROM entries WHERE reservation_id = '{held['reservation_id']}' ORDER BY sequence"
    entered = [record_from_canonical(bytes(row["canonical"])) for row in attacks.rows(database, about)]
    assert {record.amounts for record in entered} == {entered[0].amounts}
    if ended.state == "succeeded":
        # The entry charges in full, whatever the row said of its state.
        assert [str(record.kind) for record in entered] == ["reserve", "start", "commit"]
        assert change == "state = 'pending'"
        return
    assert (ended.state, ended.problem["code"]) == ("failed", "declaration_altered")
    assert ended.result is None
    assert [str(record.kind) for record in entered] == ["reserve", "start"]
    assert not list((service.context.settings.data_dir / "models").glob(f"{held['id']}*"))
    assert not verdict_on(database).valid
