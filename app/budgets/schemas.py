"""Requests and answers about budgets and reservations."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from accounting.filters import PrivacyFilter, PureDpFilter, RenyiFilter, ZcdpFilter
from accounting.numbers import MAX_ORDERS
from accounting.relations import NeighboringRelation
from app.budgets.amounts import MIN_AMOUNT, Amount, whole_nano_units
from app.kit.fields import Integer, Name, Schema
from app.ledger.states import ReservationStatus
from app.privacy.schemas import Events, EventSchema

#: Text without control characters, which no database column and no log line takes well.
PRINTABLE = r"^[^\x00-\x1f\x7f]*$"
MAX_AMOUNT = 10**6
MAX_LABELS = 32
#: A hold may wait for its start at most so long, in seconds: 30 days.
MAX_EXPIRES_IN = 30 * 24 * 3600

LabelName = Annotated[str, Field(min_length=1, max_length=100, pattern=PRINTABLE)]
LabelValue = Annotated[str, Field(max_length=200, pattern=PRINTABLE)]
Order = Annotated[float, Field(gt=1, le=10**4)]
FilterAmounts = dict[str, Any]


class RenyiDpLimit(Schema):
    """Rényi filter: (epsilon, delta) over charges chosen adaptively, by the order that turns out best."""

    kind: Literal["renyi_dp"] = "renyi_dp"
    epsilon: Amount = Field(ge=MIN_AMOUNT, le=MAX_AMOUNT)
    delta: Amount = Field(gt=0, le=0.5)
    orders: list[Order] | None = Field(
        None,
        min_length=1,
        max_length=MAX_ORDERS,
        description="Increasing, fixed for ever; absent: 16 are chosen.",
    )

    def to_filter(self) -> PrivacyFilter:
        return RenyiFilter(whole_nano_units(self.epsilon), float(self.delta), tuple(self.orders or ()))


class ZcdpLimit(Schema):
    """The rho of zero-concentrated differential privacy adds up."""

    kind: Literal["zcdp"]
    rho: Amount = Field(ge=MIN_AMOUNT, le=MAX_AMOUNT)

    def to_filter(self) -> PrivacyFilter:
        return ZcdpFilter(whole_nano_units(self.rho))


class PureDpLimit(Schema):
    """The epsilon of pure differential privacy adds up."""

    kind: Literal["pure_dp"]
    epsilon: Amount = Field(ge=MIN_AMOUNT, le=MAX_AMOUNT)

    def to_filter(self) -> PrivacyFilter:
        return PureDpFilter(whole_nano_units(self.epsilon))


def _default_kind(value: Any) -> Any:
    return {"kind": "renyi_dp", **value} if isinstance(value, dict) else value


FilterSchema = Annotated[
    RenyiDpLimit | ZcdpLimit | PureDpLimit,
    Field(discriminator="kind", title="Filter"),
    BeforeValidator(_default_kind),
]


class BudgetRequest(Schema):
    """A limit on the privacy loss of everything released from one body of data."""

    name: Name
    neighboring_relation: NeighboringRelation = Field(strict=False)
    privacy_unit: Name = Field("record", description="What one record stands for, such as a person or a visit.")
    filter: FilterSchema
    parent_id: str | None = Field(None, max_length=64, description="Not available yet: every budget is a root.")
    report_delta: float | None = Field(None, gt=0, le=0.5, description="The delta at which reports state epsilon.")
    labels: dict[LabelName, LabelValue] = Field(default_factory=dict, max_length=MAX_LABELS)


class BudgetBody(Schema):
    """A budget. Amounts are in the filter's own fields; a Rényi amount also per order."""

    id: str
    name: str
    neighboring_relation: NeighboringRelation
    privacy_unit: str
    filter: dict[str, Any]
    limit: FilterAmounts
    spent: FilterAmounts
    reserved: FilterAmounts
    remaining: FilterAmounts
    report_delta: float | None
    labels: dict[str, str]
    created_at: datetime


class ReservationRequest(Schema):
    """Budget to hold for events that have not happened yet."""

    events: Events
    purpose: Name
    expires_in: Integer = Field(
        3600,
        ge=1,
        le=MAX_EXPIRES_IN,
        description="Seconds until the hold may be released, unless it is started. A started one never expires.",
    )


class CommitRequest(Schema):
    """What happened: the reserved events with counts reduced and later ones dropped. Absent: all of them."""

    events: Events | None = None


class EmptyRequest(Schema):
    """No fields."""


class LedgerWarning(Schema):
    code: str
    detail: str


class ReservationBody(Schema):
    """A reservation; `remaining` is what its budget still admits now."""

    id: str | None = Field(description="Null in the answer to a dry run.")
    budget_id: str
    state: ReservationStatus
    cost: FilterAmounts
    charged: FilterAmounts | None = Field(description="What a committed reservation has spent.")
    remaining: FilterAmounts
    events: list[EventSchema]
    charged_events: list[EventSchema] | None
    purpose: str
    run_id: str | None
    plan_hash: str | None = Field(description="The plan whose events were priced, for the reservation of a run.")
    created_at: datetime
    expires_at: datetime
    resolved_at: datetime | None
    warnings: list[LedgerWarning]
