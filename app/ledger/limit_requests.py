"""Decide commands about requests for another limit: who may decide a request, and what a decision does.

This module is pure, like `app.ledger.transitions`. A request charges nothing. Each step is an entry of the budget; the
last approval that is needed is the entry ``limit`` itself, so that the limit changes exactly when it is approved.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from app.entries.kinds import EntryKind
from app.ledger.commands import (
    ApproveLimit,
    AskLimit,
    ChangeLimit,
    LimitDecision,
    LimitRequestCommand,
    RefuseLimit,
)
from app.ledger.denials import Denial, DenialCode
from app.ledger.states import Approval, LimitRequestState, Path
from app.ledger.transitions import Transition, decide
from app.tables.states import LimitRequestStatus

#: The most open requests of one principal for one budget.
MOST_OPEN = 5


def decide_limit_request(
    path: Path,
    request: LimitRequestState | None,
    command: LimitRequestCommand,
    principal_id: str,
    now: datetime,
    engine_version: str,
    *,
    open_requests: int = 0,
) -> Transition | Denial:
    """Decide a command about a request.

    Args:
        path: The budget that the command is about, and those above it.
        request: The request that the command is about; None if the command makes one.
        command: The command.
        principal_id: The principal who asks.
        now: The time of the decision.
        engine_version: The version that the entry records.
        open_requests: How many requests of the principal for the budget are open.
    """
    if isinstance(command, AskLimit):
        return _ask(path, command, principal_id, now, engine_version, open_requests)
    assert request is not None, "every other command is about a request"
    denial = _denial(path, request, command, principal_id)
    if denial is not None:
        return denial
    if isinstance(command, ApproveLimit):
        return _approve(path, request, command, principal_id, now, engine_version)
    kind, status, reason = (
        (EntryKind.REFUSE, LimitRequestStatus.REFUSED, command.reason)
        if isinstance(command, RefuseLimit)
        else (EntryKind.WITHDRAW, LimitRequestStatus.WITHDRAWN, None)
    )
    after = replace(request, status=status, decided_by=principal_id, decision_reason=reason, decided_at=now)
    return _step(kind, path, after, engine_version, reason)


def _ask(
    path: Path, command: AskLimit, principal_id: str, now: datetime, engine_version: str, open_requests: int
) -> Transition | Denial:
    if open_requests >= MOST_OPEN:
        return Denial(DenialCode.TOO_MANY_OPEN_REQUESTS)
    made = LimitRequestState(
        id=command.request_id,
        budget_id=path[0].id,
        status=LimitRequestStatus.OPEN,
        filter=command.filter,
        filter_before=path[0].filter,
        reason=command.reason,
        principal_id=principal_id,
        approvals_needed=command.approvals_needed,
        created_at=now,
    )
    return _step(EntryKind.ASK, path, made, engine_version, command.reason)


def _denial(path: Path, request: LimitRequestState, command: LimitDecision, principal_id: str) -> Denial | None:
    approves, withdraws = isinstance(command, ApproveLimit), not isinstance(command, ApproveLimit | RefuseLimit)
    in_order_of_precedence = (
        (DenialCode.NOT_YOUR_REQUEST, withdraws and principal_id != request.principal_id),
        (DenialCode.REQUEST_DECIDED, not request.is_open),
        (DenialCode.OWN_REQUEST, approves and principal_id == request.principal_id),
        (DenialCode.APPROVED_BY_YOU, approves and request.is_approved_by(principal_id)),
        (DenialCode.LIMIT_CHANGED, approves and path[0].filter != request.filter_before),
        (
            DenialCode.LIMIT_ABOVE_PARENT,
            approves and not all(level.filter.admits(request.filter.caps) for level in path[1:]),
        ),
    )
    for code, applies in in_order_of_precedence:
        if applies:
            return Denial(code, request.status, budget_id=path[0].id)
    return None


def _approve(
    path: Path,
    request: LimitRequestState,
    command: ApproveLimit,
    principal_id: str,
    now: datetime,
    engine_version: str,
) -> Transition | Denial:
    # This is checked at every approval, so that nobody approves a limit that the last approval could not set.
    changed = decide(path, None, ChangeLimit(request.filter, command.reason), now, engine_version)
    if isinstance(changed, Denial):
        return changed
    approvals = (*request.approvals, Approval(principal_id, command.reason, now))
    after = replace(request, approvals=approvals)
    if len(approvals) < max(request.approvals_needed, command.approvals_needed):
        return _step(EntryKind.APPROVE, path, after, engine_version, command.reason)
    approved = replace(
        after,
        status=LimitRequestStatus.APPROVED,
        decided_by=principal_id,
        decision_reason=command.reason,
        decided_at=now,
    )
    return replace(changed, limit_request=approved)


def _step(
    kind: EntryKind, path: Path, request: LimitRequestState, engine_version: str, reason: str | None
) -> Transition:
    return Transition(kind, path, path[0].filter.zero, (), engine_version, reason=reason, limit_request=request)
