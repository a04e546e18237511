"""The transition machine, by tables: every state and command, and which denial comes first."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from accounting.errors import NoCostInFilter
from accounting.events import Event, FullBatch, Gaussian, Poisson, ZcDp
from accounting.filters import PureDpFilter, ZcdpFilter
from accounting.relations import NeighboringRelation
from app.ledger.states import DenialCode, EntryKind, ReservationStatus
from app.ledger.transitions import (
    BudgetState,
    Command,
    Commit,
    Denial,
    Expire,
    ReservationState,
    Reserve,
    Start,
    Transition,
    Void,
    is_prefix,
    reserve,
    resolve,
)

NOW = datetime(2026, 5, 1, tzinfo=UTC)
RELATION = NeighboringRelation.ADD_OR_REMOVE_ONE
NANO = 10**9
EVENTS = (Event(ZcDp(0.05), count=10),)
HALF = (NANO // 2,)

COMMANDS: dict[str, Command] = {
    "start": Start(),
    "commit": Commit(),
    "commit part": Commit((Event(ZcDp(0.05), count=4),)),
    "commit other": Commit((Event(ZcDp(0.06), count=1),)),
    "void": Void(),
    "expire": Expire(),
}

# "late": the time to start is over.
TABLE = """
state       late  command       outcome
pending     no    start         -> started
pending     no    commit        -> committed
pending     no    commit part   -> committed
pending     no    commit other  422 not_a_prefix
pending     no    void          -> voided
pending     no    expire        409 not_expired
pending     yes   start         409 expired
pending     yes   commit        409 expired
pending     yes   commit part   409 expired
pending     yes   commit other  409 expired
pending     yes   void          -> voided
pending     yes   expire        -> expired
started     no    start         409 already_started
started     no    commit        -> committed
started     no    commit part   -> committed
started     no    commit other  422 not_a_prefix
started     no    void          409 already_started
started     no    expire        409 already_started
started     yes   start         409 already_started
started     yes   commit        -> committed
started     yes   commit part   -> committed
started     yes   commit other  422 not_a_prefix
started     yes   void          409 already_started
started     yes   expire        409 already_started
committed   no    start         409 already_resolved
committed   no    commit        409 already_resolved
committed   no    commit part   409 already_resolved
committed   no    commit other  409 already_resolved
committed   no    void          409 already_resolved
committed   no    expire        409 already_resolved
committed   yes   start         409 already_resolved
committed   yes   commit        409 already_resolved
committed   yes   commit part   409 already_resolved
committed   yes   commit other  409 already_resolved
committed   yes   void          409 already_resolved
committed   yes   expire        409 already_resolved
voided      no    start         409 already_resolved
voided      no    commit        409 already_resolved
voided      no    commit part   409 already_resolved
voided      no    commit other  409 already_resolved
voided      no    void          409 already_resolved
voided      no    expire        409 already_resolved
voided      yes   start         409 already_resolved
voided      yes   commit        409 already_resolved
voided      yes   commit part   409 already_resolved
voided      yes   commit other  409 already_resolved
voided      yes   void          409 already_resolved
voided      yes   expire        409 already_resolved
expired     no    start         409 expired
expired     no    commit        409 expired
expired     no    commit part   409 expired
expired     no    commit other  409 expired
expired     no    void          409 expired
expired     no    expire        409 expired
expired     yes   start         409 expired
expired     yes   commit        409 expired
expired     yes   commit part   409 expired
expired     yes   commit other  409 expired
expired     yes   void          409 expired
expired     yes   expire        409 expired
"""


def _rows() -> list[tuple[str, str, str, str]]:
    lines = TABLE.strip().splitlines()[1:]
    return [(line[:12].strip(), line[12:18].strip(), line[18:32].strip(), line[32:].strip()) for line in lines]


def _budget(spent: int = 0, reserved: int = NANO // 2) -> BudgetState:
    return BudgetState(ZcdpFilter(1.0), RELATION, (spent,), (reserved,))


def _reservation(state: str = "pending", late: bool = False, run_id: str | None = None) -> ReservationState:
    expires_at = NOW if late else NOW + timedelta(seconds=1)
    return ReservationState("res_1", ReservationStatus(state), EVENTS, HALF, expires_at, run_id)


@pytest.mark.parametrize(("state", "late", "command", "outcome"), _rows())
def test_every_command_in_every_state(state: str, late: str, command: str, outcome: str) -> None:
    before = _reservation(state, late == "yes")
    result = resolve(_budget(), before, COMMANDS[command], NOW)
    if isinstance(result, Denial):
        assert outcome == f"{result.status} {result.code}"
        assert result.members == {"state": state}
    else:
        assert outcome == f"-> {result.reservation.status}"


def test_the_table_is_complete() -> None:
    pairs = {(state, late, command) for state, late, command, _ in _rows()}
    assert len(pairs) == len(_rows()) == len(ReservationStatus) * 2 * len(COMMANDS)


@pytest.mark.parametrize("state", list(ReservationStatus))
@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "expire"])
def test_a_runs_reservation_refuses_everyone_else_before_any_other_reason(state: str, command: str) -> None:
    result = resolve(_budget(), _reservation(state, run_id="run_1"), COMMANDS[command], NOW)
    assert isinstance(result, Denial)
    assert (result.code, result.status) == (DenialCode.OWNED_BY_RUN, 409)


@pytest.mark.parametrize("state", list(ReservationStatus))
@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "expire"])
def test_the_run_itself_is_answered_as_if_it_had_no_owner(state: str, command: str) -> None:
    by_run = replace(COMMANDS[command], by_run=True)
    owned = resolve(_budget(), _reservation(state, run_id="run_1"), by_run, NOW)
    free = resolve(_budget(), _reservation(state), COMMANDS[command], NOW)
    if isinstance(owned, Transition) and isinstance(free, Transition):
        assert replace(owned.reservation, run_id=None) == free.reservation
        assert owned.budget == free.budget
    else:
        assert owned == free


def test_a_runs_pending_reservation_expires_like_any_other() -> None:
    result = resolve(_budget(), _reservation(late=True, run_id="run_1"), Expire(), NOW)
    assert isinstance(result, Transition)
    assert result.reservation.status is ReservationStatus.EXPIRED


@pytest.mark.parametrize(
    ("command", "spent", "reserved", "kind", "amount"),
    [
        (Start(), 100, NANO // 2, EntryKind.START, NANO // 2),
        (Commit(), 100 + NANO // 2, 0, EntryKind.COMMIT, NANO // 2),
        (COMMANDS["commit part"], 100 + NANO // 5, 0, EntryKind.COMMIT, NANO // 5),
        (Void(), 100, 0, EntryKind.VOID, NANO // 2),
    ],
)
def test_amounts_after_each_command(command: Command, spent: int, reserved: int, kind: EntryKind, amount: int) -> None:
    result = resolve(_budget(spent=100), _reservation(), command, NOW)
    assert isinstance(result, Transition)
    assert (result.budget.spent, result.budget.reserved) == ((spent,), (reserved,))
    assert (result.kind, result.amounts) == (kind, (amount,))
    assert result.reservation.charged == ((amount,) if kind is EntryKind.COMMIT else None)


def test_expiry_releases_what_was_held() -> None:
    result = resolve(_budget(spent=100), _reservation(late=True), Expire(), NOW)
    assert isinstance(result, Transition)
    assert (result.kind, result.amounts) == (EntryKind.EXPIRE, HALF)
    assert (result.budget.spent, result.budget.reserved) == ((100,), (0,))


def test_a_prefix_is_never_dearer_than_what_was_held() -> None:
    # A hold priced before a later engine raised its price: the part is charged at most the whole.
    reservation = replace(_reservation(), cost=(NANO // 10,))
    result = resolve(_budget(reserved=NANO // 10), reservation, COMMANDS["commit part"], NOW)
    assert isinstance(result, Transition)
    assert result.amounts == (NANO // 10,)


def test_a_saturated_order_gives_back_exactly_what_it_held() -> None:
    huge = 2**62
    budget = BudgetState(ZcdpFilter(1.0), RELATION, (0,), (3 * huge,))
    result = resolve(budget, replace(_reservation(), cost=(huge,)), Void(), NOW)
    assert isinstance(result, Transition)
    assert result.budget.reserved == (2 * huge,)
    assert result.budget.headroom < 0


A, B = Event(Gaussian(1.0), count=5), Event(Gaussian(2.0), Poisson(0.1), count=5)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ((A, B), True),
        ((A,), True),
        ((replace(A, count=2),), True),
        ((A, replace(B, count=1)), True),
        ((replace(A, count=2), replace(B, count=3)), True),
        ((replace(A, count=6),), False),
        ((B,), False),
        ((B, A), False),
        ((A, B, B), False),
        ((A, replace(B, sampling=FullBatch())), False),
        ((A, replace(B, mechanism=Gaussian(2.5))), False),
    ],
)
def test_a_prefix_is_the_same_list_with_counts_reduced_and_later_events_dropped(
    part: tuple[Event, ...], expected: bool
) -> None:
    assert is_prefix(part, (A, B)) is expected


def _reserve(events: tuple[Event, ...] = EVENTS, relation: NeighboringRelation | None = None) -> Reserve:
    return Reserve("res_2", events, NOW + timedelta(hours=1), relation=relation)


def test_a_reservation_that_fits_to_the_last_unit_is_admitted() -> None:
    result = reserve(_budget(), _reserve(), [], NOW)
    assert isinstance(result, list)
    (made,) = result
    assert (made.kind, made.budget.reserved, made.budget.headroom) == (EntryKind.RESERVE, (NANO,), 0)
    assert made.reservation.status is ReservationStatus.PENDING


def test_one_unit_more_is_denied_with_cost_remaining_and_what_would_fit() -> None:
    result = reserve(_budget(spent=1), _reserve(), [], NOW)
    assert isinstance(result, Denial)
    assert (result.code, result.status) == (DenialCode.BUDGET_EXCEEDED, 409)
    assert result.members == {
        "cost": {"rho": "0.5"},
        "remaining": {"rho": "0.499999999"},
        "warnings": [],
    }
    assert result.shortfall is not None
    assert result.shortfall.largest_count_that_fits() == 9


def test_the_denial_warns_where_sampling_is_not_amplified() -> None:
    result = reserve(_budget(), _reserve((Event(Gaussian(0.5), Poisson(0.01)),)), [], NOW)
    assert isinstance(result, Denial)
    assert [warning["code"] for warning in result.members["warnings"]] == ["no_amplification"]


def test_holds_past_their_time_are_released_only_when_room_is_needed() -> None:
    late = _reservation(late=True)
    roomy = reserve(_budget(), _reserve(), [late], NOW)
    assert [transition.kind for transition in roomy] == [EntryKind.RESERVE]
    full = reserve(_budget(spent=NANO // 2), _reserve(), [late], NOW)
    assert [transition.kind for transition in full] == [EntryKind.EXPIRE, EntryKind.RESERVE]
    assert full[-1].budget == BudgetState(ZcdpFilter(1.0), RELATION, HALF, HALF)


def test_no_more_holds_are_released_than_needed() -> None:
    holds = [replace(_reservation(late=True), id=f"res_{i}", cost=(NANO // 4,)) for i in range(4)]
    result = reserve(_budget(reserved=NANO), _reserve(), holds, NOW)
    assert [transition.reservation.id for transition in result] == ["res_0", "res_1", "res_2"]


def test_started_holds_are_never_released() -> None:
    holds = [_reservation("started", late=True)]
    result = reserve(_budget(spent=NANO // 2), _reserve(), holds, NOW)
    assert isinstance(result, Denial)


def test_a_denial_of_a_reservation_has_an_order_of_precedence() -> None:
    # Relation before cost in the filter before room.
    budget = BudgetState(PureDpFilter(1.0), RELATION, (NANO,), (0,))
    gaussian = (Event(Gaussian(1.0)),)
    wrong = reserve(budget, _reserve(gaussian, NeighboringRelation.REPLACE_ONE), [], NOW)
    assert isinstance(wrong, Denial)
    assert (wrong.code, wrong.status) == (DenialCode.RELATION_MISMATCH, 422)
    with pytest.raises(NoCostInFilter):
        reserve(budget, _reserve(gaussian, RELATION), [], NOW)


def test_codes_are_listed_in_the_order_in_which_they_are_tried() -> None:
    order = list(DenialCode)
    assert order.index(DenialCode.OWNED_BY_RUN) < order.index(DenialCode.ALREADY_RESOLVED)
    assert order.index(DenialCode.ALREADY_RESOLVED) < order.index(DenialCode.EXPIRED)
    assert order.index(DenialCode.EXPIRED) < order.index(DenialCode.ALREADY_STARTED)
    assert order.index(DenialCode.ALREADY_STARTED) < order.index(DenialCode.NOT_A_PREFIX)
    assert order[0] is DenialCode.RELATION_MISMATCH
    assert order[-1] is DenialCode.BUDGET_EXCEEDED
