"""The states of budgets, reservations and requests for another limit, on which the ledger's decisions depend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import add, lt, sub

from accounting.events import Event
from accounting.events.schedules import resolve_schedule, resolve_schedules
from accounting.filters import PrivacyFilter
from accounting.relations import NeighboringRelation
from app.entries.kinds import ChargedData
from app.tables.states import Amounts, LimitRequestStatus, ReservationStatus


@dataclass(frozen=True)
class BudgetState:
    """A budget, as far as decisions depend on it. Charges to budgets below it count as its own.

    Attributes:
        id: The budget's id.
        filter: Its filter with the present limit.
        relation: The relation under which everything is priced.
        spent: The committed amount, corrections included.
        started: The amount held by reservations for which noise may have been drawn.
        pending: The amount held by reservations that have not started.
        overdrawn: Whether a correction has raised the spent amount above the limit. Then nothing is admitted until
            there is room again.

    Guarantees: `filter` admits ``used`` after every transition, unless ``overdrawn``.
    """

    id: str
    filter: PrivacyFilter
    relation: NeighboringRelation
    spent: Amounts
    started: Amounts
    pending: Amounts
    overdrawn: bool = False

    @property
    def reserved(self) -> Amounts:
        """Return the amount that all open reservations hold."""
        return plus(self.started, self.pending)

    @property
    def exposed(self) -> Amounts:
        """Return what may have been released: committed or started."""
        return plus(self.spent, self.started)

    @property
    def used(self) -> Amounts:
        """Return the amount that the limit bounds: spent and reserved."""
        return plus(self.exposed, self.pending)

    @property
    def headroom(self) -> int:
        """Return the room that decides admission, in the filter's units; negative where the filter denies what is
        used."""
        return self.filter.headroom(self.used)

    def moved(self, move: Move, *, by_correction: bool = False) -> BudgetState:
        """Return the state after a move of amounts."""
        after = replace(
            self,
            spent=plus(self.spent, move.spent),
            started=plus(self.started, move.started),
            pending=plus(self.pending, move.pending),
        )
        may_be_overdrawn = self.overdrawn or by_correction
        return replace(after, overdrawn=may_be_overdrawn and after.headroom < 0)


@dataclass(frozen=True)
class Move:
    """The changes that a transition makes to the three amounts of a budget and of every budget above it."""

    spent: Amounts
    started: Amounts
    pending: Amounts


#: A budget and all budgets above it: the budget itself first, the root last. A charge must fit into each of them.
Path = tuple[BudgetState, ...]


def narrowed(path: Path) -> BudgetState:
    """Return the budget as if it had also spent whatever the budgets above it have no room for. Everything that this
    budget admits, all of them admit.

    In a Rényi filter this is done order by order. One order must then have room in every budget, which is slightly
    stricter than the ledger.
    """
    budget = path[0]
    rooms = [minus(level.filter.caps, level.used) for level in path]
    used = minus(budget.filter.caps, tuple(map(min, *rooms)) if len(rooms) > 1 else rooms[0])
    return replace(budget, spent=minus(used, budget.reserved))


@dataclass(frozen=True)
class ReservationState:
    """A reservation.

    Attributes:
        id, budget_id, purpose, run_id, plan_hash, created_at: As they were given when it was made.
        status: Its present status.
        events: What it was made for.
        cost: What they cost; held while it is open.
        charge_delta: The delta at which an approximate_dp budget priced it.
        engine_version: The version of the engine that found ``cost``.
        dataset: The data that it is for, if known.
        certificate: The SHA-256 of a certificate of what ``events`` cost alone, where it was made with one.
        entry_hash: The hash of the entry that made it, which later entries refer to.
        expires_at: A pending one may be released from then on; a started one is overdue.
        charged, charged_events: The amounts and events that its commit charged.
        corrected: Whether a correction has replaced ``charged``.
        warnings: The warnings of its price.
    """

    id: str
    budget_id: str
    status: ReservationStatus
    events: tuple[Event, ...]
    cost: Amounts
    created_at: datetime
    expires_at: datetime
    purpose: str = ""
    engine_version: str = ""
    charge_delta: float | None = None
    run_id: str | None = None
    plan_hash: str | None = None
    charged: Amounts | None = None
    charged_events: tuple[Event, ...] | None = None
    corrected: bool = False
    resolved_at: datetime | None = None
    warnings: tuple[tuple[str, str], ...] = ()
    dataset: ChargedData | None = None
    certificate: str | None = None
    entry_hash: str = ""

    @property
    def is_open(self) -> bool:
        return self.status in (ReservationStatus.PENDING, ReservationStatus.STARTED)

    @property
    def exposed_events(self) -> tuple[Event, ...]:
        """Return the events that a report must count.

        From the start on, this is the whole list, even if only a part was committed. The part may have been chosen by
        looking at outputs, and then only the whole list, which was fixed in advance, bounds the loss. The same holds if
        a correction names another part. If a correction names other events, or none, these count.
        """
        told = self.charged_events
        if self.corrected and told is not None and (not told or not _is_part(told, self.events)):
            return told
        return self.events if self.status in (ReservationStatus.STARTED, ReservationStatus.COMMITTED) else ()

    @property
    def priced_events(self) -> tuple[Event, ...]:
        """Return the events that were priced: those that happened, or the whole list if a part was charged as the
        whole."""
        if self.charged is None or self.charged_events is None:
            return self.events
        paid_for_all = not self.corrected and not any(map(lt, self.charged, self.cost))
        return self.events if paid_for_all else self.charged_events

    def is_past_its_time(self, now: datetime) -> bool:
        """Return whether it is pending and its time to start is over."""
        return self.status is ReservationStatus.PENDING and now >= self.expires_at

    def is_overdue(self, now: datetime) -> bool:
        """Return whether it was started and not committed in time. It stays held, and can still be committed once."""
        return self.status is ReservationStatus.STARTED and now >= self.expires_at


@dataclass(frozen=True)
class Approval:
    """One principal's approval of a request."""

    principal_id: str
    reason: str
    approved_at: datetime


@dataclass(frozen=True)
class LimitRequestState:
    """A request for another limit and its decisions so far.

    Attributes:
        id, budget_id, reason, principal_id, created_at: As they were given when it was made.
        status: Its present status.
        filter: The filter with the wanted limit.
        filter_before: The filter with the limit that the budget had when the request was made.
        approvals_needed: How many principals must approve.
        approvals: The approvals so far, in order.
        decided_by, decision_reason, decided_at: Who ended it, why (a withdrawal has no reason), and when.
        sequence: The sequence of the entry that made it; 0 before there is an entry.
    """

    id: str
    budget_id: str
    status: LimitRequestStatus
    filter: PrivacyFilter
    filter_before: PrivacyFilter
    reason: str
    principal_id: str
    approvals_needed: int
    created_at: datetime
    approvals: tuple[Approval, ...] = ()
    decided_by: str | None = None
    decision_reason: str | None = None
    decided_at: datetime | None = None
    sequence: int = 0

    @property
    def is_open(self) -> bool:
        return self.status is LimitRequestStatus.OPEN

    def is_approved_by(self, principal_id: str) -> bool:
        """Return whether this principal is among those that have approved."""
        return any(approval.principal_id == principal_id for approval in self.approvals)


def plus(a: Amounts, b: Amounts) -> Amounts:
    """Return the sum, position by position."""
    return tuple(map(add, a, b))


def minus(a: Amounts, b: Amounts) -> Amounts:
    """Return the difference, position by position."""
    return tuple(map(sub, a, b))


def _is_part(part: Sequence[Event], whole: Sequence[Event]) -> bool:
    """Return whether ``whole`` has every step of ``part`` at least as often, in any order and divided in any way.

    Steps are counted as often as a record takes part, so each piece of a pass over disjoint batches counts as a pass of
    its own.
    """
    return not _counts(map(resolve_schedule, part)) - _counts(map(resolve_schedule, whole))


def _counts(events: Iterable[Event]) -> Counter[Event]:
    counts: Counter[Event] = Counter()
    for event in events:
        counts[Event(event.mechanism, event.sampling)] += event.count
    return counts


def exposed_counts(events: Sequence[Event], relation: NeighboringRelation) -> Counter[Event]:
    """Return how often a report composes each step; a schedule counts as the batches that it amounts to."""
    return _counts(resolve_schedules(events, relation))


def is_prefix(part: Sequence[Event], whole: Sequence[Event]) -> bool:
    """Return whether ``part`` is ``whole`` with counts reduced and later events dropped."""
    return len(part) <= len(whole) and all(
        a.mechanism == b.mechanism and a.sampling == b.sampling and a.count <= b.count
        for a, b in zip(part, whole, strict=False)
    )
