"""Entries: what they say, that they cannot be changed, that they explain the state, and how they are found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from accounting import ENGINE_VERSION
from accounting.canonical import Json, canonical_bytes, canonical_text
from accounting.events import Event, Gaussian, Poisson
from app.context import Context
from app.entries.kinds import ChargedData, EntryKind
from app.entries.records import EntryRecord, record_from_canonical
from app.kit.hash_chain import GENESIS, chain_hash
from app.kit.ids import new_id
from app.ledger.amounts import numbers
from app.ledger.commands import ApproveLimit, AskLimit, EnterLoss, LimitDecision, RefuseLimit, WithdrawLimit
from app.ledger.journal import Instruction, carry_out
from app.ledger.rebuild import BrokenChain, Link, rebuild
from app.ledger.transitions import Transition
from app.reservations import service
from app.reservations.service import SERVICE
from app.tables.ledger import Budget
from tests.app.budgets.conftest import Api, Clock, gaussian, made, zcdp
from tests.app.ledger.audit import audit, links
from tests.app.problem_assertions import assert_problem

FILTERS: list[tuple[dict[str, Any], list[Any]]] = [
    ({"kind": "zcdp", "rho": "3"}, [zcdp(0.1, count=3), gaussian(10.0, count=2, sampling_probability=0.1)]),
    ({"kind": "pure_dp", "epsilon": 2}, [{"mechanism": {"kind": "laplace", "noise_multiplier": 30}, "count": 3}]),
    (
        {"kind": "approximate_dp", "epsilon": 4, "delta": 1e-5},
        [{"mechanism": {"kind": "laplace", "noise_multiplier": 30}, "count": 3}],
    ),
    ({"kind": "gaussian_dp", "mu": 1}, [gaussian(20.0, count=3)]),
    ({"kind": "renyi_dp", "epsilon": 4, "delta": 1e-6}, [gaussian(20.0, count=3, sampling_probability=0.5)]),
]
KINDS = [
    "create",
    *["reserve"] * 6,
    "extend",
    "start",
    "commit",
    "commit",
    "void",
    "start",
    "expire",
    "reserve",
    "correct",
    "correct",
    "correct",
    "limit",
    "ask",
    "approve",
    "limit",
    "ask",
    "refuse",
    "ask",
    "withdraw",
    "loss",
]


def _live(api: Api, clock: Clock, context: Context, budget_filter: dict[str, Any], events: list[Any]) -> str:
    """A budget with one reservation of every fate, corrections and a changed limit."""
    budget_id: str = api.budget(budget_filter, labels={"a": "b"}, report_delta=1e-6)["id"]
    held = [api.hold(budget_id, events[:1], expires_in=54 + number, purpose=f"q{number}") for number in range(6)]
    made(api.resolve(held[0], "extend", {"expires_in": 7200}))
    made(api.resolve(held[0], "start"))
    made(api.resolve(held[0], "commit"))
    made(api.resolve(held[1], "commit", {"events": [{**events[0], "count": 2}]}))
    made(api.resolve(held[2], "void"))
    made(api.resolve(held[3], "start"))
    clock.advance(60)
    assert service.release_due_holds(context) == 2
    api.hold(budget_id, events)
    made(api.correct(budget_id, reservation_id=held[0]["id"], events=[{**events[0], "count": 1}], reason="too much"))
    made(api.correct(budget_id, reservation_id=held[3]["id"]))
    made(api.correct(budget_id, events=events[:1], reason="by hand"))
    made(api.change_limit(budget_id, {**budget_filter, **_more(budget_filter)}))
    _ask(context, budget_id, ("a", ApproveLimit("first", 2)), ("b", ApproveLimit("second", 2)))
    _ask(context, budget_id, ("a", RefuseLimit("enough")))
    _ask(context, budget_id, ("asker", WithdrawLimit()))
    loss = Instruction(EnterLoss("disk failed", {"missing": None, "life": "2"}), SERVICE, budget_id)
    with context.database.write() as session:
        carry_out(session, context.database, [loss], clock())
    return budget_id


def _ask(context: Context, budget_id: str, *decisions: tuple[str, LimitDecision]) -> None:
    """Ask for a limit half as large again, as two must approve; then decide."""
    request_id = new_id("lim")
    with context.database.write() as session:
        limit = session.get_one(Budget, budget_id).filter
        wanted = limit.with_limit({**numbers(limit.to_json()), **_more(limit.to_json(), 6.75)})
        asked = Instruction(AskLimit(request_id, wanted, "more", 2), "asker", budget_id)
        steps = [asked, *(Instruction(command, who, request_id) for who, command in decisions)]
        for step in steps:
            (outcome,) = carry_out(session, context.database, [step], context.clock())
            assert isinstance(outcome, Transition), outcome


def _more(budget_filter: Mapping[str, Any], amount: float = 4.5) -> dict[str, Any]:
    field = next(name for name in ("rho", "mu", "epsilon") if name in budget_filter)
    return {field: amount}


#: The register has a chain of its own, and kinds of its own.
OF_BUDGETS = set(EntryKind) - {EntryKind.REGISTER, EntryKind.CHANGE, EntryKind.END}


@pytest.mark.parametrize(("budget_filter", "events"), FILTERS, ids=[str(case[0]["kind"]) for case in FILTERS])
@pytest.mark.one_in(4)
def test_entries_rebuild_the_state(
    api: Api, clock: Clock, context: Context, budget_filter: dict[str, Any], events: list[Any]
) -> None:
    budget_id = _live(api, clock, context, budget_filter, events)
    with context.database.read() as session:
        history = audit(session, budget_id)
    states = sorted(str(state.status) for state in history.reservations.values())
    assert states == [*["committed"] * 3, *["expired"] * 2, "pending", "started", "voided"]
    assert any(history.spent)
    assert any(history.started)
    assert any(history.pending)
    kinds = [*KINDS[:14], "expire", *KINDS[14:]]
    assert api.kinds(budget_id) == kinds
    assert set(kinds) == OF_BUDGETS


def test_an_entry_says_what_happened(api: Api, clock: Clock, context: Context) -> None:
    budget_id = _live(api, clock, context, *FILTERS[0])
    entries = api.entries(budget_id)
    assert [entry["sequence"] for entry in entries] == list(range(1, len(entries) + 1))
    assert sorted({entry["leaf_index"] for entry in entries}) == [entry["leaf_index"] for entry in entries]
    assert len({entry["id"] for entry in entries}) == len(entries) == 28
    assert all(entry["id"].startswith("ent_") and entry["budget_id"] == budget_id for entry in entries)
    assert entries[0]["previous_hash"] == GENESIS
    assert [entry["previous_hash"] for entry in entries[1:]] == [entry["hash"] for entry in entries[:-1]]
    assert {entry["engine_version"] for entry in entries} == {ENGINE_VERSION}


# What the first entry of each kind says: its amount, the counts of its events, its purpose, its reason, its principal.
SAYS = """
kind     amount  counts  purpose  reason    principal
create   3.0     -       -        -         loopback
reserve  0.3     3       q0       -         loopback
extend   0.3     -       q0       -         loopback
start    0.3     -       q0       -         loopback
commit   0.3     3       q0       -         loopback
void     0.3     -       q2       -         loopback
expire   0.3     -       q4       -         service
correct  0.1     1       q0       too much  loopback
limit    4.5     -       -        approved  loopback
ask      6.75    -       -        more      asker
approve  0.0     -       -        first     a
refuse   0.0     -       -        enough    a
withdraw 0.0     -       -        -         asker
loss     0.0     -       -        disk_failed service
"""


def test_each_kind_of_entry_holds_what_the_documents_say(api: Api, clock: Clock, context: Context) -> None:
    entries = api.entries(_live(api, clock, context, *FILTERS[0]))
    lines = SAYS.strip().splitlines()[1:]
    assert {line.split()[0] for line in lines} == OF_BUDGETS
    for line in lines:
        kind, amount, counts, purpose, reason, principal = (
            part.strip() for part in line.replace("too much", "too_much").split()
        )
        entry = next(each for each in entries if each["kind"] == kind)
        assert entry["amount"] == {"rho": float(amount)}, line
        assert [str(event["count"]) for event in entry["events"]] == ([] if counts == "-" else [counts]), line
        assert entry["purpose"] == (None if purpose == "-" else purpose), line
        assert entry["reason"] == (None if reason == "-" else reason.replace("_", " ")), line
        assert entry["principal_id"] == principal, line
    part = entries[10]
    assert (part["kind"], part["amount"], part["events"][0]["count"]) == ("commit", {"rho": 0.2}, 2)
    repriced, charged = entries[17], entries[18]
    assert (repriced["amount"], repriced["purpose"], repriced["reason"]) == ({"rho": 0.3}, "q3", "told by mistake")
    assert (charged["amount"], charged["purpose"], charged["reason"]) == ({"rho": 0.3}, "by hand", "by hand")


def test_entries_are_found_by_kind_time_purpose_mechanism_and_principal(
    api: Api, clock: Clock, context: Context
) -> None:
    budget_id = _live(api, clock, context, *FILTERS[0])
    path = f"/v1/budgets/{budget_id}/entries"

    def found(**params: Any) -> list[int]:
        return [entry["sequence"] for entry in api.get(path, **params).json()["items"]]

    assert found(kind="commit") == [10, 11]
    assert found(purpose="q0") == [2, 8, 9, 10, 17]
    assert found(purpose="nobody's") == []
    assert found(after="2026-05-01T00:01:00Z") == list(range(14, 29))
    assert found(before="2026-05-01T00:01:00Z") == list(range(1, 14))
    assert found(after="2026-05-01T02:01:00+02:00", kind="reserve") == [16]
    assert found(after="2026-05-01T00:00:00Z", before="2026-05-01T00:00:01Z", purpose="q3") == [5, 13]
    assert found(mechanism="gaussian") == [16]
    assert found(mechanism="zcdp") == list(range(2, 20))
    assert found(mechanism="zcd") == found(mechanism="zcd_") == found(mechanism="laplace") == []
    assert found(principal_id="service") == [14, 15, 28]
    assert found(principal_id="loopback", kind="correct") == [17, 18, 19]
    assert found(made_by="the service") == found(made_by="service") == [14, 15, 28]
    assert found(made_by="this machine", kind="correct") == [17, 18, 19]
    first = api.get(path, kind="reserve", limit=4).json()
    assert [entry["sequence"] for entry in first["items"]] == [2, 3, 4, 5]
    assert found(kind="reserve", limit=4, cursor=first["next_cursor"]) == [6, 7, 16]
    newest = api.get(path, kind="reserve", limit=4, newest_first=True).json()
    assert [entry["sequence"] for entry in newest["items"]] == [16, 7, 6, 5]
    assert found(kind="reserve", newest_first=True, cursor=newest["next_cursor"]) == [4, 3, 2]
    assert_problem(api.get(path, kind="refund"), 422, "invalid_request", "/query/kind")
    assert_problem(api.get(path, after="yesterday"), 422, "invalid_request", "/query/after")
    assert_problem(api.get(path, before="2026-05-01T00:00:00"), 422, "invalid_request", "/query/before")
    assert_problem(api.get(path, mechanism="%"), 422, "invalid_request", "/query/mechanism")


def test_the_entries_of_one_budget_are_not_anothers(api: Api) -> None:
    first, second = api.budget(), api.budget()
    api.hold(second["id"], [zcdp(0.1)])
    child = api.child(first)
    api.hold(child["id"], [zcdp(0.1)])
    assert (api.kinds(first["id"]), api.kinds(second["id"])) == (["create"], ["create", "reserve"])
    leaves = [entry["leaf_index"] for budget in (first, second, child) for entry in api.entries(budget["id"])]
    assert len(set(leaves)) == 5


def test_the_bytes_of_an_entry_hold_what_a_later_reader_needs(api: Api, context: Context) -> None:
    budget = api.budget({"kind": "approximate_dp", "epsilon": 4, "delta": 1e-5}, labels={"a": "b"})
    child = api.child(budget, {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6}, name="child")
    held = api.hold(child["id"], [gaussian(20.0)], charge={"delta": 1e-7}, expires_in=60)
    made(api.resolve(held, "extend", {"expires_in": 120}))
    made(api.resolve(held, "commit"))
    made(api.correct(child["id"], reservation_id=held["id"], events=[gaussian(20.0, 2)]))
    made(api.change_limit(child["id"], {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-6}))
    with context.database.read() as session:
        records = [record_from_canonical(link.canonical) for link in links(session, child["id"])]
    create, reserve, extend, commit, correct, limit = (dict(record.details or {}) for record in records)
    assert create == {
        "name": "child",
        "neighboring_relation": "add_or_remove_one",
        "privacy_unit": "record",
        "filter": {"kind": "approximate_dp", "epsilon": "1", "delta": "1e-06"},
        "report_delta": None,
        "labels": {},
        "parent_id": budget["id"],
        "path": f"{budget['id']}/{child['id']}",
    }
    assert (reserve["expires_at"], reserve["charge_delta"]) == ("2026-05-01T00:01:00Z", "1e-07")
    assert (reserve["run_id"], reserve["plan_hash"], reserve["warnings"]) == (None, None, [])
    assert extend == {"expires_at": "2026-05-01T00:02:00Z"}
    assert commit == {}
    assert (correct["reason"], correct["events_replaced"]) == ("told by mistake", True)
    assert correct["before"] == [str(amount) for amount in records[3].amounts]
    assert limit == {
        "filter": {"kind": "approximate_dp", "epsilon": "2", "delta": "1e-06"},
        "reason": "approved",
    }
    assert [record.amounts for record in records][::5] == [(10**9, 10**12), (2 * 10**9, 10**12)]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET kind = 'void' WHERE sequence = 2",
        "UPDATE entries SET hash = previous_hash",
        "UPDATE entries SET mechanisms = ''",
        "DELETE FROM entries WHERE sequence = 2",
        "DELETE FROM entries",
    ],
)
def test_the_database_refuses_to_change_or_delete_an_entry(api: Api, context: Context, statement: str) -> None:
    api.hold(api.budget()["id"], [zcdp(0.1)])
    with pytest.raises(DBAPIError, match="append-only"), context.database.write() as session:
        session.execute(text(statement))


def test_the_database_refuses_to_replace_or_truncate_entries(api: Api, context: Context) -> None:
    api.budget()
    if context.database.is_sqlite:
        statement = "INSERT OR REPLACE INTO entries SELECT * FROM entries WHERE sequence = 1"
    else:
        statement = "TRUNCATE entries"
    with pytest.raises(DBAPIError, match="append-only"), context.database.write() as session:
        session.execute(text(statement))


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        ("UPDATE budgets SET headroom = -1", "ck_budgets_within_limit"),
        ("UPDATE budgets SET sequence = -1", "ck_budgets_sequence"),
        ("UPDATE reservations SET state = 'committed'", "ck_reservations_charged_when_committed"),
        ("UPDATE reservations SET charged = '[1]'", "ck_reservations_charged_when_committed"),
        ("UPDATE reservations SET state = 'voided'", "ck_reservations_resolved_at"),
        ("UPDATE reservations SET state = 'open'", "ck_reservations"),
        ("UPDATE exposed_steps SET count = -1", "ck_exposed_steps_count"),
    ],
)
@pytest.mark.one_in(4)
def test_the_database_refuses_what_the_ledger_never_writes(
    api: Api, context: Context, statement: str, constraint: str
) -> None:
    budget_id = api.budget()["id"]
    made(api.resolve(api.hold(budget_id, [zcdp(0.1)]), "start"))
    with pytest.raises(DBAPIError, match=constraint), context.database.write() as session:
        session.execute(text(statement))


def test_the_database_refuses_two_entries_in_one_place(api: Api, context: Context) -> None:
    api.budget()
    columns = "budget_id, sequence, kind, principal_id, mechanisms, recorded_at, canonical, previous_hash, hash"
    copy = f"INSERT INTO entries (id, {columns}) SELECT 'ent_x', {columns} FROM entries"
    with pytest.raises(DBAPIError), context.database.write() as session:
        session.execute(text(copy))


def test_a_changed_chain_is_noticed_at_the_first_bad_entry(api: Api, clock: Clock, context: Context) -> None:
    budget_id = _live(api, clock, context, *FILTERS[0])
    with context.database.read() as session:
        chain = links(session, budget_id)
    assert rebuild(chain).sequence == len(chain)
    flipped = replace(chain[4], canonical=chain[4].canonical.replace(b'"q3"', b'"q9"'))
    rehashed = replace(flipped, hash=chain_hash(flipped.previous_hash, flipped.canonical))
    tampered: list[tuple[list[Link], int]] = [
        ([*chain[:4], flipped, *chain[5:]], 5),
        ([*chain[:4], rehashed, *chain[5:]], 6),
        ([*chain[:4], rehashed, replace(chain[5], previous_hash=rehashed.hash), *chain[6:]], 6),
        ([*chain[:4], *chain[5:]], 5),
        ([*chain[:4], chain[5], chain[4], *chain[6:]], 5),
        ([*chain[:5], chain[4], *chain[5:]], 6),
        ([], 1),
    ]
    for links_, place in tampered:
        with pytest.raises(BrokenChain) as caught:
            rebuild(links_)
        assert caught.value.sequence == place


RECORD = EntryRecord(
    id="ent_1",
    budget_id="bud_1",
    sequence=3,
    kind=EntryKind.RESERVE,
    principal_id="loopback",
    recorded_at=datetime(2026, 5, 1, tzinfo=UTC),
    engine_version="1",
    amounts=(1, 2**80),
    events=(Event(Gaussian(1.1), Poisson(1e-5), count=7),),
    reservation_id="res_1",
    purpose='é "quoted" \\ \u2028',
    details={"run_id": None, "charge_delta": "1e-07"},
)


def test_a_record_reads_back_from_its_bytes() -> None:
    assert record_from_canonical(RECORD.canonical()) == RECORD
    with pytest.raises(ValueError, match="another format version"):
        record_from_canonical(RECORD.canonical().replace(b'"v":"2"', b'"v":"3"'))


def test_the_events_of_an_entry_are_those_in_their_place_alone() -> None:
    """They are looked for in the text, and what was read before is not read again."""
    genuine = RECORD.canonical().decode()
    events = genuine[genuine.index(',"events":') + 10 : genuine.index(',"id":')]
    assert record_from_canonical(RECORD.canonical()) == RECORD
    for details in ({"a": "1", "events": json.loads(events), "id": "1"}, {"a": ',"events":[],"id":"x'}):
        record = replace(RECORD, details=details)
        assert record_from_canonical(record.canonical()) == record
    for altered in (
        # In an object of their own, where the entry has none.
        genuine.replace(f',"events":{events}', "").replace(
            '"details":{', f'"details":{{"a":"1","events":{events},"id":"1",'
        ),
        genuine.replace(f',"events":{events}', f',"events":{events},"idle":"1"'),
        genuine.replace(',"kind":', ',"amounts":[],"surprise":'),
        genuine.replace('{"amounts":', '[{"amounts":') + "]",
        genuine.replace(f"{events},", f"{events} "),
        genuine.replace(',"engine_version":"1"', ""),
        genuine.replace(',"engine_version":"1"', ',"engine_version":"1"}'),
        genuine + "}",
        genuine + " {}",
    ):
        assert altered != genuine
        with pytest.raises(ValueError, match=r"not exactly one entry|delimiter"):
            record_from_canonical(altered.encode())


@pytest.mark.parametrize(
    "record",
    [
        RECORD,
        replace(RECORD, events=(), purpose=None, details=None, amounts=()),
        replace(
            RECORD,
            refers_to="a" * 64,
            subject_id="ds_1",
            dataset=ChargedData("ds_1", 2, "b" * 64),
            work=7,
            certificate="c" * 64,
            failure=10**12,
            tail=(1, 0),
        ),
    ],
)
def test_the_bytes_are_the_canonical_ones_of_all_members(record: EntryRecord) -> None:
    members: dict[str, Json] = {
        "id": record.id,
        "budget_id": record.budget_id,
        "sequence": record.sequence,
        "kind": str(record.kind),
        "principal_id": record.principal_id,
        "recorded_at": "2026-05-01T00:00:00Z",
        "engine_version": record.engine_version,
        "amounts": list(record.amounts),
        "events": [event.to_json() for event in record.events],
        "reservation_id": record.reservation_id,
        "purpose": record.purpose,
        "details": dict(record.details or {}),
    }
    few: dict[str, Json] = {"refers_to": record.refers_to, "subject_id": record.subject_id, "tail": None, "v": 2}
    few |= {"dataset": None if record.dataset is None else record.dataset.to_json(), "work": record.work}
    few |= {"failure": record.failure, "certificate": record.certificate}
    if record.tail is not None:
        few["tail"] = list(record.tail)
    said = {name: value for name, value in (members | few).items() if value is not None}
    assert record.canonical() == canonical_text(said).encode()
    assert record_from_canonical(record.canonical()) == replace(record, details=record.details or {})
    # Of the first version every member was there, and no other.
    first = record_from_canonical(canonical_bytes(members))
    assert (first.version, first.events, first.purpose) == (1, record.events, record.purpose)
    with pytest.raises(ValueError, match="not exactly one entry"):
        record_from_canonical(canonical_bytes(members | {"work": 1}))
