"""Guarantees that are taken as stated: any mechanism with a proof of pure, approximate, zero-concentrated or Renyi
DP."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar

from accounting.described import Described, Real, Reals
from accounting.errors import InvalidValue
from accounting.events.mechanism import Epsilon, Mechanism, mechanism
from accounting.events.samplings import FullBatch, ShuffleModel
from accounting.numbers import MAX_ORDER, MAX_ORDERS


@mechanism
@dataclass(frozen=True, slots=True)
class PureDp(Mechanism):
    """Any mechanism with a proof of epsilon-DP under the relation of the request."""

    kind: ClassVar[str] = "pure_dp"
    samplings = (FullBatch, ShuffleModel)
    filters = ("pure_dp", "approximate_dp", "approximate_gaussian_dp", "zcdp", "gaussian_dp", "renyi_dp")
    epsilon: Epsilon

    @property
    def reveals_nothing(self) -> bool:
        return self.epsilon == 0.0


@mechanism
@dataclass(frozen=True, slots=True)
class ApproximateDp(Mechanism):
    """Any mechanism with a proof of (epsilon, delta)-DP under the relation of the request."""

    kind: ClassVar[str] = "approximate_dp"
    samplings = (FullBatch, ShuffleModel)
    filters = ("approximate_dp", "approximate_gaussian_dp")
    epsilon: Epsilon
    delta: Annotated[float, Real(0.0, 1.0, "Probability that the guarantee of epsilon fails.")]

    @property
    def reveals_nothing(self) -> bool:
        return self.epsilon == self.delta == 0.0


@mechanism
@dataclass(frozen=True, slots=True)
class ZcDp(Mechanism):
    """Any mechanism with a proof of rho-zCDP under the relation of the request."""

    kind: ClassVar[str] = "zcdp"
    filters = ("approximate_dp", "approximate_gaussian_dp", "zcdp", "renyi_dp")
    rho: Annotated[float, Real(0.0, 1e6)]

    @property
    def reveals_nothing(self) -> bool:
        return self.rho == 0.0


@mechanism
@dataclass(frozen=True, slots=True)
class RenyiDp(Mechanism):
    """Any mechanism with a proof of Renyi DP at some orders under the relation of the request."""

    kind: ClassVar[str] = "renyi_dp"
    filters = ("approximate_dp", "approximate_gaussian_dp", "renyi_dp")
    orders: Annotated[
        tuple[float, ...], Reals(Real(1.0, MAX_ORDER, open_lower=True), MAX_ORDERS, "Numbers above 1, increasing.")
    ]
    epsilons: Annotated[
        tuple[float, ...],
        Reals(Real(0.0, 1e6), MAX_ORDERS, "The Renyi divergence at each order; it never decreases."),
    ]

    def __post_init__(self) -> None:
        Described.__post_init__(self)
        if any(a >= b for a, b in pairwise(self.orders)):
            raise InvalidValue("orders must increase", pointer=("orders",))
        if len(self.epsilons) != len(self.orders):
            raise InvalidValue("epsilons must have one number for each order", pointer=("epsilons",))
        if any(a > b for a, b in pairwise(self.epsilons)):
            raise InvalidValue(
                "epsilons must not decrease: the Renyi divergence of a mechanism grows with the order",
                pointer=("epsilons",),
            )

    @property
    def reveals_nothing(self) -> bool:
        return self.epsilons[-1] == 0.0
