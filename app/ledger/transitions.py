"""The transition machine of the ledger: states and a command in; new states and what to record, or a denial, out.

This module is pure: it uses no database, clock, randomness or numerics, because a command carries its price. Storage
(`app.ledger.journal`) locks the budgets, calls `decide`, and writes the result. Denials are tried in the order in which
`DenialCode` lists them, and the first that applies is the answer.

States of a reservation: ``pending`` -> ``started`` -> ``committed``; ``pending`` -> ``committed``, ``voided`` or
``expired``. Only a pending one expires, because no noise has been drawn for it: a started one is held until it is
committed, whatever the clock says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from accounting.canonical import Json
from accounting.events import Event
from app.entries.kinds import EntryKind
from app.ledger.commands import (
    ChangeLimit,
    Charge,
    Command,
    Commit,
    Correct,
    EnterLoss,
    Expire,
    Extend,
    Reserve,
    Start,
    Void,
)
from app.ledger.denials import Denial, DenialCode
from app.ledger.states import (
    BudgetState,
    LimitRequestState,
    Move,
    Path,
    ReservationState,
    exposed_counts,
    is_prefix,
    minus,
)
from app.tables.states import Amounts, ReservationStatus


@dataclass(frozen=True)
class Transition:
    """The effect of a command: the states after it, and what its entry says.

    Attributes:
        kind: The kind of the entry.
        path: The budget and those above it, after the move.
        amounts: Held (reserve, start, extend), charged (commit, correct), released (void, expire), or the new caps.
        events: What the amounts are for.
        engine_version: The version of the engine that found the amounts.
        reservation: The reservation after it; None for an entry that is only about the budget.
        reason: The reason of a change by hand.
        before: The reservation before it; None if there was none.
        details: Further details for its entry.
        given_back: What was given back for steps that will never be taken.
        limit_request: The request for another limit that it is about, after it.
    """

    kind: EntryKind
    path: Path
    amounts: Amounts
    events: tuple[Event, ...]
    engine_version: str
    reservation: ReservationState | None = None
    reason: str | None = None
    before: ReservationState | None = None
    details: Mapping[str, Json] = field(default_factory=dict)
    limit_request: LimitRequestState | None = None
    given_back: Amounts | None = None

    @property
    def budget(self) -> BudgetState:
        """Return the budget that the command is about."""
        return self.path[0]


def decide(
    path: Path, reservation: ReservationState | None, command: Command, now: datetime, engine_version: str
) -> Transition | Denial:
    """Decide a command.

    Args:
        path: The budget that it is about and those above it.
        reservation: The reservation that it is about; None for a command about the budget.
        command: What is asked.
        now: The time of the decision.
        engine_version: The version to record if no price is involved.
    """
    if isinstance(command, Reserve):
        return _reserve(path, command, now)
    if isinstance(command, Charge):
        return _charge(path, command, now)
    if isinstance(command, ChangeLimit | EnterLoss):
        return _about_the_budget_alone(path, command, engine_version)
    assert reservation is not None, "every other command is about a reservation"
    denial = _denial(reservation, command, now)
    if denial is not None:
        return denial
    if isinstance(command, Correct):
        return _correct(path, reservation, command)
    return _resolve(path, reservation, command, now)


def needs_a_price(command: Commit, reservation: ReservationState, budget: BudgetState) -> bool:
    """Return whether committing these events charges another price than the one that is held."""
    return (
        command.events is not None
        and command.events != reservation.events
        and is_prefix(command.events, reservation.events)
        and command.given_up is None
        and (budget.filter.prefix_may_depend_on_outputs or command.nothing_released)
    )


def _reserve(path: Path, command: Reserve, now: datetime) -> Transition | Denial:
    budget, cost = path[0], command.quote.amounts
    move = Move(spent=budget.filter.zero, started=budget.filter.zero, pending=cost)
    after = tuple(level.moved(move) for level in path)
    for level in after:
        if not level.filter.admits(level.used):
            return Denial(DenialCode.BUDGET_EXCEEDED, budget_id=level.id)
    reservation = ReservationState(
        id=command.reservation_id,
        budget_id=budget.id,
        status=ReservationStatus.PENDING,
        events=command.events,
        cost=cost,
        created_at=now,
        expires_at=command.expires_at,
        purpose=command.purpose,
        engine_version=command.quote.engine_version,
        charge_delta=command.charge_delta,
        run_id=command.run_id,
        plan_hash=command.plan_hash,
        warnings=command.quote.warnings,
        dataset=command.dataset,
        certificate=None if command.quote.certificate is None else command.quote.certificate.sha256,
    )
    return Transition(EntryKind.RESERVE, after, cost, command.events, command.quote.engine_version, reservation)


def _charge(path: Path, command: Charge, now: datetime) -> Transition:
    budget, cost = path[0], command.quote.amounts
    move = Move(spent=cost, started=budget.filter.zero, pending=budget.filter.zero)
    reservation = ReservationState(
        id=command.reservation_id,
        budget_id=budget.id,
        status=ReservationStatus.COMMITTED,
        events=command.events,
        cost=cost,
        created_at=now,
        expires_at=now,
        purpose=command.reason,
        engine_version=command.quote.engine_version,
        charge_delta=command.charge_delta,
        charged=cost,
        charged_events=command.events,
        corrected=True,
        resolved_at=now,
        warnings=command.quote.warnings,
    )
    after = tuple(level.moved(move, by_correction=True) for level in path)
    version = command.quote.engine_version
    return Transition(EntryKind.CORRECT, after, cost, command.events, version, reservation, command.reason)


def _about_the_budget_alone(path: Path, command: ChangeLimit | EnterLoss, engine_version: str) -> Transition | Denial:
    budget = path[0]
    if isinstance(command, EnterLoss):
        nothing, details = budget.filter.zero, command.details
        return Transition(EntryKind.LOSS, path, nothing, (), engine_version, reason=command.reason, details=details)
    if not command.filter.admits(budget.used):
        return Denial(DenialCode.LIMIT_BELOW_USE, budget_id=budget.id)
    changed = replace(budget, filter=command.filter, overdrawn=False)
    caps = command.filter.caps
    return Transition(EntryKind.LIMIT, (changed, *path[1:]), caps, (), engine_version, reason=command.reason)


def _resolve(
    path: Path, reservation: ReservationState, command: Start | Extend | Commit | Void | Expire, now: datetime
) -> Transition | Denial:
    zero, cost = path[0].filter.zero, reservation.cost
    nothing, back = Move(zero, zero, zero), minus(zero, cost)
    if isinstance(command, Extend):
        # An extension never shortens the time, whatever a wrong clock says.
        until = max(reservation.expires_at, command.until)
        return _step(EntryKind.EXTEND, path, reservation, replace(reservation, expires_at=until), nothing)
    if isinstance(command, Start):
        started = replace(reservation, status=ReservationStatus.STARTED)
        return _step(EntryKind.START, path, reservation, started, Move(zero, started=cost, pending=back))
    was_started = reservation.status is ReservationStatus.STARTED
    release = Move(zero, back, zero) if was_started else Move(zero, zero, back)
    if isinstance(command, Commit):
        return _commit(path, reservation, command, release, now)
    kind, status = (
        (EntryKind.VOID, ReservationStatus.VOIDED)
        if isinstance(command, Void)
        else (EntryKind.EXPIRE, ReservationStatus.EXPIRED)
    )
    return _step(kind, path, reservation, replace(reservation, status=status, resolved_at=now), release)


def _commit(
    path: Path, reservation: ReservationState, command: Commit, release: Move, now: datetime
) -> Transition | Denial:
    charged, version = reservation.cost, reservation.engine_version
    given_up = command.given_up
    if given_up is not None:
        held, back = reservation.cost, given_up.back
        if given_up.held != held or not path[0].filter.may_give_back(held, back):
            return Denial(DenialCode.TAIL_NOT_GIVEN_BACK, state=reservation.status)
        charged, version = minus(held, back), given_up.engine_version
    if needs_a_price(command, reservation, path[0]):
        assert command.quote is not None, "a part is committed only after its price was computed"
        # The held amounts also bound the loss of every part; rounding could make the part dearer by a unit.
        charged = tuple(map(min, command.quote.amounts, reservation.cost))
        version = command.quote.engine_version
    events = reservation.events if command.events is None else command.events
    committed = replace(
        reservation, status=ReservationStatus.COMMITTED, charged=charged, charged_events=events, resolved_at=now
    )
    move = replace(release, spent=charged)
    transition = _step(EntryKind.COMMIT, path, reservation, committed, move, charged, version)
    if given_up is None:
        return transition
    for level in transition.path:
        # Giving up spends a probability of failure, for which there must be room.
        if not level.filter.admits(level.used):
            return Denial(DenialCode.TAIL_NOT_GIVEN_BACK, state=reservation.status, budget_id=level.id)
    return replace(transition, given_back=given_up.back)


def _correct(path: Path, reservation: ReservationState, command: Correct) -> Transition | Denial:
    zero, before = path[0].filter.zero, reservation.cost if reservation.charged is None else reservation.charged
    amounts = command.quote.amounts
    if command.events is None:
        if command.priced != reservation.priced_events:
            return Denial(DenialCode.PRICE_OUTDATED, state=reservation.status)
        amounts = tuple(map(max, amounts, before))
    if not command.may_lower and (
        any(new < old for new, old in zip(amounts, before, strict=True)) or _forgets(path[0], reservation, command)
    ):
        return Denial(DenialCode.CORRECTION_LOWERS, state=reservation.status)
    change = minus(amounts, before)
    if reservation.status is ReservationStatus.COMMITTED:
        events = reservation.charged_events if command.events is None else command.events
        corrected = replace(
            reservation,
            charged=amounts,
            charged_events=events,
            corrected=reservation.corrected or command.events is not None,
            charge_delta=reservation.charge_delta if command.charge_delta is None else command.charge_delta,
        )
        move = Move(change, zero, zero)
    else:
        corrected = replace(reservation, cost=amounts, engine_version=command.quote.engine_version)
        is_started = reservation.status is ReservationStatus.STARTED
        move = Move(zero, change, zero) if is_started else Move(zero, zero, change)
    version = command.quote.engine_version
    return _step(EntryKind.CORRECT, path, reservation, corrected, move, amounts, version, command.reason)


def _forgets(budget: BudgetState, reservation: ReservationState, command: Correct) -> bool:
    """Return whether a report would count fewer of some step than before, which the filter's price need not show."""
    if command.events is None:
        return False
    was = exposed_counts(reservation.exposed_events, budget.relation)
    return bool(was - exposed_counts(command.events, budget.relation))


def _step(
    kind: EntryKind,
    path: Path,
    before: ReservationState,
    after: ReservationState,
    move: Move,
    amounts: Amounts | None = None,
    engine_version: str | None = None,
    reason: str | None = None,
) -> Transition:
    by_correction = kind is EntryKind.CORRECT
    return Transition(
        kind,
        tuple(level.moved(move, by_correction=by_correction) for level in path),
        before.cost if amounts is None else amounts,
        after.events if after.charged_events is None else after.charged_events,
        before.engine_version if engine_version is None else engine_version,
        after,
        reason,
        before,
    )


def _denial(reservation: ReservationState, command: Command, now: datetime) -> Denial | None:
    status = reservation.status
    if isinstance(command, Correct):
        may = status is ReservationStatus.COMMITTED or (reservation.is_open and command.events is None)
        return None if may else Denial(DenialCode.NOT_COMMITTED, status)
    is_told_late = isinstance(command, Start) and command.is_told_late
    asked_by_others = isinstance(command, Start | Extend | Commit | Void) and not command.by_run
    in_order_of_precedence = (
        (DenialCode.OWNED_BY_RUN, reservation.run_id is not None and asked_by_others),
        (DenialCode.ALREADY_RESOLVED, status in (ReservationStatus.COMMITTED, ReservationStatus.VOIDED)),
        (
            DenialCode.EXPIRED,
            status is ReservationStatus.EXPIRED
            or (
                isinstance(command, Start | Extend | Commit) and reservation.is_past_its_time(now) and not is_told_late
            ),
        ),
        (
            DenialCode.ALREADY_STARTED,
            status is ReservationStatus.STARTED and isinstance(command, Start | Void | Expire),
        ),
        (DenialCode.NOT_EXPIRED, isinstance(command, Expire) and not reservation.is_past_its_time(now)),
        (
            DenialCode.NOT_A_PREFIX,
            isinstance(command, Commit)
            and command.events is not None
            and not is_prefix(command.events, reservation.events),
        ),
    )
    for code, applies in in_order_of_precedence:
        if applies:
            return Denial(code, status)
    return None
