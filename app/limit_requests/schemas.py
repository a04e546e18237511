"""Requests and answers about another limit that is asked for."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from app.budgets.schemas import FilterSchema
from app.kit.fields import Reason, Schema
from app.ledger.amounts import FilterAmounts
from app.tables.states import LimitRequestStatus


class AskRequest(Schema):
    """The wanted limit. The kind of the filter stays the same, and so do its orders or its rate of failures."""

    filter: FilterSchema
    reason: Reason = Field(
        description="The reason, for the owner who decides and for every later reader of the ledger."
    )


class DecisionRequest(Schema):
    """The reason why the request is approved or refused."""

    reason: Reason = Field(description="The reason, for the key that asked and for every later reader of the ledger.")


class ApprovalBody(Schema):
    """One principal's approval."""

    principal_id: str
    reason: str
    approved_at: datetime


class LimitRequestBody(Schema):
    """A request for another limit, and how it was decided. Limits are in the filter's own fields."""

    id: str
    budget_id: str
    state: LimitRequestStatus
    wanted: FilterAmounts = Field(description="The limit that is asked for.")
    before: FilterAmounts = Field(description="The limit that the budget had when this was asked.")
    reason: str
    principal_id: str = Field(description="Who asked.")
    approvals_needed: int = Field(
        description="How many principals other than the one who asked must approve: the setting `approvals` at the "
        "time of the request, or its present value if that is larger."
    )
    approvals: list[ApprovalBody]
    decided_by: str | None = Field(
        description="Who gave the last approval, refused or withdrew; null while it is open."
    )
    decision_reason: str | None
    created_at: datetime
    decided_at: datetime | None
    names: dict[str, str] = Field(description="The names of the keys whose ids are in this answer, by id.")
