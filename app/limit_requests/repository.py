"""All SQL that reads requests for another limit. The ledger writes them."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from app.problems import not_found
from app.tables.ledger import LimitRequest
from app.tables.states import LimitRequestStatus


def get(session: Session, limit_request_id: str) -> LimitRequest:
    """Return the request, for reading only.

    Raises:
        Problem: 404.
    """
    row = session.get(LimitRequest, limit_request_id)
    if row is None:
        raise not_found("limit request", limit_request_id)
    return row


def page(
    session: Session,
    before: tuple[datetime, str] | None,
    limit: int,
    *,
    within: ColumnElement[bool],
    state: LimitRequestStatus | None = None,
) -> list[LimitRequest]:
    """Return a page of requests, newest first, from just after the cursor.

    Args:
        session: A session.
        before: None for the first page.
        limit: The largest number of requests.
        within: The condition on requests: those of a budget, or those that the reader may see.
        state: Return only requests in this state.
    """
    statement = select(LimitRequest).where(within)
    if state is not None:
        statement = statement.where(LimitRequest.state == str(state))
    if before is not None:
        moment, request_id = before
        statement = statement.where(
            (LimitRequest.created_at < moment) | ((LimitRequest.created_at == moment) & (LimitRequest.id < request_id))
        )
    in_order = statement.order_by(LimitRequest.created_at.desc(), LimitRequest.id.desc())
    return list(session.scalars(in_order.limit(limit)))
