"""Requests and answers about budgets and reservations."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ModelWrapValidatorHandler, PrivateAttr, model_validator

from accounting.filters import SMALLEST_DELTA_OF_FAILURES
from accounting.filters.renyi_dp import CANONNE
from accounting.numbers import MAX_ORDERS
from accounting.relations import NeighboringRelation
from app.budgets.amounts import MIN_AMOUNT, MIN_DELTA, Amount, rounded_down, whole_nano_units
from app.kit.fields import PRINTABLE, Name, Schema
from app.ledger.amounts import FilterAmounts
from app.wire.answers import IntervalBody

MAX_AMOUNT = 10**6
MAX_LABELS = 32
#: The most budgets from a root down to a budget, both included.
MAX_DEPTH = 8
LabelName = Annotated[str, Field(min_length=1, max_length=100, pattern=PRINTABLE)]
LabelValue = Annotated[str, Field(max_length=200, pattern=PRINTABLE)]
Order = Annotated[float, Field(gt=1, le=10**4)]


class _Limit(Schema):
    _is_assumed: bool = PrivateAttr(default=False)

    def description(self, *, of_another: bool = False) -> dict[str, Any]:
        """Return the fields that a filter is made from, without absent ones, and with amounts rounded down to their
        smallest unit.

        Args:
            of_another: Whether the kind comes from another budget. If so, the kind is left out unless the request names
                it.
        """
        left_out = ("kind",) if of_another and self._is_assumed else ()
        given = {name: value for name, value in self if value is not None and name not in left_out}
        amounts = {
            name: rounded_down(value) if name == "delta" else whole_nano_units(value)
            for name, value in given.items()
            if isinstance(value, Decimal)
        }
        return {**given, **amounts}


class ApproximateGaussianDpLimit(_Limit):
    """(epsilon, delta) over charges chosen adaptively; each plan costs about its tight epsilon."""

    kind: Literal["approximate_gaussian_dp"] = "approximate_gaussian_dp"
    epsilon: Amount = Field(ge=MIN_AMOUNT, le=MAX_AMOUNT)
    delta: Amount = Field(ge=SMALLEST_DELTA_OF_FAILURES, le=0.5)
    failure_share: float | None = Field(
        None,
        gt=0,
        le=0.9,
        description="The share of delta with which prices of sampled steps may fail: 0.1, or 0.3 if plans have few "
        "participations or noise below 0.7. It is fixed for ever. A budget under another takes over that budget's "
        "rate: leave it out there.",
    )
    reserve_share: float | None = Field(
        None,
        ge=0,
        le=0.9,
        description="The share of delta that is kept for steps with a stated delta, and for steps that are given up. "
        "If absent, 0.05.",
    )
    delta_per_mu_squared: float | None = Field(
        None, gt=0, le=1e9, description="The rate itself, in place of failure_share. It is fixed for ever."
    )

    @model_validator(mode="wrap")
    @classmethod
    def _remember_who_chose_the_kind(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        limit = handler(value)
        limit._is_assumed = isinstance(value, _WithoutKind)
        return limit


class RenyiDpLimit(_Limit):
    """Rényi filter: (epsilon, delta) over charges chosen adaptively, by the order that turns out best."""

    kind: Literal["renyi_dp"]
    epsilon: Amount = Field(ge=MIN_AMOUNT, le=MAX_AMOUNT)
    delta: Amount = Field(gt=0, le=0.5)
    orders: list[Order] | None = Field(
        None,
        min_length=1,
        max_length=MAX_ORDERS,
        description="Increasing numbers, fixed for ever. If absent, 16 are chosen.",
    )

    def description(self, *, of_another: bool = False) -> dict[str, Any]:
        """Return the description that the filter is made from. It names the newest conversion to epsilon."""
        return {**super().description(of_another=of_another), "conversion": CANONNE}


class ZcdpLimit(_Limit):
    """The rho of zero-concentrated differential privacy adds up."""

    kind: Literal["zcdp"]
    rho: Amount = Field(ge=MIN_AMOUNT, le=MAX_AMOUNT)


class PureDpLimit(_Limit):
    """A limit on the sum of the charges' epsilons of pure differential privacy."""

    kind: Literal["pure_dp"]
    epsilon: Amount = Field(ge=MIN_AMOUNT, le=MAX_AMOUNT)


class ApproximateDpLimit(_Limit):
    """epsilon and delta add up; each reservation is priced tightly, as a whole, at a delta of its own."""

    kind: Literal["approximate_dp"]
    epsilon: Amount = Field(ge=MIN_AMOUNT, le=MAX_AMOUNT)
    delta: Amount = Field(ge=MIN_DELTA, le=0.5)


class GaussianDpLimit(_Limit):
    """The squares of mu of Gaussian differential privacy add up."""

    kind: Literal["gaussian_dp"]
    mu: Amount = Field(ge=MIN_AMOUNT, le=1000)


class _WithoutKind(dict[str, Any]):
    """A limit whose kind the request does not say."""


def _default_kind(value: Any) -> Any:
    if not isinstance(value, dict) or "kind" in value:
        return value
    if "orders" in value:
        return {"kind": "renyi_dp", **value}
    return _WithoutKind(kind="approximate_gaussian_dp", **value)


FilterSchema = Annotated[
    ApproximateGaussianDpLimit | RenyiDpLimit | ZcdpLimit | PureDpLimit | ApproximateDpLimit | GaussianDpLimit,
    Field(discriminator="kind", title="Filter"),
    BeforeValidator(_default_kind),
]


class BudgetRequest(Schema):
    """A limit on the privacy loss of everything released from one body of data, or a part of such a budget."""

    name: Name
    neighboring_relation: NeighboringRelation = Field(strict=False)
    privacy_unit: Name | None = Field(
        None, description='What one record stands for, such as a person or a visit. Absent: the parent\'s, or "record".'
    )
    filter: FilterSchema
    parent_id: str | None = Field(
        None,
        max_length=64,
        description="A budget above this one: every charge here is charged there, too, and must fit both. Both share "
        "the relation, the unit, the kind of filter, and its orders or its rate of failures. Limits of children may "
        "add up to more than the parent's.",
    )
    report_delta: float | None = Field(None, gt=0, le=0.5, description="The delta at which reports state epsilon.")
    labels: dict[LabelName, LabelValue] = Field(default_factory=dict, max_length=MAX_LABELS)


class LimitRequest(Schema):
    """The new limit. The filter keeps its kind, and its orders or its rate of failures."""

    filter: FilterSchema
    reason: Name = Field(description="The reason, for every later reader of the ledger.")


class ReportBody(Schema):
    """Everything that may have been released so far: committed or started, below this budget too, at one delta."""

    delta: float
    epsilon: IntervalBody | None = Field(
        description="The tight epsilon, if all charges were fixed in advance; if it is null, the warnings say why."
    )
    method: str | None = Field(description="The evaluator of the interval's upper end.")
    filter_epsilon: float | None = Field(
        description="What the filter promises, even if later charges depended on earlier outputs; null if its "
        "currency implies no finite epsilon at this delta."
    )
    left: float | None = Field(
        description="Epsilon of the limit at this delta minus that of everything used, rounded down. It is the "
        "smallest value over the budget and all above it, and null if one of them has none."
    )
    caveat: str
    different_steps: int = Field(description="The number of different steps among everything that was charged.")
    warnings: list[str]


class UsedOfLimit(Schema):
    """The use of a limit, in the unit of the limit. Spent, reserved and left add up to the limit.

    Epsilon and mu do not add up: `reserved` is what the reservations add to what was spent.
    """

    limit: float
    spent: float = Field(description="Committed, corrections included; rounded up.")
    reserved: float = Field(description="Held by pending and started reservations.")
    started: float = Field(description="The part of `reserved` for which noise may have been drawn.")
    left: float = Field(
        description="The limit minus what is spent and reserved, rounded down. If a budget above has less left, it is "
        "that."
    )


class EpsilonBody(UsedOfLimit):
    """The use of a limit that is an epsilon."""

    delta: float = Field(description="The delta of the limit; 0 for pure_dp.")


class ShareBody(Schema):
    """How full a budget is: spent, reserved and left as shares of its limit.

    An approximate_dp budget tells the larger of the parts of epsilon and of delta. A part is above 1 if a correction
    went beyond the limit.
    """

    used: float = Field(description="Spent, started and pending together.")
    spent: float
    started: float
    pending: float


class AmountsBody(Schema):
    """Amounts in the filter's own currency, in which admission counts; Rényi amounts have one number per order."""

    limit: FilterAmounts
    spent: FilterAmounts
    reserved: FilterAmounts
    started: FilterAmounts
    remaining: FilterAmounts = Field(
        description="What the next charge may cost: the smallest amount over the budget and all above it. Its epsilon "
        "or mu is what is left of the limit, as above."
    )


class BudgetBody(Schema):
    """A budget, with what is charged to it and to every budget under it."""

    id: str
    name: str
    neighboring_relation: NeighboringRelation
    privacy_unit: str
    filter: dict[str, Any]
    parent_id: str | None = Field(
        description="The id of the budget above; null for a root, and if the key does not reach the parent."
    )
    path: list[str] = Field(
        description="Ids from the root to this budget; for a key of some budgets, from the first that it reaches."
    )
    epsilon: EpsilonBody | None = Field(
        description="How much of the limit is used; null if the limit is a rho or a mu."
    )
    rho: UsedOfLimit | None = Field(description="The same of a zcdp budget.")
    mu: UsedOfLimit | None = Field(description="The same of a gaussian_dp budget.")
    share: ShareBody
    amounts: AmountsBody
    overdue: int = Field(description="Reservations of this budget that were started and not committed in their time.")
    overdrawn: bool = Field(description="A correction showed that more was spent than the limit; nothing is admitted.")
    report_delta: float | None
    labels: dict[str, str]
    created_at: datetime
    report: ReportBody | None = Field(
        None, description="Given for one budget, if the request or the budget has a delta."
    )
