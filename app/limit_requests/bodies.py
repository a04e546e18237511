"""A request for another limit as the contract writes it."""

from __future__ import annotations

from app.ledger.amounts import limit_in_words
from app.ledger.states import LimitRequestState
from app.limit_requests.schemas import ApprovalBody, LimitRequestBody


def limit_request_body(request: LimitRequestState) -> LimitRequestBody:
    """The request."""
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
    )
