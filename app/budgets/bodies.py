"""Budgets in the form of the HTTP contract."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from accounting.relations import NeighboringRelation
from app.auth.principal import SERVICE, Principal
from app.budgets import repository
from app.budgets.schemas import AmountsBody, BudgetBody, EpsilonBody, ShareBody, UsedOfLimit
from app.ledger.amounts import (
    amounts_in_words,
    limit_in_words,
    numbers,
    remaining_in_words,
    shares_of_limit,
    used_of_limit,
)
from app.ledger.journal import path_of
from app.ledger.states import Path
from app.tables.ledger import Budget


def budget_bodies(
    session: Session, budgets: Sequence[Budget], now: datetime, principal: Principal = SERVICE
) -> list[BudgetBody]:
    """Return the budgets, without reports, as far as the principal may see them."""
    overdue = repository.overdue_counts(session, [budget.id for budget in budgets], now)
    return [budget_body(budget, _path(session, budget), overdue.get(budget.id, 0), principal) for budget in budgets]


def budget_body(budget: Budget, path: Path, overdue: int, principal: Principal = SERVICE) -> BudgetBody:
    """Return the budget, without a report.

    Args:
        budget: Its fields that never change.
        path: Its amounts and limit, and those of the budgets above it.
        overdue: The number of its overdue reservations.
        principal: The principal who reads it, and who does not see budgets above its own.
    """
    state, visible = path[0], principal.visible_part(budget.path)
    stated_in, use = state.filter.limits[0], used_of_limit(path)
    return BudgetBody(
        id=budget.id,
        name=budget.name,
        neighboring_relation=NeighboringRelation(budget.neighboring_relation),
        privacy_unit=budget.privacy_unit,
        filter=numbers(state.filter.to_json()),
        parent_id=visible[-2] if len(visible) > 1 else None,
        path=visible,
        epsilon=EpsilonBody(delta=getattr(state.filter, "delta", 0.0), **use) if stated_in == "epsilon" else None,
        rho=UsedOfLimit(**use) if stated_in == "rho" else None,
        mu=UsedOfLimit(**use) if stated_in == "mu" else None,
        share=ShareBody(**shares_of_limit(state)),
        amounts=AmountsBody(
            limit=limit_in_words(state.filter),
            spent=amounts_in_words(state.filter, state.spent),
            reserved=amounts_in_words(state.filter, state.reserved),
            started=amounts_in_words(state.filter, state.started),
            remaining=remaining_in_words(path),
        ),
        overdue=overdue,
        overdrawn=state.overdrawn,
        report_delta=None if budget.report_delta is None else float(budget.report_delta),
        labels=budget.labels,
        created_at=budget.created_at,
    )


def _path(session: Session, budget: Budget) -> Path:
    path = path_of(session, budget.id)
    assert path is not None, "it was found"
    return path
