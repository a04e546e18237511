"""Request and answer of `/v1/account`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from accounting.numbers import MAX_EVENTS
from accounting.relations import NeighboringRelation
from app.kit.fields import Integer, Schema
from app.privacy.answers import ConventionBody, IntervalBody
from app.privacy.schemas import EventSchema

MAX_POINTS = 1000

Delta = Annotated[float, Field(ge=0, le=0.5)]
Epsilon = Annotated[float, Field(ge=0, le=1e6)]


class CurveRequest(Schema):
    """How many points a curve has."""

    points: Integer = Field(100, ge=2, le=MAX_POINTS)


class AccountRequest(Schema):
    """Exactly one of `delta` and `epsilon`: the other one is the answer."""

    events: list[EventSchema] = Field(min_length=1, max_length=MAX_EVENTS)
    neighboring_relation: NeighboringRelation = Field(NeighboringRelation.ADD_OR_REMOVE_ONE, strict=False)
    delta: Delta | Annotated[list[Delta], Field(min_length=1, max_length=MAX_POINTS)] | None = None
    epsilon: Epsilon | Annotated[list[Epsilon], Field(min_length=1, max_length=MAX_POINTS)] | None = None
    curve: CurveRequest | None = Field(
        None, description="Also the curve around what was asked, and the trade-off curve."
    )
    certify: bool = Field(False, description="Also ask dp-accounting's PLD, which takes seconds.")


class CertificationBody(Schema):
    """A second opinion: dp-accounting's pessimistic number, computed independently, beside the interval."""

    engine: str = Field(description="Library, version and accountant.")
    epsilon: float | None = Field(None, description="Its epsilon, where epsilon is asked; null where it has none.")
    delta: float | None = Field(None, description="Its delta, where delta is asked; null where it has none.")
    value_discretization_interval: float | None = Field(description="Step of its lattice of privacy losses.")
    rounding_allowance: float | None = Field(
        description="How far its floating point may put the number from the truth, either way; null: it hides it."
    )
    discretization_allowance: float | None = Field(
        description="How far its lattice may put the number above the truth."
    )
    position: Literal["below", "within", "above"] | None = Field(description="Its number, seen from the interval.")
    agrees: bool | None = Field(description="Whether it lies in the interval within the allowances; null: no saying.")
    note: str = Field(description="The same in words, or why there is no number.")


class PointBody(Schema):
    """One point of a privacy curve; the quantity that was asked for is the interval."""

    epsilon: IntervalBody | float
    delta: IntervalBody | float
    method: str
    error_budget: dict[str, float] = Field(description="Width of the interval by its named sources of error.")
    certification: CertificationBody | None = Field(None, description="Where the request says `certify`.")


class EpsilonAtDelta(Schema):
    delta: float
    epsilon: IntervalBody


class DeltaAtEpsilon(Schema):
    epsilon: float
    delta: IntervalBody


class TradeOffPoint(Schema):
    """The fewest false negatives of any attacker with so many false positives."""

    false_positive_rate: float
    false_negative_rate: IntervalBody


class CurveBody(Schema):
    """Certified curves of the same events."""

    epsilon_over_delta: list[EpsilonAtDelta] | None = Field(
        None, description="Where delta was given: from a thousandth of it to a thousand times as much."
    )
    delta_over_epsilon: list[DeltaAtEpsilon] | None = Field(
        None, description="Where epsilon was given: from 0 to twice as much."
    )
    trade_off: list[TradeOffPoint] = Field(
        description="The trade-off function: every test of one data set against its neighbour, in either direction, "
        "has at least so many false negatives. False positive rates are evenly spaced in normal quantiles."
    )


class AccountAnswer(Schema):
    """One value in: `epsilon`, `delta`, `method` and `error_budget`. A list in: `points` instead, in its order."""

    epsilon: IntervalBody | float | None = Field(None, description="The interval where delta was given.")
    delta: IntervalBody | float | None = Field(None, description="The interval where epsilon was given.")
    method: str | None = Field(None, description="The evaluator that gave the upper bound.")
    error_budget: dict[str, float] | None = Field(
        None, description="Width of the interval by its named sources of error."
    )
    certification: CertificationBody | None = Field(None, description="Where the request says `certify`.")
    points: list[PointBody] | None = Field(None, description="Where a list was given.")
    curve: CurveBody | None = Field(None, description="Where the request asks for it.")
    convention: ConventionBody
    warnings: list[str]
