"""What an algorithm's promise is: a private run, and how what its bounds are about is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.app.runs.promises.laws import Array, Law

#: A number of a released point: under the law that the bound is about, which is that of the rows or of the population.
Measure = Callable[[Array, Law], float]


@dataclass(frozen=True)
class Promise:
    """A private run and what its bounds are about.

    Attributes:
        law: Where the rows come from.
        rows: How many; the declared size.
        request: The run's request, without data set, budget and model.
        of_the_population: Whether the bounds are about the law, else about the rows that were drawn.
        stationarity, closeness: What ``gradient_norm_bound`` and ``closeness_bound`` are about here.
        runs: How many are averaged: bounds are on expectations. One is enough where the bound is tens of times as large
            as what is expected, or what is expected hardly varies; else the mean of so many is above a bound that holds
            less than once in 10^9 times.
        vacuous: Why every bound is vacuous at any size that a quick test can pay; empty where none is.
        unbounded: Why there is no bound at all.
    """

    law: Law
    rows: int
    request: dict[str, Any]
    of_the_population: bool = True
    stationarity: Measure | None = None
    closeness: Measure | None = None
    runs: int = 1
    vacuous: str = ""
    unbounded: str = ""


def excess_risk(point: Array, law: Law) -> float:
    """Above the least risk."""
    return law.risk(point) - law.risk(law.minimum)


def squared_error(point: Array, law: Law) -> float:
    """Of an estimate of the mean."""
    return float(np.sum((point - law.mean) ** 2))


def gradient_norm(point: Array, law: Law) -> float:
    """The bound is on the least of all iterates, of which the released last one is not smaller."""
    return float(np.linalg.norm(law.gradient(point)))


def frank_wolfe_gap(radius: float, dual_order: float) -> Measure:
    """What the linear approximation could still gain in a ball around 0."""

    def measure(point: Array, law: Law) -> float:
        gradient = law.gradient(point)
        return float(gradient @ point + radius * np.linalg.norm(gradient, dual_order))

    return measure


def near_stationary(radius: float, weak_convexity: float) -> tuple[Measure, Measure]:
    """How far the released point is from its proximal one, and the Frank-Wolfe gap of that in the l2 ball."""

    def proximal(point: Array, law: Law) -> Array:
        found = law.proximal(point, 2.0 * weak_convexity)
        assert np.linalg.norm(found) < radius, "the domain plays no part"
        return found

    gap = frank_wolfe_gap(radius, 2.0)
    return (
        lambda point, law: float(np.linalg.norm(point - proximal(point, law))),
        lambda point, law: gap(proximal(point, law), law),
    )


#: What a bound is about, by its name without `_bound` and what follows it.
MEASURES: dict[str, Measure] = {
    "excess_risk": excess_risk,
    "expected_excess_risk": excess_risk,
    "mean_squared_error": squared_error,
    "error": lambda point, law: squared_error(point, law) ** 0.5,
}
