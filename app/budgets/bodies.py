"""From stored budgets and reservations to answers."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from accounting.relations import NeighboringRelation
from app.budgets import service, storage
from app.budgets.amounts import numbers
from app.budgets.models import Budget, Reservation
from app.budgets.schemas import BudgetBody, LedgerWarning, ReservationBody, ReservationRequest
from app.ledger.states import ReservationStatus
from app.ledger.transitions import Transition
from app.privacy.schemas import EventSchema


def budget_body(budget: Budget) -> BudgetBody:
    """The budget as the contract writes it."""
    state = storage.budget_state(budget)
    return BudgetBody(
        id=budget.id,
        name=budget.name,
        neighboring_relation=NeighboringRelation(budget.neighboring_relation),
        privacy_unit=budget.privacy_unit,
        filter=numbers(budget.filter),
        limit=numbers(state.filter.describe_limit()),
        spent=numbers(state.filter.describe(state.spent)),
        reserved=numbers(state.filter.describe(state.reserved)),
        remaining=numbers(state.filter.describe_remaining(state.used)),
        report_delta=None if budget.report_delta is None else float(budget.report_delta),
        labels=budget.labels,
        created_at=budget.created_at,
    )


def reservation_body(session: Session, row: Reservation) -> ReservationBody:
    """The reservation as the contract writes it, beside what its budget still admits."""
    budget = service.get_budget(session, row.budget_id)
    state = storage.budget_state(budget)
    return ReservationBody(
        id=row.id,
        budget_id=row.budget_id,
        state=ReservationStatus(row.state),
        cost=numbers(state.filter.describe(tuple(row.cost))),
        charged=None if row.charged is None else numbers(state.filter.describe(tuple(row.charged))),
        remaining=numbers(state.filter.describe_remaining(state.used)),
        events=[EventSchema.model_validate(event) for event in row.events],
        charged_events=None
        if row.charged_events is None
        else [EventSchema.model_validate(event) for event in row.charged_events],
        purpose=row.purpose,
        run_id=row.run_id,
        plan_hash=row.plan_hash,
        created_at=row.created_at,
        expires_at=row.expires_at,
        resolved_at=row.resolved_at,
        warnings=[LedgerWarning.model_validate(warning) for warning in row.warnings],
    )


def dry_run_body(budget_id: str, request: ReservationRequest, transition: Transition, now: datetime) -> ReservationBody:
    """What a reservation would answer now."""
    state, after = transition.reservation, transition.budget
    return ReservationBody(
        id=None,
        budget_id=budget_id,
        state=state.status,
        cost=numbers(after.filter.describe(state.cost)),
        charged=None,
        remaining=numbers(after.filter.describe_remaining(after.used)),
        events=request.events,
        charged_events=None,
        purpose=request.purpose,
        run_id=None,
        plan_hash=None,
        created_at=now,
        expires_at=now + timedelta(seconds=request.expires_in),
        resolved_at=None,
        warnings=[LedgerWarning.model_validate(warning) for warning in state.warnings],
    )
