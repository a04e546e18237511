"""This module describes the scope of a theorem: the shape of the objective, the norm of parameters, smoothness, and the
tails of gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from accounting.numbers import read_real


class Shape(StrEnum):
    """The shape of an objective, such as convex."""

    STRONGLY_CONVEX = "strongly_convex"
    """It is above each tangent by at least a quadratic."""
    CONVEX = "convex"
    """It is on or above each tangent."""
    POLYAK_LOJASIEWICZ = "polyak_lojasiewicz"
    """Its squared gradient norm is at least a multiple of its gap to the minimum."""
    WEAKLY_CONVEX = "weakly_convex"
    """It becomes convex if a quadratic is added."""
    NONCONVEX = "nonconvex"
    """Nothing is known of its shape."""
    MEAN = "mean"
    """No loss is minimised; the mean of the records is estimated."""


#: For each shape, the shapes that a theorem may ask for and that such an objective has.
_INSTANCES: dict[Shape, frozenset[Shape]] = {
    Shape.STRONGLY_CONVEX: frozenset(Shape) - {Shape.MEAN},
    Shape.CONVEX: frozenset({Shape.CONVEX, Shape.WEAKLY_CONVEX, Shape.NONCONVEX}),
    Shape.POLYAK_LOJASIEWICZ: frozenset({Shape.POLYAK_LOJASIEWICZ, Shape.NONCONVEX}),
    Shape.WEAKLY_CONVEX: frozenset({Shape.WEAKLY_CONVEX, Shape.NONCONVEX}),
    Shape.NONCONVEX: frozenset({Shape.NONCONVEX}),
    Shape.MEAN: frozenset({Shape.MEAN}),
}


class Measure(StrEnum):
    """The quantity that a theorem bounds. Numbers are compared only if they measure the same quantity."""

    POPULATION_RISK = "excess_population_risk"
    """The expected loss of a new record minus its minimum over the domain."""
    EMPIRICAL_RISK = "excess_empirical_risk"
    """The mean loss of the given records minus its minimum over the domain."""
    STATIONARITY = "stationarity"
    """How far a point is from stationary, in the algorithm's own measure."""
    MEAN_SQUARED_ERROR = "mean_squared_error"
    """The expected squared distance from the released mean to the population mean."""
    MEAN_ERROR = "mean_error"
    """The distance between the released mean and the population mean, except with a small probability."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An objective.

    Attributes:
        shape: The most specific shape that the objective has.
        norm_order: The p of the l_p norm in which parameters are measured, in [1, 2].
        is_smooth: Whether the gradient is Lipschitz.
        is_heavy_tailed: Whether gradients have bounded moments but no bound.

    Raises:
        InvalidValue: If norm_order is outside [1, 2].
    """

    shape: Shape
    norm_order: float = 2.0
    is_smooth: bool = True
    is_heavy_tailed: bool = False

    def __post_init__(self) -> None:
        read_real("norm_order", self.norm_order, 1.0, 2.0)

    def constants(self, given: Mapping[str, float]) -> dict[str, float]:
        """Return the given constants that an objective of this shape has, and the constants that follow from them.

        Other given constants are dropped, because they would select theorems that do not hold for the shape.

        >>> Problem(Shape.STRONGLY_CONVEX).constants({"strong_convexity": 2.0})
        {'strong_convexity': 2.0, 'pl_constant': 2.0}
        >>> Problem(Shape.CONVEX).constants({"strong_convexity": 2.0, "pl_constant": 2.0})
        {}
        """
        found = dict(given)
        if self.shape is not Shape.STRONGLY_CONVEX:
            found.pop("strong_convexity", None)
        elif "strong_convexity" in found:
            found.setdefault("pl_constant", found["strong_convexity"])
        if self.shape not in (Shape.STRONGLY_CONVEX, Shape.POLYAK_LOJASIEWICZ):
            found.pop("pl_constant", None)
        return found


def _euclidean(norm_order: float) -> bool:
    return norm_order == 2.0


def _polyhedral(norm_order: float) -> bool:
    return norm_order == 1.0


def _between(norm_order: float) -> bool:
    return 1.0 < norm_order <= 2.0


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a theorem.

    Attributes:
        shape: The shape of the objective; None if no theorem covers the algorithm.
        measure: The bounded quantity; None if no theorem covers the algorithm.
        norms: A function that says whether the theorem covers a norm of this order; None means l2 only.
        norm_names: The norms that the theorem covers, in words.
        needs_smoothness: Whether the gradient must be Lipschitz.
        allows_heavy_tails: Whether gradients may have bounded moments but no bound.
    """

    shape: Shape | None
    measure: Measure | None
    norms: Callable[[float], bool] | None = None
    norm_names: str = "the l2 norm"
    needs_smoothness: bool = True
    allows_heavy_tails: bool = False

    def conflicts(self, problem: Problem) -> list[str]:
        """Return the reasons why the theorem does not cover the problem, in sentences; none if it does."""
        if (self.shape is Shape.MEAN) is not (problem.shape is Shape.MEAN):
            is_for = "the mean of records" if self.shape is Shape.MEAN else "minimising a loss"
            return [f"it is for {is_for}, but this problem is {problem.shape}"]
        found = []
        if self.shape is not None and self.shape not in _INSTANCES[problem.shape]:
            found.append(f"its theorem needs a {self.shape} objective, but this objective is {problem.shape}")
        if not (self.norms or _euclidean)(problem.norm_order):
            found.append(
                f"it measures parameters in {self.norm_names}, not in the norm of order {problem.norm_order:g}"
            )
        if self.shape is not None and self.needs_smoothness and not problem.is_smooth:
            found.append("its theorem needs a smooth objective")
        if self.shape is not None and problem.is_heavy_tailed and not self.allows_heavy_tails:
            found.append("its theorem needs bounded gradients, but these gradients are heavy-tailed")
        return found


def in_l1_ball(shape: Shape, measure: Measure, *, needs_smoothness: bool = True) -> Scope:
    """Return the scope of a theorem about parameters in an l1 ball."""
    return Scope(shape, measure, _polyhedral, "the l1 norm", needs_smoothness=needs_smoothness)


def in_lp_ball(shape: Shape, measure: Measure, *, needs_smoothness: bool = True) -> Scope:
    """Return the scope of a theorem about parameters in an l_p ball, 1 < p <= 2."""
    return Scope(shape, measure, _between, "an l_p norm, 1 < p <= 2", needs_smoothness=needs_smoothness)


def heavy_tailed(shape: Shape, *, needs_smoothness: bool = True) -> Scope:
    """Return the scope of a theorem about the population risk if gradients have bounded moments but no bound."""
    return Scope(shape, Measure.POPULATION_RISK, needs_smoothness=needs_smoothness, allows_heavy_tails=True)


#: The scope of an algorithm that no theorem covers.
NO_THEOREM = Scope(None, None)


def of_the_mean(measure: Measure) -> Scope:
    """Return the scope of a theorem about the mean of records that have moments."""
    return Scope(Shape.MEAN, measure, needs_smoothness=False, allows_heavy_tails=True)
