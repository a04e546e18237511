"""The transition machine, by tables: commands about a budget, in trees, at and past the limit."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from accounting.events import Event, PureDp
from accounting.filters import PureDpFilter, RenyiFilter, ZcdpFilter
from app.entries.kinds import EntryKind
from app.ledger.commands import BudgetCommand, ChangeLimit, Charge, Commit, Correct, Quote, Reserve, Start, Void
from app.ledger.denials import Denial, DenialCode
from app.ledger.pricing import price
from app.ledger.states import BudgetState, Path, plus
from app.tables.states import ReservationStatus
from tests.app.ledger.machine import (
    EVENTS,
    NANO,
    NOW,
    OTHER,
    RELATION,
    after,
    amounts,
    budget,
    carried_out,
    decide,
    quote,
    reprice,
    reservation,
)


def reserve(rho: float) -> Reserve:
    return Reserve("res_2", EVENTS, quote(rho), NOW + timedelta(hours=1), purpose="p", run_id="run_1", plan_hash="h")


def charge(rho: float) -> Charge:
    return Charge("res_2", OTHER, quote(rho), "told by mistake")


def limit(rho: float) -> ChangeLimit:
    return ChangeLimit(ZcdpFilter(rho), "approved")


COMMANDS: dict[str, BudgetCommand] = {
    "reserve 0.5": reserve(0.5),
    "reserve 0.500000001": reserve(0.500000001),
    "reserve 0": reserve(0.0),
    "charge 0.5": charge(0.5),
    "charge 0.500000001": charge(0.500000001),
    "limit 0.5": limit(0.5),
    "limit 0.499999999": limit(0.499999999),
    "limit 0.8": limit(0.8),
    "limit 2": limit(2.0),
}
#: Spent, started and pending, in a limit of 1.
BUDGETS: dict[str, BudgetState] = {
    "spent 0.5": budget(spent=NANO // 2),
    "started 0.5": budget(started=NANO // 2),
    "pending 0.5": budget(pending=NANO // 2),
    "full": budget(spent=NANO // 2, started=NANO // 4, pending=NANO // 4),
    "overdrawn": budget(spent=NANO, pending=1),
}

TABLE = """
budget       command              outcome
spent 0.5    reserve 0.5          pending, full
spent 0.5    reserve 0.500000001  409 budget_exceeded
spent 0.5    reserve 0            pending
spent 0.5    charge 0.5           committed, full
spent 0.5    charge 0.500000001   committed, overdrawn
spent 0.5    limit 0.5            limit, full
spent 0.5    limit 0.499999999    409 limit_below_use
spent 0.5    limit 0.8            limit
spent 0.5    limit 2              limit
started 0.5  reserve 0.5          pending, full
started 0.5  reserve 0.500000001  409 budget_exceeded
started 0.5  reserve 0            pending
started 0.5  charge 0.5           committed, full
started 0.5  charge 0.500000001   committed, overdrawn
started 0.5  limit 0.5            limit, full
started 0.5  limit 0.499999999    409 limit_below_use
started 0.5  limit 0.8            limit
started 0.5  limit 2              limit
pending 0.5  reserve 0.5          pending, full
pending 0.5  reserve 0.500000001  409 budget_exceeded
pending 0.5  reserve 0            pending
pending 0.5  charge 0.5           committed, full
pending 0.5  charge 0.500000001   committed, overdrawn
pending 0.5  limit 0.5            limit, full
pending 0.5  limit 0.499999999    409 limit_below_use
pending 0.5  limit 0.8            limit
pending 0.5  limit 2              limit
full         reserve 0.5          409 budget_exceeded
full         reserve 0.500000001  409 budget_exceeded
full         reserve 0            pending, full
full         charge 0.5           committed, overdrawn
full         charge 0.500000001   committed, overdrawn
full         limit 0.5            409 limit_below_use
full         limit 0.499999999    409 limit_below_use
full         limit 0.8            409 limit_below_use
full         limit 2              limit
overdrawn    reserve 0.5          409 budget_exceeded
overdrawn    reserve 0.500000001  409 budget_exceeded
overdrawn    reserve 0            409 budget_exceeded
overdrawn    charge 0.5           committed, overdrawn
overdrawn    charge 0.500000001   committed, overdrawn
overdrawn    limit 0.5            409 limit_below_use
overdrawn    limit 0.499999999    409 limit_below_use
overdrawn    limit 0.8            409 limit_below_use
overdrawn    limit 2              limit
"""


def _rows() -> list[tuple[str, str, str]]:
    lines = TABLE.strip().splitlines()[1:]
    return [(line[:13].strip(), line[13:34].strip(), line[34:].strip()) for line in lines]


@pytest.mark.parametrize(("state", "command", "outcome"), _rows())
def test_every_command_about_a_budget(state: str, command: str, outcome: str) -> None:
    result = decide((BUDGETS[state],), None, COMMANDS[command])
    if isinstance(result, Denial):
        assert outcome == f"{result.status} {result.code}"
        assert (result.state, result.budget_id) == (None, "bud_1")
        return
    made = result.reservation
    words = [str(result.kind if made is None else made.status)]
    words += ["full"] * (result.budget.headroom == 0) + ["overdrawn"] * result.budget.overdrawn
    assert outcome == ", ".join(words)
    assert result.budget.overdrawn == (result.budget.headroom < 0)


def test_the_table_is_complete() -> None:
    assert len({row[:2] for row in _rows()}) == len(_rows()) == len(BUDGETS) * len(COMMANDS)


def test_a_reservation_is_made_as_it_was_asked_for() -> None:
    command = replace(reserve(0.25), charge_delta=1e-6, quote=Quote((NANO // 4,), "v", (("code", "words"),)))
    result = carried_out((budget(spent=7),), None, command)
    made = after(result)
    assert amounts(result.budget) == (7, 0, NANO // 4)
    assert (result.kind, result.amounts, result.events) == (EntryKind.RESERVE, (NANO // 4,), EVENTS)
    assert (result.engine_version, result.before) == ("v", None)
    assert (made.id, made.budget_id, made.status) == ("res_2", "bud_1", ReservationStatus.PENDING)
    assert (made.events, made.cost, made.purpose) == (EVENTS, (NANO // 4,), "p")
    assert (made.run_id, made.plan_hash, made.charge_delta) == ("run_1", "h", 1e-6)
    assert (made.created_at, made.expires_at) == (NOW, NOW + timedelta(hours=1))
    assert (made.charged, made.resolved_at, made.warnings) == (None, None, (("code", "words"),))


def test_a_charge_without_a_reservation_is_committed_as_it_is_made() -> None:
    result = carried_out((budget(spent=7),), None, charge(2.0))
    made = after(result)
    assert amounts(result.budget) == (2 * NANO + 7, 0, 0)
    assert (result.kind, result.reason) == (EntryKind.CORRECT, "told by mistake")
    assert (made.charged, made.charged_events, made.corrected) == ((2 * NANO,), OTHER, True)
    assert (made.resolved_at, made.expires_at) == (NOW, NOW)
    assert made.exposed_events == OTHER


def test_a_new_limit_changes_nothing_but_the_filter() -> None:
    result = carried_out((BUDGETS["full"], budget(spent=9, name="bud_0")), None, limit(2.0))
    assert result.budget == replace(BUDGETS["full"], filter=ZcdpFilter(2.0))
    assert result.path[1:] == (budget(spent=9, name="bud_0"),)
    assert (result.kind, result.amounts, result.reservation) == (EntryKind.LIMIT, (2 * NANO,), None)
    assert (result.reason, result.engine_version) == ("approved", "engine")


def _path(*used: tuple[int, float]) -> Path:
    """A budget and those above it, each with its pending amount in hundredths and its limit."""
    return tuple(
        budget(pending=hundredths * NANO // 100, limit=ZcdpFilter(cap), name=f"bud_{place}")
        for place, (hundredths, cap) in enumerate(used)
    )


@pytest.mark.parametrize(
    ("path", "denied_by"),
    [
        (_path((0, 1.0), (0, 1.0), (0, 1.0)), None),
        (_path((0, 0.4), (0, 1.0), (0, 1.0)), "bud_0"),
        (_path((0, 1.0), (60, 1.0), (60, 1.2)), "bud_1"),
        (_path((0, 1.0), (0, 1.0), (90, 1.0)), "bud_2"),
        (_path((60, 1.0), (60, 1.0), (60, 1.0)), "bud_0"),
        (_path((0, 1.0), (60, 1.0), (60, 1.0)), "bud_1"),
    ],
)
def test_a_charge_must_fit_every_budget_of_its_path_and_the_first_that_it_does_not_fit_is_named(
    path: Path, denied_by: str | None
) -> None:
    outcome = decide(path, None, reserve(0.5))
    if isinstance(outcome, Denial):
        assert (outcome.code, outcome.budget_id) == (DenialCode.BUDGET_EXCEEDED, denied_by)
        return
    assert denied_by is None
    for before, level in zip(path, outcome.path, strict=True):
        assert level == replace(before, pending=(before.pending[0] + NANO // 2,))


def test_a_child_limit_may_be_more_than_the_parents_and_only_the_parents_counts() -> None:
    path = _path((0, 5.0), (0, 1.0))
    assert carried_out(path, None, reserve(1.0)).path[1].headroom == 0
    outcome = decide(path, None, reserve(1.000000001))
    assert isinstance(outcome, Denial)
    assert outcome.budget_id == "bud_1"


def test_the_truth_can_overdraw_some_budgets_of_a_path_and_not_others() -> None:
    after_charge = carried_out(_path((0, 5.0), (90, 1.0), (90, 2.0)), None, charge(0.2)).path
    assert [level.overdrawn for level in after_charge] == [False, True, False]
    outcome = decide(after_charge, None, reserve(0.0))
    assert isinstance(outcome, Denial)
    assert outcome.budget_id == "bud_1"
    # Room again, because a correction takes back what was too much.
    lowered = Correct(quote(0.05), "half of it", EVENTS, may_lower=True)
    made = after(carried_out(_path((0, 5.0), (90, 1.0), (90, 2.0)), None, charge(0.2)))
    assert [level.overdrawn for level in carried_out(after_charge, made, lowered).path] == [False, False, False]


def test_a_hold_that_is_repriced_past_the_limit_overdraws_and_its_release_makes_room() -> None:
    held = reservation("pending")
    repriced = carried_out((budget(spent=NANO // 2, pending=NANO // 2),), held, reprice(0.6, "dearer"))
    assert repriced.budget.overdrawn
    assert amounts(repriced.budget) == (NANO // 2, 0, 600_000_000)
    # What is held moves on, and changes nothing about that.
    started = carried_out(repriced.path, after(repriced), Start())
    assert started.budget.overdrawn
    assert carried_out(started.path, after(started), Commit()).budget.overdrawn
    assert not carried_out(repriced.path, after(repriced), Void()).budget.overdrawn


def test_of_several_renyi_orders_one_within_its_cap_is_enough_at_each_level() -> None:
    child, parent = (
        BudgetState(name, RenyiFilter(3.0, 1e-5, (8.0, 64.0)), RELATION, used, (0, 0), (0, 0))
        for name, used in (("bud_1", (0, 0)), ("bud_0", (10**10, 0)))
    )
    low, high = child.filter.caps
    fits = Reserve("res_2", EVENTS, Quote((10**12, high), "v"), NOW)
    assert not isinstance(decide((child, parent), None, fits), Denial)
    # The child has room at its first order; the parent, whose first order is full, has none at the second.
    too_much = Reserve("res_2", EVENTS, Quote((low, high + 1), "v"), NOW)
    outcome = decide((child, parent), None, too_much)
    assert isinstance(outcome, Denial)
    assert outcome.budget_id == "bud_0"


def test_a_million_charges_of_a_millionth_fill_1_exactly() -> None:
    millionth = price(PureDpFilter(1.0), (Event(PureDp(1e-6)),), RELATION)
    state = BudgetState("bud_1", PureDpFilter(1.0), RELATION, (0,), (0,), (0,))
    command = Reserve("res_2", (Event(PureDp(1e-6)),), millionth, NOW)
    spent = state.spent
    for _ in range(10**6 - 1):
        spent = plus(spent, millionth.amounts)
    last = carried_out((replace(state, spent=spent),), None, command)
    assert last.budget.headroom == 0
    full = replace(state, spent=plus(spent, millionth.amounts))
    assert isinstance(decide((full,), None, command), Denial)


def test_charges_are_rounded_up_one_by_one_and_never_down() -> None:
    # A third of a unit each: three of them could fit in one unit, and take three.
    tiny = price(PureDpFilter(1.0), (Event(PureDp(3e-10)),), RELATION)
    assert tiny.amounts == (1,)
    assert price(PureDpFilter(1.0), (Event(PureDp(3e-10), count=3),), RELATION).amounts == (1,)
    path: Path = (BudgetState("bud_1", PureDpFilter(2e-9), RELATION, (0,), (0,), (0,)),)
    for _ in range(2):
        path = carried_out(path, None, Reserve("res_2", (Event(PureDp(3e-10)),), tiny, NOW)).path
    assert isinstance(decide(path, None, Reserve("res_2", (Event(PureDp(3e-10)),), tiny, NOW)), Denial)
