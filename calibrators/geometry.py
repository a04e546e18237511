"""Where parameters may lie, and what is added to the loss without looking at data: domains and penalties.

Both are public, so applying them to what was already noised costs no privacy. All domains are centred at 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, TypeVar

from accounting.canonical import Json
from accounting.errors import InvalidValue, one_of
from accounting.numbers import read_real

T = TypeVar("T")

_LARGEST = 1e12


@dataclass(frozen=True, slots=True)
class _Described:
    """A kind with numbers."""

    kind: ClassVar[str]

    def to_json(self) -> dict[str, Json]:
        return {"kind": self.kind} | {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class L2Ball(_Described):
    """Parameters of l2 norm at most ``radius``."""

    kind: ClassVar[str] = "l2_ball"
    radius: float

    def __post_init__(self) -> None:
        _read(self, "radius", 0.0, open_lower=True)


@dataclass(frozen=True, slots=True)
class L1Ball(_Described):
    """Parameters of l1 norm at most ``radius``: the convex hull of +-radius e_j."""

    kind: ClassVar[str] = "l1_ball"
    radius: float

    def __post_init__(self) -> None:
        _read(self, "radius", 0.0, open_lower=True)


@dataclass(frozen=True, slots=True)
class LpBall(_Described):
    """Parameters of l_p norm at most ``radius``, with p = ``norm_order`` in (1, infinity)."""

    kind: ClassVar[str] = "lp_ball"
    norm_order: float
    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm_order", read_real("norm_order", self.norm_order, 1.0, 1e3, open_lower=True))
        _read(self, "radius", 0.0, open_lower=True)


@dataclass(frozen=True, slots=True)
class Simplex(_Described):
    """Nonnegative parameters that sum to ``scale``."""

    kind: ClassVar[str] = "simplex"
    scale: float

    def __post_init__(self) -> None:
        _read(self, "scale", 0.0, open_lower=True)


@dataclass(frozen=True, slots=True)
class Box(_Described):
    """Each parameter in [``lower``, ``upper``]."""

    kind: ClassVar[str] = "box"
    lower: float
    upper: float

    def __post_init__(self) -> None:
        _read(self, "lower", -_LARGEST)
        _read(self, "upper", -_LARGEST)
        if self.upper < self.lower:
            raise InvalidValue(
                f"upper must not be below lower, got [{self.lower!r}, {self.upper!r}]", pointer=("upper",)
            )


Domain = L2Ball | L1Ball | LpBall | Simplex | Box


@dataclass(frozen=True, slots=True)
class L2Penalty(_Described):
    """strength / 2 times the squared l2 norm; makes an objective ``strength``-strongly convex."""

    kind: ClassVar[str] = "l2"
    strength: float

    def __post_init__(self) -> None:
        _read(self, "strength", 0.0, open_lower=True)


@dataclass(frozen=True, slots=True)
class L1Penalty(_Described):
    """strength times the l1 norm."""

    kind: ClassVar[str] = "l1"
    strength: float

    def __post_init__(self) -> None:
        _read(self, "strength", 0.0, open_lower=True)


Penalty = L2Penalty | L1Penalty

DOMAINS: dict[str, type[Domain]] = {cls.kind: cls for cls in (L2Ball, L1Ball, LpBall, Simplex, Box)}
PENALTIES: dict[str, type[Penalty]] = {cls.kind: cls for cls in (L2Penalty, L1Penalty)}


def domain_from_json(value: Mapping[str, object]) -> Domain:
    """Read what a domain's `to_json` wrote, or the same with numbers as canonical strings."""
    return _known(value, DOMAINS)(**_numbers(value))


def penalty_from_json(value: Mapping[str, object]) -> Penalty:
    """Read what a penalty's `to_json` wrote, or the same with numbers as canonical strings."""
    return _known(value, PENALTIES)(**_numbers(value))


def l2_radius(domain: Domain, dimension: int) -> float:
    """The l2 norm of the longest point of the domain.

    >>> l2_radius(L1Ball(2.0), dimension=9), l2_radius(Box(-1.0, 0.5), dimension=9)
    (2.0, 3.0)
    """
    match domain:
        case Box():
            return math.sqrt(dimension) * max(abs(domain.lower), abs(domain.upper))
        case LpBall():
            return domain.radius * math.pow(dimension, max(0.0, 0.5 - 1.0 / domain.norm_order))
        case Simplex():
            return domain.scale
    return domain.radius


def diameter(domain: Domain, dimension: int, norm_order: float = 2.0) -> float:
    """The largest distance of two points of the domain, in the l_p norm with p = ``norm_order``.

    Of a ball it is twice the norm of the longest point: e_1 or (1, .., 1)/d^(1/q), by which norm is the larger.

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


def _read(instance: Domain | Penalty, name: str, lower: float, *, open_lower: bool = False) -> None:
    object.__setattr__(instance, name, read_real(name, getattr(instance, name), lower, _LARGEST, open_lower=open_lower))


def _known(value: Mapping[str, object], known: Mapping[str, type[T]]) -> type[T]:
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in known:
        raise InvalidValue(f"kind must be {one_of(list(known))}", pointer=("kind",))
    return known[kind]


def _numbers(value: Mapping[str, object]) -> dict[str, float]:
    return {name: float(str(item)) for name, item in value.items() if name != "kind"}
