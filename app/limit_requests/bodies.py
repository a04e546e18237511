"""A request for another limit as the contract writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from app.auth.names import names_of
from app.ledger.amounts import limit_in_words
from app.ledger.states import LimitRequestState
from app.limit_requests.schemas import ApprovalBody, LimitRequestBody


def limit_request_body(request: LimitRequestState) -> dict[str, Any]:
    """Return the members of `LimitRequestBody` as JSON, without people's names. `with_names` adds these to each
    answer."""
    return LimitRequestBody(
        id=request.id,
        budget_id=request.budget_id,
        state=request.status,
        wanted=limit_in_words(request.filter),
        before=limit_in_words(request.filter_before),
        reason=request.reason,
        principal_id=request.principal_id,
        approvals_needed=request.approvals_needed,
        approvals=[
            ApprovalBody(principal_id=each.principal_id, reason=each.reason, approved_at=each.approved_at)
            for each in request.approvals
        ],
        decided_by=request.decided_by,
        decision_reason=request.decision_reason,
        created_at=request.created_at,
        decided_at=request.decided_at,
        names={},
    ).model_dump(mode="json")


def with_names(session: Session, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a request with the names of the people who made, approved and decided it."""
    approved_by = (each["principal_id"] for each in body["approvals"])
    return {**body, "names": names_of(session, (body["principal_id"], body["decided_by"], *approved_by))}
