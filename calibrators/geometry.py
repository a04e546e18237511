"""This module defines domains, which contain the parameters, and penalties, which are added to the loss without looking
at data.

Both are public, so applying them to a result that is already noisy costs no privacy. All domains are centred at 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from accounting.described import Described, Real, from_json
from accounting.errors import InvalidValue

Length = Annotated[float, Real(0.0, open_lower=True)]
Coordinate = Annotated[float, Real(-1e12)]


@dataclass(frozen=True, slots=True)
class L2Ball(Described):
    """The parameters of l2 norm at most ``radius``."""

    kind: ClassVar[str] = "l2_ball"
    radius: Length


@dataclass(frozen=True, slots=True)
class L1Ball(Described):
    """The parameters of l1 norm at most ``radius``."""

    # The ball is the convex hull of the vertices +radius e_j and -radius e_j, for all coordinates j.
    kind: ClassVar[str] = "l1_ball"
    radius: Length


@dataclass(frozen=True, slots=True)
class LpBall(Described):
    """The parameters of l_p norm at most ``radius``, p = ``norm_order``."""

    kind: ClassVar[str] = "lp_ball"
    norm_order: Annotated[float, Real(1.0, 1e3, open_lower=True)]
    radius: Length


@dataclass(frozen=True, slots=True)
class Simplex(Described):
    """The nonnegative parameters that sum to ``scale``."""

    kind: ClassVar[str] = "simplex"
    scale: Length


@dataclass(frozen=True, slots=True)
class Box(Described):
    """All parameters are in [``lower``, ``upper``]."""

    kind: ClassVar[str] = "box"
    lower: Coordinate
    upper: Coordinate

    def __post_init__(self) -> None:
        Described.__post_init__(self)  # `super()` fails here, because `slots=True` makes a new class
        if self.upper < self.lower:
            raise InvalidValue(
                f"upper must not be below lower, got [{self.lower!r}, {self.upper!r}]", pointer=("upper",)
            )


Domain = L2Ball | L1Ball | LpBall | Simplex | Box


@dataclass(frozen=True, slots=True)
class L2Penalty(Described):
    """A penalty of strength / 2 times the squared l2 norm of the parameters. It is not clipped, because it depends on
    no record.
    """

    # This penalty makes an objective `strength`-strongly convex.
    kind: ClassVar[str] = "l2"
    strength: Length


@dataclass(frozen=True, slots=True)
class L1Penalty(Described):
    """A penalty of strength times the l1 norm of the parameters."""

    kind: ClassVar[str] = "l1"
    strength: Length


Penalty = L2Penalty | L1Penalty

DOMAINS: dict[str, type[Domain]] = {cls.kind: cls for cls in (L2Ball, L1Ball, LpBall, Simplex, Box)}
PENALTIES: dict[str, type[Penalty]] = {cls.kind: cls for cls in (L2Penalty, L1Penalty)}


def domain_from_json(value: Mapping[str, object]) -> Domain:
    """Read a domain from the output of its `to_json`. Numbers may also be canonical strings."""
    return from_json(value, DOMAINS)


def penalty_from_json(value: Mapping[str, object]) -> Penalty:
    """Read a penalty from the output of its `to_json`. Numbers may also be canonical strings."""
    return from_json(value, PENALTIES)


def largest_norm(domain: Domain, dimension: int, norm_order: float = 2.0) -> float:
    """Return the l_p norm of the domain's longest point, with p = ``norm_order``.

    >>> largest_norm(L1Ball(2.0), dimension=9), largest_norm(Box(-1.0, 0.5), dimension=9)
    (2.0, 3.0)
    >>> largest_norm(L2Ball(2.0), dimension=9, norm_order=1.0)
    6.0
    """
    match domain:
        case Box():
            return math.pow(dimension, 1.0 / norm_order) * max(abs(domain.lower), abs(domain.upper))
        case Simplex():
            return domain.scale
    return 0.5 * diameter(domain, dimension, norm_order)


def diameter(domain: Domain, dimension: int, norm_order: float = 2.0) -> float:
    """Return the largest distance between two points of the domain, in the l_p norm with p = ``norm_order``.

    For the unit ball of an l_q norm, the diameter is twice the l_p norm of the ball's longest point. This point is e_1
    if p >= q, and (1, .., 1)/d^(1/q) otherwise.

    >>> diameter(Simplex(1.0), dimension=3, norm_order=1.0), diameter(Box(-1.0, 0.5), dimension=4)
    (2.0, 3.0)
    """
    match domain:
        case Box():
            return math.pow(dimension, 1.0 / norm_order) * (domain.upper - domain.lower)
        case Simplex():
            return domain.scale * math.pow(2.0, 1.0 / norm_order) if dimension > 1 else 0.0
        case L1Ball():
            own = 1.0
        case L2Ball():
            own = 2.0
        case LpBall():
            own = domain.norm_order
    return 2.0 * domain.radius * math.pow(dimension, max(0.0, 1.0 / norm_order - 1.0 / own))
