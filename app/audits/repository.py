"""All SQL about audits."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, select, true
from sqlalchemy.orm import Session

from app.tables.runs import Audit


def find(session: Session, audit_id: str) -> Audit | None:
    return session.get(Audit, audit_id)


def page(
    session: Session,
    before: tuple[datetime, str] | None,
    limit: int,
    run_id: str | None,
    within: ColumnElement[bool] | None = None,
) -> list[Audit]:
    """Return a page of the audits that the reader may see, newest first, beginning after the cursor. If a run is named,
    return only its audits."""
    statement = select(Audit).where(true() if within is None else within)
    statement = statement.order_by(Audit.created_at.desc(), Audit.id.desc()).limit(limit)
    if run_id is not None:
        statement = statement.where(Audit.run_id == run_id)
    if before is not None:
        moment, audit_id = before
        statement = statement.where(
            (Audit.created_at < moment) | ((Audit.created_at == moment) & (Audit.id < audit_id))
        )
    return list(session.scalars(statement))
