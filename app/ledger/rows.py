"""Conversion between rows and states."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Row

from accounting.relations import NeighboringRelation
from app.entries.kinds import ChargedData
from app.entries.records import mechanisms_of
from app.kit.timestamps import format_moment
from app.ledger.states import Approval, BudgetState, LimitRequestState, ReservationState
from app.tables.ledger import Budget, LimitRequest, Reservation
from app.tables.states import LimitRequestStatus, ReservationStatus

#: The largest stored amount: any amount above it only exceeds every limit. The column is a signed 64-bit integer.
_FARTHEST = 2**62


def budget_state(row: Budget | Row[Any]) -> BudgetState:
    """Return the budget as the transition machine sees it."""
    return BudgetState(
        id=row.id,
        filter=row.filter,
        relation=NeighboringRelation(row.neighboring_relation),
        spent=row.spent,
        started=row.started,
        pending=row.pending,
        overdrawn=row.overdrawn,
    )


def reservation_state(row: Reservation | Row[Any]) -> ReservationState:
    """Return the reservation as the transition machine sees it."""
    return ReservationState(
        id=row.id,
        budget_id=row.budget_id,
        status=ReservationStatus(row.state),
        events=row.events,
        cost=row.cost,
        created_at=row.created_at,
        expires_at=row.expires_at,
        purpose=row.purpose,
        engine_version=row.engine_version,
        charge_delta=row.charge_delta,
        run_id=row.run_id,
        plan_hash=row.plan_hash,
        charged=row.charged,
        charged_events=row.charged_events,
        corrected=row.corrected,
        resolved_at=row.resolved_at,
        warnings=tuple((warning["code"], warning["detail"]) for warning in row.warnings),
        dataset=None if row.dataset is None else ChargedData.from_json(row.dataset),
        certificate=row.certificate,
        entry_hash=row.entry_hash,
    )


def limit_request_state(row: LimitRequest | Row[Any]) -> LimitRequestState:
    """Return the request for another limit as the transition machine sees it."""
    return LimitRequestState(
        id=row.id,
        budget_id=row.budget_id,
        status=LimitRequestStatus(row.state),
        filter=row.filter,
        filter_before=row.filter_before,
        reason=row.reason,
        principal_id=row.principal_id,
        approvals_needed=row.approvals_needed,
        created_at=row.created_at,
        approvals=tuple(
            Approval(each["principal_id"], each["reason"], datetime.fromisoformat(each["approved_at"]))
            for each in row.approvals
        ),
        decided_by=row.decided_by,
        decision_reason=row.decision_reason,
        decided_at=row.decided_at,
        sequence=row.sequence,
    )


def budget_amounts(state: BudgetState) -> dict[str, Any]:
    """Return the columns of a budget that transitions change, except its place in the chain."""
    return {
        "filter": state.filter,
        "spent": state.spent,
        "started": state.started,
        "pending": state.pending,
        "overdrawn": state.overdrawn,
        "headroom": max(-_FARTHEST, state.headroom),
    }


def reservation_changes(state: ReservationState) -> dict[str, Any]:
    """Return the columns of a reservation that transitions change."""
    return {
        "state": str(state.status),
        "cost": state.cost,
        "engine_version": state.engine_version,
        "charged": state.charged,
        "charged_events": state.charged_events,
        "charge_delta": state.charge_delta,
        "corrected": state.corrected,
        "expires_at": state.expires_at,
        "resolved_at": state.resolved_at,
    }


def new_reservation(state: ReservationState, *, sequence: int, principal_id: str) -> dict[str, Any]:
    """Return all columns of a reservation."""
    return {
        "id": state.id,
        "budget_id": state.budget_id,
        "sequence": sequence,
        "events": state.events,
        "mechanisms": mechanisms_of(state.events),
        "purpose": state.purpose,
        "warnings": [{"code": code, "detail": detail} for code, detail in state.warnings],
        "principal_id": principal_id,
        "run_id": state.run_id,
        "plan_hash": state.plan_hash,
        "created_at": state.created_at,
        "dataset": None if state.dataset is None else state.dataset.to_json(),
        "certificate": state.certificate,
        "entry_hash": state.entry_hash,
        **reservation_changes(state),
    }


def limit_request_changes(state: LimitRequestState) -> dict[str, Any]:
    """Return the columns of a request for another limit that decisions change."""
    return {
        "state": str(state.status),
        "approvals": [
            {
                "principal_id": approval.principal_id,
                "reason": approval.reason,
                "approved_at": format_moment(approval.approved_at),
            }
            for approval in state.approvals
        ],
        "decided_by": state.decided_by,
        "decision_reason": state.decision_reason,
        "decided_at": state.decided_at,
    }


def new_limit_request(state: LimitRequestState) -> dict[str, Any]:
    """Return all columns of a request for another limit."""
    return {
        "id": state.id,
        "budget_id": state.budget_id,
        "sequence": state.sequence,
        "filter": state.filter,
        "filter_before": state.filter_before,
        "reason": state.reason,
        "principal_id": state.principal_id,
        "approvals_needed": state.approvals_needed,
        "created_at": state.created_at,
        **limit_request_changes(state),
    }
