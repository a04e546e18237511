"""This module asks several evaluators for bounds of one number, in a fixed order, and intersects their bounds.

An evaluator that raises an error, or whose answer is not a number, is left out. The others' bounds are sound without
it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from accounting.composition.allocations import AllocationConvolution
from accounting.composition.basic import BasicComposition
from accounting.composition.binomial import BinomialComposition
from accounting.composition.bounded_range import METHOD
from accounting.composition.composition import Composition
from accounting.composition.convolution import Convolution
from accounting.composition.evaluator import FAILURES, Evaluator
from accounting.composition.exact_lattice import ExactLattice
from accounting.composition.fourier import FourierInversion
from accounting.composition.gaussian_dp import AnalyticGaussian
from accounting.composition.renyi import RenyiBound
from accounting.fourier.effort import question
from accounting.intervals import Answer, Bounds, Interval

#: The evaluators that use closed forms and moments. They bound every list, but loosely if steps are
#: subsampled.
QUICK_EVALUATORS: tuple[Evaluator, ...] = (BasicComposition(), AnalyticGaussian(), RenyiBound())
EVALUATORS: tuple[Evaluator, ...] = (
    BinomialComposition(),
    ExactLattice(),
    FourierInversion(),
    AllocationConvolution(),
    *QUICK_EVALUATORS,
    Convolution(),
)
#: Every name that `Answer.method` can have.
METHODS = frozenset({METHOD, *(name for evaluator in EVALUATORS for name in (evaluator.name, *evaluator.methods))})

NO_FINITE_BOUND = (
    "No finite upper bound was found for this combination of mechanisms, although one may exist. "
    "Ask about its parts separately and add their epsilons and deltas."
)
EFFORT_REACHED = (
    "The engine stopped at its limit of {} operations. The interval is sound; a larger effort may make it narrower."
)
#: The relative amount by which two bounds may cross because of rounding in their own numerics.
CROSSING_ALLOWANCE = 1e-9


@dataclass(frozen=True)
class AskedBefore:
    """Bounds that were computed earlier, many at a time, for compositions at a delta or an epsilon."""

    found: Mapping[tuple[Composition, float], Bounds]
    name: str = FourierInversion.name
    methods: tuple[str, ...] = ()

    def delta(self, composition: Composition, epsilon: float) -> Bounds | None:
        return self.found.get((composition, epsilon))

    def epsilon(self, composition: Composition, delta: float) -> Bounds | None:
        return self.found.get((composition, delta))


def intersect(
    composition: Composition,
    evaluators: Sequence[Evaluator],
    ask: Callable[[Evaluator], Bounds | None],
    largest: float,
    narrow: Callable[[float], float],
) -> Answer:
    """Return the intersection of the bounds of one evaluator after the other.

    Args:
        largest: An upper bound of the number that is known without the evaluators.
        narrow: A function that takes an interval's upper end and returns the width at which no further evaluator is
            needed.
    """
    if composition.gaussian_only is not None:
        evaluators = (AnalyticGaussian(),)
    elif composition.count == 1 and not composition.steps[0][0].is_enclosed:
        # One step has a closed form, which no numerical method improves.
        evaluators = QUICK_EVALUATORS
    best, method = Bounds(upper=largest), BasicComposition.name
    lower, estimate, narrowest = 0.0, math.nan, math.inf
    with question() as effort:
        for evaluator in evaluators:
            if math.isfinite(best.upper) and best.upper - lower <= narrow(best.upper):
                break
            bounds = _bounds_of(ask, evaluator)
            if bounds is None:
                continue
            lower = max(lower, bounds.lower)
            if bounds.upper < best.upper:
                best, method = bounds, bounds.method or evaluator.name
            if not math.isnan(bounds.estimate) and bounds.width < narrowest:
                estimate, narrowest = bounds.estimate, bounds.width
    if lower > best.upper * (1.0 + CROSSING_ALLOWANCE) + 1e-300 and len(evaluators) > len(QUICK_EVALUATORS):
        # If bounds contradict each other, the numerical evaluator failed, so only the evaluators with proved bounds
        # answer.
        return intersect(composition, QUICK_EVALUATORS, ask, largest, narrow)
    # Proved bounds can cross only by rounding. Then the larger number is reported.
    upper = max(best.upper, lower)
    middle = upper if math.isnan(estimate) else min(max(estimate, lower), upper)
    budget = dict(best.error_budget) or {method: upper - lower}
    warnings = (NO_FINITE_BOUND,) if math.isinf(upper) else ()
    if effort.is_reached and upper - lower > narrow(upper):
        warnings = (*warnings, EFFORT_REACHED.format(effort.limit))
    return Answer(Interval(lower, middle, upper), method, budget, warnings)


def _bounds_of(ask: Callable[[Evaluator], Bounds | None], evaluator: Evaluator) -> Bounds | None:
    """Return one evaluator's bounds, or None if it fails. The other evaluators' bounds are sound without it."""
    with np.errstate(all="ignore"):
        try:
            bounds = ask(evaluator)
        except FAILURES:
            return None
    return bounds if bounds is not None and bounds.is_sound else None
