"""From events to certified numbers: the rule that chooses an evaluator.

* delta = 0: the sum of the pure parts (attained); no finite bound when a part has none.
* Full-batch Gaussians alone: the analytic closed form with mu^2 = sensitivity^2 * sum of count / noise^2.
* Everything else: every evaluator that applies is asked and the bounds are intersected, which is sound because each of
  them holds. `method` names the one that gave the upper bound: ``privacy_loss_distribution`` (lattice convolution;
  tight), ``renyi_divergence`` (moments), ``basic_composition`` (sums, total variation), ``analytic_gaussian``.

An evaluator that raises, or whose answer is not a number, drops out; the others' bounds stand. The closed forms and
moments are proved; the convolution's bound of its floating-point error is measured with a margin (see there).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from accounting.composition.basic import BasicComposition, pure_epsilon
from accounting.composition.convolution import Convolution
from accounting.composition.evaluator import Bounds, Evaluator
from accounting.composition.gaussian_dp import AnalyticGaussian
from accounting.composition.renyi import RenyiBound
from accounting.events import Event
from accounting.intervals import Answer, Interval
from accounting.numbers import read_real
from accounting.privacy_loss import Composition, compose
from accounting.relations import NeighboringRelation

MAX_EPSILON = 1e15
#: Proved and fast: microseconds to milliseconds.
QUICK_EVALUATORS: tuple[Evaluator, ...] = (BasicComposition(), AnalyticGaussian(), RenyiBound())
EVALUATORS: tuple[Evaluator, ...] = (*QUICK_EVALUATORS, Convolution())

NO_FINITE_EPSILON = (
    "No finite epsilon exists at delta 0: the list contains a mechanism whose privacy loss is unbounded. "
    "Ask for a positive delta."
)

NO_FINITE_BOUND = (
    "No finite upper bound was found for this combination of mechanisms, which is not to say that there is none. "
    "Ask about its parts separately and add their epsilons and deltas."
)
#: How far, relatively, two bounds may cross by the rounding of their own numerics.
CROSSING_ALLOWANCE = 1e-9


def epsilon_for_delta(
    events: Sequence[Event],
    relation: NeighboringRelation,
    delta: float,
    *,
    evaluators: Sequence[Evaluator] = EVALUATORS,
) -> Answer:
    """The smallest epsilon >= 0 at which the list is (epsilon, delta)-DP, as an interval.

    Args:
        events: 1 to 1000 events, fixed before the first output is seen.
        relation: the neighbouring relation.
        delta: in [0, 1].
        evaluators: who is asked; `QUICK_EVALUATORS` gives a wider interval sooner.

    Returns:
        An interval that contains epsilon; its upper end is inf (with a warning) where no finite bound exists.

    Guarantees:
        interval_contains_truth: lower <= truth <= upper.
        exact_for_full_batch: relative width below 1e-9 for full-batch Gaussians.
        same_bits_for_the_same_numbers: int, float and NumPy scalars agree.
        never_nan: no NaN and no exception for valid events.

    Requires:
        events that do not depend on outputs; a budget whose next charge may needs `accounting.filters`.

    Raises:
        InvalidValue: a number outside its range.

    Source: Balle & Wang 2018, Theorem 8 (analytic Gaussian); `accounting.composition` for the others.

    >>> from accounting.events import Gaussian
    >>> answer = epsilon_for_delta([Event(Gaussian(1.0))], NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-5)
    >>> round(answer.value.upper, 9), answer.method
    (4.377178096, 'analytic_gaussian')
    """
    delta = read_real("delta", delta, 0.0, 1.0)
    composition = compose(events, NeighboringRelation(relation))
    pure = pure_epsilon(composition)
    if delta == 0.0:
        return _pure_answer(pure)
    if delta == 1.0:
        return Answer(Interval(0.0, 0.0, 0.0), BasicComposition.name)
    return _intersect(composition, evaluators, lambda evaluator: evaluator.epsilon(composition, delta), pure)


def delta_for_epsilon(
    events: Sequence[Event],
    relation: NeighboringRelation,
    epsilon: float,
    *,
    evaluators: Sequence[Evaluator] = EVALUATORS,
) -> Answer:
    """The smallest delta at which the list is (epsilon, delta)-DP, as an interval.

    Args:
        epsilon: in [0, 1e15].

    Returns, Guarantees, Requires, Raises, Source: as `epsilon_for_delta`.

    >>> from accounting.events import Laplace
    >>> delta_for_epsilon([Event(Laplace(1.0))], NeighboringRelation.ADD_OR_REMOVE_ONE, 1.5).value.upper
    0.0
    """
    epsilon = read_real("epsilon", epsilon, 0.0, MAX_EPSILON)
    composition = compose(events, NeighboringRelation(relation))
    if pure_epsilon(composition) <= epsilon:
        return Answer(Interval(0.0, 0.0, 0.0), BasicComposition.name)
    return _intersect(composition, evaluators, lambda evaluator: evaluator.delta(composition, epsilon), 1.0)


def _pure_answer(pure: float) -> Answer:
    if math.isinf(pure):
        return Answer(Interval(math.inf, math.inf, math.inf), BasicComposition.name, {}, (NO_FINITE_EPSILON,))
    lower = pure * (1.0 - 2.0**-50)
    return Answer(Interval(lower, pure, pure), BasicComposition.name, {"rounding": pure - lower})


def _intersect(
    composition: Composition,
    evaluators: Sequence[Evaluator],
    ask: Callable[[Evaluator], Bounds | None],
    largest: float,
) -> Answer:
    """The intersection of all bounds; ``largest`` bounds the truth whatever the evaluators say."""
    if composition.gaussian_only is not None:
        evaluators = (AnalyticGaussian(),)
    elif composition.count == 1:
        # One step has a closed form, which nothing numerical improves.
        evaluators = [evaluator for evaluator in evaluators if not isinstance(evaluator, Convolution)]
    best, method = Bounds(upper=largest), BasicComposition.name
    lower, estimate, narrowest = 0.0, math.nan, math.inf
    for evaluator in evaluators:
        if best.upper == lower:
            break
        bounds = _ask_safely(ask, evaluator)
        if bounds is None:
            continue
        lower = max(lower, bounds.lower)
        if bounds.upper < best.upper:
            best, method = bounds, evaluator.name
        if not math.isnan(bounds.estimate) and bounds.width < narrowest:
            estimate, narrowest = bounds.estimate, bounds.width
    if lower > best.upper * (1.0 + CROSSING_ALLOWANCE) + 1e-300 and len(evaluators) > len(QUICK_EVALUATORS):
        # Bounds that contradict each other mean that the numerical evaluator failed: the proved ones answer alone.
        return _intersect(composition, QUICK_EVALUATORS, ask, largest)
    # Proved bounds can cross by their rounding alone; then the larger number is reported.
    upper = max(best.upper, lower)
    middle = upper if math.isnan(estimate) else min(max(estimate, lower), upper)
    budget = dict(best.error_budget) or {method: upper - lower}
    warnings = (NO_FINITE_BOUND,) if math.isinf(upper) else ()
    return Answer(Interval(lower, middle, upper), method, budget, warnings)


def _ask_safely(ask: Callable[[Evaluator], Bounds | None], evaluator: Evaluator) -> Bounds | None:
    """One evaluator's bounds, or None where it fails: the others' bounds are sound without it."""
    with np.errstate(all="ignore"):
        try:
            bounds = ask(evaluator)
        except (ArithmeticError, ValueError, IndexError, MemoryError):
            return None
    return bounds if bounds is not None and bounds.is_sound else None
