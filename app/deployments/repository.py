"""All SQL on operators' answers about their deployments."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.tables.deployments import Deployment
from app.tables.ledger import Budget


def nearest(session: Session, budget_id: str) -> Deployment | None:
    """Return a budget's answers, or those of its nearest ancestor that has any; None if no budget has any."""
    path = session.execute(select(Budget.path).where(Budget.id == budget_id)).scalar_one_or_none()
    ids = [] if path is None else path.split("/")
    said = {each.budget_id: each for each in session.scalars(select(Deployment).where(Deployment.budget_id.in_(ids)))}
    return next((said[each] for each in reversed(ids) if each in said), None)


def store(
    session: Session, budget_id: str, answers: Mapping[str, str], *, principal_id: str, stated_at: datetime
) -> Deployment:
    """Store the answers for a budget, replacing earlier ones."""
    said = Deployment(budget_id=budget_id, answers=dict(answers), principal_id=principal_id, stated_at=stated_at)
    return session.merge(said)
