"""The auditor finds each way in which the promise could be broken, and nothing in a history in which it was kept."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from hashlib import sha256
from typing import Any

import pytest

from tests.crash.auditor import FIRST_PREVIOUS_HASH, STATE_AFTER, audit
from tests.crash.connection import Answer
from tests.crash.history import RHO, Command, Exchange, History, Json, Kind
from tests.crash.ledger_view import BudgetView

BUDGET = "bud_1"
#: What happens to a reservation, and the units of its entry.
Step = tuple[Kind, str, int]

# Limit 5. A charges one of its two units, B releases its two, C is committed and nobody was told.
CREATED: Step = (Kind.CREATE, "", 5)
A_RESERVED, A_STARTED, A_COMMITTED = (Kind.RESERVE, "a", 2), (Kind.START, "a", 2), (Kind.COMMIT, "a", 1)
B_RESERVED, B_VOIDED = (Kind.RESERVE, "b", 2), (Kind.VOID, "b", 2)
C_RESERVED, C_COMMITTED = (Kind.RESERVE, "c", 2), (Kind.COMMIT, "c", 2)
STEPS = (CREATED, A_RESERVED, A_STARTED, B_RESERVED, A_COMMITTED, B_VOIDED, C_RESERVED, C_COMMITTED)


def rho(units: int) -> Json:
    return {"rho": units * RHO}


def shown(*steps: Step) -> BudgetView:
    """A budget whose entries, amounts and reservations agree, and in which just these steps have happened."""
    entries: list[Json] = []
    reservations: dict[str, Json] = {}
    limit = spent = reserved = 0
    previous = FIRST_PREVIOUS_HASH
    for sequence, (kind, name, units) in enumerate(steps, 1):
        identifier = sha256(f"{sequence} {kind} {name} {units} {previous}".encode()).hexdigest()
        entries.append(
            {
                "id": f"ent_{sequence}_{identifier[:8]}",
                "budget_id": BUDGET,
                "sequence": sequence,
                "leaf_index": 2 * sequence,
                "kind": str(kind),
                "amount": rho(units),
                "reservation_id": f"res_{name}" if name else None,
                "purpose": f"reserve {name}" if name else None,
                "previous_hash": previous,
                "hash": identifier,
            }
        )
        previous = identifier
        if kind is Kind.CREATE:
            limit = units
            continue
        if kind is Kind.RESERVE:
            reserved += units
            reservations[name] = {"id": f"res_{name}", "cost": rho(units), "charged": None}
        elif kind is not Kind.START:
            reserved -= int(reservations[name]["cost"]["rho"] / RHO)
        if kind is Kind.COMMIT:
            spent += units
            reservations[name]["charged"] = rho(units)
        reservations[name]["state"] = STATE_AFTER[kind]
    amounts = {"limit": limit, "spent": spent, "reserved": reserved, "remaining": limit - spent - reserved}
    shown_amounts = {name: rho(units) for name, units in amounts.items()}
    budget = {"id": BUDGET, "name": "create budget", "amounts": shown_amounts}
    return BudgetView(budget, entries, list(reservations.values()))


def command(kind: Kind, name: str, units: int | None = None) -> Command:
    target = {Kind.CREATE: "", Kind.RESERVE: BUDGET}.get(kind, f"res_{name}")
    return Command(f"{kind} {name}", kind, target, units)


def acknowledged(kind: Kind, name: str, units: int | None, told: int, replayed: bool = False) -> Exchange:
    """Answered with success: the command said ``units``, the answer says ``told``."""
    body: Json = {"id": f"res_{name}", "state": STATE_AFTER.get(kind), "cost": rho(told), "charged": rho(told)}
    if kind is Kind.CREATE:
        body = {"id": BUDGET, "amounts": {"limit": rho(told)}}
    return Exchange(command(kind, name, units), answer(200, body, replayed))


def denied(kind: Kind, name: str, units: int | None, code: str, decided_at: str = "noon", **more: Any) -> Exchange:
    body = {"code": code, "request_id": object(), "decided_at": decided_at}
    return Exchange(command(kind, name, units), answer(409, body, **more))


def answer(status: int, body: Json, replayed: bool = False) -> Answer:
    return Answer(status, {"idempotency-replayed": "true"} if replayed else {}, body)


def honest() -> History:
    """What the clients of `STEPS` know: a denial and a commit were sent twice; what became of C and E, nobody knows."""
    return History(
        exchanges=[
            acknowledged(Kind.CREATE, "budget", 5, 5),
            acknowledged(Kind.RESERVE, "a", 2, 2),
            acknowledged(Kind.START, "a", None, 2),
            acknowledged(Kind.RESERVE, "b", 2, 2),
            acknowledged(Kind.COMMIT, "a", 1, 1),
            acknowledged(Kind.COMMIT, "a", 1, 1, replayed=True),
            denied(Kind.VOID, "a", None, "already_resolved"),
            acknowledged(Kind.VOID, "b", None, 2),
            acknowledged(Kind.RESERVE, "c", 2, 2),
            denied(Kind.RESERVE, "d", 4, "budget_exceeded"),
            denied(Kind.RESERVE, "d", 4, "budget_exceeded", replayed=True),
            Exchange(command(Kind.COMMIT, "c")),
            Exchange(command(Kind.RESERVE, "e", 2), answer(503, {"code": "database_unavailable"})),
        ],
        seen=shown(*STEPS).entries[:3],
    )


def without(*left_out: Step) -> tuple[Step, ...]:
    return tuple(step for step in STEPS if step not in left_out)


def test_a_promise_that_was_kept_has_no_faults() -> None:
    assert audit(honest(), [shown(*STEPS)]) == []


def test_what_nobody_was_told_of_may_have_happened_or_not() -> None:
    assert audit(honest(), [shown(*without(C_COMMITTED))]) == []
    # And fills the budget to the last unit.
    assert audit(honest(), [shown(*STEPS, (Kind.RESERVE, "e", 2))]) == []


# Histories of the service that agree with themselves, so that only what clients know contradicts them.
OTHER_HISTORIES: dict[str, tuple[tuple[Step, ...], str]] = {
    "a lost commit": (without(A_COMMITTED), "commit of res_a: was acknowledged and is lost"),
    "a lost start": (without(A_STARTED), "start of res_a: was acknowledged and is lost"),
    "a lost void": (without(B_VOIDED), "void of res_b: was acknowledged and is lost"),
    "a lost reservation": (
        without(C_RESERVED, C_COMMITTED),
        "reserve of reserve c: was acknowledged and is lost",
    ),
    "a lost budget": ((), "create of create budget: was acknowledged and is lost"),
    "another limit than was acknowledged": (
        ((Kind.CREATE, "", 6), *STEPS[1:]),
        "create of create budget: was acknowledged otherwise",
    ),
    "another charge than was asked for": (
        (*without(C_COMMITTED), (Kind.COMMIT, "c", 1)),
        "commit of res_c: is not what was asked for",
    ),
    "another charge than was acknowledged": (
        tuple((Kind.COMMIT, "a", 2) if step == A_COMMITTED else step for step in STEPS),
        "commit of res_a: was acknowledged otherwise",
    ),
    "a denied command that happened": (
        (*without(C_RESERVED, C_COMMITTED), (Kind.RESERVE, "d", 4)),
        "reserve of reserve d: happened, and was denied or asked for by nobody",
    ),
    "an effect that nobody asked for": (
        (*without(C_COMMITTED), (Kind.START, "c", 2)),
        "start of res_c: happened, and was denied or asked for by nobody",
    ),
    "a limit that was passed": ((*STEPS, (Kind.RESERVE, "e", 3)), "60000000 is more than the limit 50000000"),
    "a start after the commit": (
        (*without(A_STARTED), A_STARTED),
        "start of a reservation that is committed",
    ),
    "a void after the start": (
        (*without(A_COMMITTED, B_VOIDED), (Kind.VOID, "a", 2)),
        "void of a reservation that is started",
    ),
    "more charged than held": ((*without(C_COMMITTED), (Kind.COMMIT, "c", 3)), "commit of 30000000, where 20000000"),
}


@pytest.mark.parametrize(("steps", "fault"), OTHER_HISTORIES.values(), ids=OTHER_HISTORIES.keys())
def test_another_history_is_found_out(steps: tuple[Step, ...], fault: str) -> None:
    history = honest()
    history.seen.clear()
    assert_found(history, [shown(*steps)] if steps else [], fault)


def doubled(view: BudgetView, sequence: int) -> None:
    """The entry once more at the end, in an unbroken chain."""
    last = view.entries[-1]
    view.entries.append(
        view.entries[sequence - 1]
        | {"id": "ent_twice", "sequence": len(view.entries) + 1, "leaf_index": 99, "hash": "f" * 64}
        | {"previous_hash": last["hash"]}
    )


def doubled_reservation(view: BudgetView) -> None:
    doubled(view, 7)
    view.entries[-1]["reservation_id"] = "res_twice"
    view.reservations.append({"id": "res_twice", "state": "pending", "cost": rho(2), "charged": None})
    view.budget["amounts"] |= {"reserved": rho(2), "remaining": rho(0)}


DOCTORED: dict[str, tuple[Callable[[BudgetView], object], str]] = {
    "a commit with two entries": (lambda view: doubled(view, 5), "commit of res_a: happened 2 times"),
    "a commit with two entries, by its state": (
        lambda view: doubled(view, 5),
        "commit of a reservation that is committed",
    ),
    "a reservation under one key, twice": (doubled_reservation, "reserve of reserve c: happened 2 times"),
    "a reservation twice under one id": (lambda view: doubled(view, 7), "res_c is reserved a second time"),
    "an amount without its entry": (
        lambda view: view.budget["amounts"].update(spent=rho(4)),
        "the budget shows .* add up to",
    ),
    "an entry without its amount": (
        lambda view: view.budget["amounts"].update(spent=rho(1)),
        "the budget shows .* add up to",
    ),
    "a hold that was not released": (
        lambda view: view.budget["amounts"].update(reserved=rho(2)),
        "the budget shows .* add up to",
    ),
    "room that is not there": (
        lambda view: view.budget["amounts"].update(remaining=rho(3)),
        "the budget shows .* add up to",
    ),
    "a state without its entry": (
        lambda view: view.reservations[1].update(state="started"),
        "the reservations are .* their entries say",
    ),
    "a reservation without its row": (
        lambda view: view.reservations.pop(),
        "the reservations are .* their entries say",
    ),
    "a chain that is broken": (
        lambda view: view.entries[4].update(previous_hash="e" * 64),
        "the chain is broken at sequence 5",
    ),
    "a chain that begins elsewhere": (
        lambda view: view.entries[0].update(previous_hash="e" * 64),
        "the chain is broken at sequence 1",
    ),
    "a gap in the sequence": (lambda view: view.entries[7].update(sequence=9), r"the sequences are .*7, 9\]"),
    "an entry cut out": (lambda view: view.entries.pop(4), "the chain is broken at sequence 6"),
    "one hash twice": (
        lambda view: view.entries[7].update(hash=view.entries[2]["hash"]),
        "two entries have one hash",
    ),
    "a leaf index that falls": (lambda view: view.entries[7].update(leaf_index=1), "leaf_index does not grow"),
    "an entry of another budget": (lambda view: view.entries[3].update(budget_id="bud_2"), "is of bud_2"),
    "a second beginning": (lambda view: doubled(view, 1), "at sequence 9: create is out of place"),
    "an unknown kind of entry": (lambda view: view.entries[7].update(kind="refund"), "which nothing here explains"),
    "an entry that was read and is another": (
        lambda view: view.entries[1].update(recorded_at="later"),
        "was read, and is gone or another by now",
    ),
}


@pytest.mark.parametrize(("doctor", "fault"), DOCTORED.values(), ids=DOCTORED.keys())
def test_a_doctored_ledger_is_found_out(doctor: Callable[[BudgetView], object], fault: str) -> None:
    view = shown(*STEPS)
    doctor(view)
    assert_found(honest(), [view], fault)


ANSWERS: dict[str, tuple[list[Exchange], str]] = {
    "a denial that is a success the second time": (
        [acknowledged(Kind.RESERVE, "d", 4, 4, replayed=True)],
        "reserve d: different answers to one key",
    ),
    "a success that is a denial the second time": (
        [denied(Kind.RESERVE, "c", 2, "budget_exceeded")],
        "reserve c: different answers to one key",
    ),
    "a denial that is decided anew": (
        [denied(Kind.RESERVE, "d", 4, "budget_exceeded", decided_at="one")],
        "reserve d: different answers to one key",
    ),
    "a key that is decided twice": (
        [denied(Kind.RESERVE, "d", 4, "budget_exceeded")],
        "reserve d: was decided more than once",
    ),
    "one effect for two commands": (
        [Exchange(Command("another", Kind.COMMIT, "res_a", 1), acknowledged(Kind.COMMIT, "a", 1, 1).answer)],
        "commit of res_a: was acknowledged to 2 commands",
    ),
    "a server error": (
        [Exchange(command(Kind.RESERVE, "e", 2), answer(500, {"code": "internal_error"}))],
        "reserve e: an unexpected answer",
    ),
    "a denial that this command cannot have": (
        [denied(Kind.RESERVE, "e", 2, "already_resolved")],
        "reserve e: an unexpected answer",
    ),
    "a denial without its time": (
        [Exchange(command(Kind.RESERVE, "e", 2), answer(409, {"code": "budget_exceeded"}))],
        "reserve e: an unexpected answer",
    ),
}


@pytest.mark.parametrize(("more", "fault"), ANSWERS.values(), ids=ANSWERS.keys())
def test_answers_that_do_not_agree_are_found_out(more: list[Exchange], fault: str) -> None:
    history = honest()
    history.exchanges += more
    assert_found(history, [shown(*STEPS)], fault)


def test_an_amount_that_is_no_whole_nano_unit_is_refused() -> None:
    view = shown(*STEPS)
    view.budget["amounts"]["spent"] = {"rho": Decimal("0.0300000001")}
    with pytest.raises(AssertionError, match="not a whole number of nano-units"):
        audit(honest(), [view])


def assert_found(history: History, ledger: list[BudgetView], fault: str) -> None:
    faults = audit(history, ledger)
    assert any(re.search(fault, found) for found in faults), faults
