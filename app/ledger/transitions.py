"""The transition machine of the ledger: a state and a command in; a new state and what to record, or a denial, out.

Pure: no database, no clock, no randomness, and no numerics where `pricing.price` was asked before. Storage
(`app.budgets.service`) locks the budget, asks here, and writes what came out. Denials are tried in the order in which
`DenialCode` lists them, and the first that applies is the answer.

States of a reservation: ``pending`` -> ``started`` -> ``committed``; ``pending`` -> ``committed``, ``voided`` or
``expired``. Only a pending one expires, because no noise has been drawn for it: a started one is held until it is
committed, whatever the clock says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from accounting.events import Event
from accounting.filter_costs import Cost
from accounting.filters import PrivacyFilter
from accounting.relations import NeighboringRelation
from app.ledger.pricing import Shortfall, price
from app.ledger.states import UNPROCESSABLE, DenialCode, EntryKind, ReservationStatus

#: Integer nano-units, one per order of the filter. Python integers: sums are exact, so that a release takes back
#: exactly what was held, even in an order whose single costs are saturated.
Amounts = tuple[int, ...]


@dataclass(frozen=True)
class BudgetState:
    """What decisions about a budget depend on.

    Guarantees: `filter` admits ``spent + reserved``, after every transition.
    """

    filter: PrivacyFilter
    relation: NeighboringRelation
    spent: Amounts
    reserved: Amounts

    @property
    def used(self) -> Amounts:
        return _plus(self.spent, self.reserved)

    @property
    def headroom(self) -> int:
        """Largest room that any order has left, in nano-units; negative where the filter denies what is used."""
        return max(cap - used for cap, used in zip(self.filter.caps, self.used, strict=True))


@dataclass(frozen=True)
class ReservationState:
    """What decisions about a reservation depend on."""

    id: str
    status: ReservationStatus
    events: tuple[Event, ...]
    cost: Amounts
    expires_at: datetime
    run_id: str | None = None
    plan_hash: str | None = None
    charged: Amounts | None = None
    charged_events: tuple[Event, ...] | None = None
    warnings: tuple[dict[str, str], ...] = ()

    @property
    def is_open(self) -> bool:
        return self.status in (ReservationStatus.PENDING, ReservationStatus.STARTED)

    def is_past_its_time(self, now: datetime) -> bool:
        """Pending, and the time to start is over."""
        return self.status is ReservationStatus.PENDING and now >= self.expires_at


@dataclass(frozen=True)
class Reserve:
    """Hold the cost of ``events``. ``relation`` is what the caller priced them under, where it has an opinion."""

    reservation_id: str
    events: tuple[Event, ...]
    expires_at: datetime
    run_id: str | None = None
    plan_hash: str | None = None
    relation: NeighboringRelation | None = None


@dataclass(frozen=True)
class Start:
    """Noise is about to be drawn."""

    by_run: bool = False


@dataclass(frozen=True)
class Commit:
    """The events have happened; ``events`` names the part of them that did, None means all."""

    events: tuple[Event, ...] | None = None
    by_run: bool = False


@dataclass(frozen=True)
class Void:
    """Nothing has happened and nothing will: release what is held."""

    by_run: bool = False


@dataclass(frozen=True)
class Expire:
    """The time to start is over: release what is held."""


Command = Start | Commit | Void | Expire

_DETAILS = {
    DenialCode.OWNED_BY_RUN: "the reservation belongs to a run, which resolves it; cancel the run instead",
    DenialCode.ALREADY_RESOLVED: "the reservation is committed or voided already; each is resolved at most once",
    DenialCode.EXPIRED: "the reservation was not started in time, so its hold is released; reserve again",
    DenialCode.ALREADY_STARTED: "the reservation is started: noise may have been drawn, so it can only be committed",
    DenialCode.NOT_EXPIRED: "the reservation may still be started",
    DenialCode.NOT_A_PREFIX: "events must be the reserved list with counts reduced and later events dropped",
}


@dataclass(frozen=True)
class Transition:
    """A command that is carried out: the states after it, and the amounts and events of its entry."""

    kind: EntryKind
    budget: BudgetState
    reservation: ReservationState
    amounts: Amounts
    events: tuple[Event, ...]


@dataclass(frozen=True)
class Denial:
    """A command that is refused; nothing changes.

    Attributes:
        shortfall: What a reservation that did not fit would be answered with, too, once no lock is held.
    """

    code: DenialCode
    detail: str
    members: Mapping[str, Any] = field(default_factory=dict)
    shortfall: Shortfall | None = None

    @property
    def status(self) -> int:
        """HTTP status code."""
        return 422 if self.code in UNPROCESSABLE else 409


def reserve(
    budget: BudgetState, command: Reserve, holds: Iterable[ReservationState], now: datetime
) -> list[Transition] | Denial:
    """Admit or deny a new reservation.

    Args:
        budget: The budget's state.
        command: What is asked.
        holds: Pending reservations of the budget that may be past their time; they are released only if room is
            needed, and only when that lets the new one in. Not iterated over before.
        now: The time of the decision.

    Returns:
        The releases that were needed, in the order of ``holds``, then the reservation; or the denial.

    Raises:
        NoCostInFilter: the filter has no proved cost for an event.
    """
    if command.relation not in (None, budget.relation):
        detail = (
            f"the budget's neighboring_relation is {budget.relation}; events priced under another cannot be charged"
        )
        return Denial(DenialCode.RELATION_MISMATCH, detail, {"neighboring_relation": str(budget.relation)})
    cost = price(budget.filter, command.events, budget.relation)
    transitions: list[Transition] = []
    overdue = iter(holds)
    while not (fits := budget.filter.admits(_plus(budget.used, cost.amounts))):
        hold = next(overdue, None)
        if hold is None:
            break
        released = resolve(budget, hold, Expire(), now)
        if isinstance(released, Transition):
            transitions.append(released)
            budget = released.budget
    warnings = tuple({"code": warning.code, "detail": warning.detail} for warning in cost.warnings)
    if not fits:
        return _exceeded(budget, command.events, cost, warnings)
    reservation = ReservationState(
        id=command.reservation_id,
        status=ReservationStatus.PENDING,
        events=command.events,
        cost=cost.amounts,
        expires_at=command.expires_at,
        run_id=command.run_id,
        plan_hash=command.plan_hash,
        warnings=warnings,
    )
    after = replace(budget, reserved=_plus(budget.reserved, cost.amounts))
    return [*transitions, Transition(EntryKind.RESERVE, after, reservation, cost.amounts, command.events)]


def resolve(budget: BudgetState, reservation: ReservationState, command: Command, now: datetime) -> Transition | Denial:
    """Start, commit, void or expire a reservation, each at most once."""
    denial = _denial(reservation, command, now)
    if denial is not None:
        return denial
    if isinstance(command, Start):
        started = replace(reservation, status=ReservationStatus.STARTED)
        return Transition(EntryKind.START, budget, started, reservation.cost, reservation.events)
    released = _minus(budget.reserved, reservation.cost)
    if isinstance(command, Commit):
        events = reservation.events if command.events is None else command.events
        charged = _charge(budget, reservation, events)
        committed = replace(reservation, status=ReservationStatus.COMMITTED, charged=charged, charged_events=events)
        after = replace(budget, spent=_plus(budget.spent, charged), reserved=released)
        return Transition(EntryKind.COMMIT, after, committed, charged, events)
    kind, status = (
        (EntryKind.VOID, ReservationStatus.VOIDED)
        if isinstance(command, Void)
        else (EntryKind.EXPIRE, ReservationStatus.EXPIRED)
    )
    after = replace(budget, reserved=released)
    return Transition(kind, after, replace(reservation, status=status), reservation.cost, reservation.events)


def is_prefix(part: Sequence[Event], whole: Sequence[Event]) -> bool:
    """Whether ``part`` is ``whole`` with counts reduced and later events dropped: the costs of a filter add up, so
    what was left out costs nothing.
    """
    return len(part) <= len(whole) and all(
        a.mechanism == b.mechanism and a.sampling == b.sampling and a.count <= b.count
        for a, b in zip(part, whole, strict=False)
    )


def _denial(reservation: ReservationState, command: Command, now: datetime) -> Denial | None:
    status = reservation.status
    resolved = status in (ReservationStatus.COMMITTED, ReservationStatus.VOIDED)
    released = status is ReservationStatus.EXPIRED
    too_late = isinstance(command, Start | Commit) and reservation.is_past_its_time(now)
    started = status is ReservationStatus.STARTED and not isinstance(command, Commit)
    too_early = isinstance(command, Expire) and not reservation.is_past_its_time(now)
    no_prefix = (
        isinstance(command, Commit) and command.events is not None and not is_prefix(command.events, reservation.events)
    )
    in_order_of_precedence = (
        (DenialCode.OWNED_BY_RUN, _is_foreign(reservation, command)),
        (DenialCode.ALREADY_RESOLVED, resolved),
        (DenialCode.EXPIRED, released or too_late),
        (DenialCode.ALREADY_STARTED, started),
        (DenialCode.NOT_EXPIRED, too_early),
        (DenialCode.NOT_A_PREFIX, no_prefix),
    )
    for code, applies in in_order_of_precedence:
        if applies:
            return Denial(code, _DETAILS[code], {"state": str(status)})
    return None


def _is_foreign(reservation: ReservationState, command: Command) -> bool:
    return reservation.run_id is not None and not isinstance(command, Expire) and not command.by_run


def _charge(budget: BudgetState, reservation: ReservationState, events: tuple[Event, ...]) -> Amounts:
    if events == reservation.events:
        return reservation.cost
    cost = price(budget.filter, events, budget.relation).amounts
    # What was held bounds the loss of every part of it, too; rounding could make the part dearer by a unit.
    return tuple(min(part, whole) for part, whole in zip(cost, reservation.cost, strict=True))


def _exceeded(
    budget: BudgetState, events: tuple[Event, ...], cost: Cost, warnings: tuple[dict[str, str], ...]
) -> Denial:
    return Denial(
        DenialCode.BUDGET_EXCEEDED,
        "the budget does not admit these events; largest_count_that_fits says how many of their steps it would",
        {
            "cost": budget.filter.describe(cost.amounts),
            "remaining": budget.filter.describe_remaining(budget.used),
            "warnings": list(warnings),
        },
        Shortfall(budget.filter, budget.relation, events, budget.used),
    )


def _plus(a: Amounts, b: Amounts) -> Amounts:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _minus(a: Amounts, b: Amounts) -> Amounts:
    return tuple(x - y for x, y in zip(a, b, strict=True))
