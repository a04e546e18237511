"""Domains and penalties as the HTTP contract writes them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from accounting.errors import AccountingError
from app.kit.fields import Schema
from calibrators.geometry import Domain, Penalty, domain_from_json, penalty_from_json

Length = Annotated[float, Field(gt=0, le=1e12)]


class L2BallBody(Schema):
    """Parameters of l2 norm at most `radius`."""

    kind: Literal["l2_ball"]
    radius: Length


class L1BallBody(Schema):
    """Parameters of l1 norm at most `radius`."""

    kind: Literal["l1_ball"]
    radius: Length


class LpBallBody(Schema):
    """Parameters of l_p norm at most `radius`, p = `norm_order`."""

    kind: Literal["lp_ball"]
    norm_order: float = Field(gt=1, le=1e3)
    radius: Length


class SimplexBody(Schema):
    """Nonnegative parameters that sum to `scale`."""

    kind: Literal["simplex"]
    scale: Length


class BoxBody(Schema):
    """Each parameter in [`lower`, `upper`]."""

    kind: Literal["box"]
    lower: float = Field(ge=-1e12, le=1e12)
    upper: float = Field(ge=-1e12, le=1e12)


DomainBody = Annotated[
    L2BallBody | L1BallBody | LpBallBody | SimplexBody | BoxBody, Field(discriminator="kind", title="Domain")
]


class L2PenaltyBody(Schema):
    """strength / 2 times the squared l2 norm of the parameters. It is not clipped: it depends on no record."""

    kind: Literal["l2"]
    strength: Length


class L1PenaltyBody(Schema):
    """strength times the l1 norm of the parameters."""

    kind: Literal["l1"]
    strength: Length


PenaltyBody = Annotated[L2PenaltyBody | L1PenaltyBody, Field(discriminator="kind", title="Penalty")]


def to_domain(body: DomainBody | None) -> Domain | None:
    """The engine's domain.

    Raises:
        AccountingError: no point is in it.
    """
    try:
        return None if body is None else domain_from_json(body.model_dump())
    except AccountingError as error:
        raise error.inside("domain") from None


def to_penalty(body: PenaltyBody | None) -> Penalty | None:
    return None if body is None else penalty_from_json(body.model_dump())
