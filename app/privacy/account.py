"""Request and answer of `/v1/account`."""

from __future__ import annotations

from typing import Annotated

from fastapi.openapi.models import Example
from pydantic import Field

from accounting.numbers import MAX_EVENTS
from accounting.relations import NeighboringRelation
from app.kit.fields import Schema
from app.privacy.answers import ConventionBody, IntervalBody
from app.privacy.schemas import EventSchema

MAX_POINTS = 1000

Delta = Annotated[float, Field(ge=0, le=0.5)]
Epsilon = Annotated[float, Field(ge=0, le=1e6)]


class AccountRequest(Schema):
    """Exactly one of `delta` and `epsilon`: the other one is the answer."""

    events: list[EventSchema] = Field(min_length=1, max_length=MAX_EVENTS)
    neighboring_relation: NeighboringRelation = Field(NeighboringRelation.ADD_OR_REMOVE_ONE, strict=False)
    delta: Delta | Annotated[list[Delta], Field(min_length=1, max_length=MAX_POINTS)] | None = None
    epsilon: Epsilon | Annotated[list[Epsilon], Field(min_length=1, max_length=MAX_POINTS)] | None = None


class PointBody(Schema):
    """One point of a privacy curve; the quantity that was asked for is the interval."""

    epsilon: IntervalBody | float
    delta: IntervalBody | float
    method: str
    error_budget: dict[str, float] = Field(description="Width of the interval by its named sources of error.")


class AccountAnswer(PointBody):
    """One value was asked for."""

    convention: ConventionBody
    warnings: list[str]


class AccountCurve(Schema):
    """A list was asked for: one point for each of its values, in their order."""

    points: list[PointBody]
    convention: ConventionBody
    warnings: list[str]


_POISSON = {
    "mechanism": {"kind": "gaussian", "noise_multiplier": 4.0},
    "sampling": {"kind": "poisson", "sampling_probability": 0.01},
    "count": 10000,
}

ACCOUNT_EXAMPLES: dict[str, Example] = {
    "poisson": {
        "summary": "DP-SGD with Poisson batches: epsilon at delta 1e-5",
        "value": {"events": [_POISSON], "neighboring_relation": "add_or_remove_one", "delta": 1e-5},
    },
    "gaussian": {
        "summary": "One Gaussian mechanism under replace-one: delta at three epsilons",
        "value": {
            "events": [{"mechanism": {"kind": "gaussian", "noise_multiplier": 2.0}}],
            "neighboring_relation": "replace_one",
            "epsilon": [1, 2, 4],
        },
    },
}
