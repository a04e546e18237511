"""Budgets and reservations for tests of the transition machine: one reservation of rho 0.5 in a budget of rho 1."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from accounting.events import Event, ZcDp
from accounting.filters import PrivacyFilter, ZcdpFilter
from accounting.relations import NeighboringRelation
from app.ledger.commands import Command, Correct, Quote
from app.ledger.denials import Denial
from app.ledger.states import BudgetState, Path, ReservationState
from app.ledger.transitions import Transition
from app.ledger.transitions import decide as decide_with_version
from app.tables.states import Amounts, ReservationStatus

NOW = datetime(2026, 5, 1, tzinfo=UTC)
RELATION = NeighboringRelation.ADD_OR_REMOVE_ONE
NANO = 10**9
STEP = ZcDp(0.05)
EVENTS = (Event(STEP, count=10),)
PART = (Event(STEP, count=4),)
OTHER = (Event(ZcDp(0.06)),)
COST: Amounts = (NANO // 2,)


def quote(rho: float) -> Quote:
    return Quote((round(rho * NANO),), "quoted")


def reprice(rho: float, reason: str = "r", events: tuple[Event, ...] = EVENTS) -> Correct:
    """The correction of the price that these events were given."""
    return Correct(quote(rho), reason, priced=events)


def budget(
    *, spent: int = 0, started: int = 0, pending: int = 0, limit: PrivacyFilter | None = None, name: str = "bud_1"
) -> BudgetState:
    """A budget of rho 1, or of another limit; amounts in nano-units."""
    state = BudgetState(name, limit or ZcdpFilter(1.0), RELATION, (spent,), (started,), (pending,))
    return replace(state, overdrawn=state.headroom < 0)


def budget_of(reservation: ReservationState) -> BudgetState:
    """The budget that holds, or has spent, what the reservation does, and nothing else."""
    held = reservation.cost[0]
    if reservation.status is ReservationStatus.PENDING:
        return budget(pending=held)
    if reservation.status is ReservationStatus.STARTED:
        return budget(started=held)
    return budget(spent=0 if reservation.charged is None else reservation.charged[0])


def reservation(state: str = "pending", *, late: bool = False, run_id: str | None = None) -> ReservationState:
    """A reservation in any state; ``late``: the time to start is over, to the second."""
    status = ReservationStatus(state)
    committed, open_ = status is ReservationStatus.COMMITTED, status in ("pending", "started")
    return ReservationState(
        id="res_1",
        budget_id="bud_1",
        status=status,
        events=EVENTS,
        cost=COST,
        created_at=NOW - timedelta(hours=1),
        expires_at=NOW if late else NOW + timedelta(seconds=1),
        engine_version="held",
        run_id=run_id,
        charged=COST if committed else None,
        charged_events=EVENTS if committed else None,
        resolved_at=None if open_ else NOW,
    )


def decide(path: Path, about: ReservationState | None, command: Command) -> Transition | Denial:
    return decide_with_version(path, about, command, NOW, "engine")


def carried_out(path: Path, about: ReservationState | None, command: Command) -> Transition:
    """What the command did; it must not be refused."""
    outcome = decide(path, about, command)
    assert isinstance(outcome, Transition), outcome
    return outcome


def after(transition: Transition) -> ReservationState:
    assert transition.reservation is not None
    return transition.reservation


def amounts(state: BudgetState) -> tuple[int, int, int]:
    """Spent, started and pending of a budget with one amount."""
    return state.spent[0], state.started[0], state.pending[0]
