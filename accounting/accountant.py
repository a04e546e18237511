"""From events to certified numbers: the rule that chooses an evaluator.

* delta = 0: the sum of the pure parts (attained); no finite bound when a part has none.
* Full-batch Gaussians alone: the analytic closed form with mu^2 = sensitivity^2 * sum of count / noise^2.
* One step: its closed form.
* Everything else: the evaluators are asked in the order of `EVALUATORS` until the interval is narrow enough, and their
  bounds are intersected, which is sound because each of them holds. `method` names the one that gave the upper
  bound: ``binomial_sum`` (pure guarantees), ``fourier_inversion``, ``split_fourier_inversion`` or
  ``windowed_fourier_inversion`` (contour integrals; the rule between them is in `fourier.profiles`),
  ``basic_composition`` (sums, total variation), ``analytic_gaussian``, ``renyi_divergence`` (moments),
  ``privacy_loss_distribution`` (lattice convolution).

An evaluator that raises, or whose answer is not a number, drops out; the next one's sound answer stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from accounting.composition.basic import BasicComposition, pure_epsilon
from accounting.composition.binomial import BinomialComposition
from accounting.composition.convolution import Convolution
from accounting.composition.evaluator import Bounds, Evaluator
from accounting.composition.fourier import DELTA_GOAL, FourierInversion
from accounting.composition.gaussian_dp import AnalyticGaussian
from accounting.composition.renyi import RenyiBound
from accounting.composition.shared_lines import deltas_on_shared_lines, epsilons_on_shared_lines
from accounting.events import Event
from accounting.fourier.profiles import goal
from accounting.intervals import Answer, Interval
from accounting.numbers import read_real
from accounting.privacy_loss import Composition, compose
from accounting.relations import NeighboringRelation

MAX_EPSILON = 1e15
#: Closed forms and moments: a bound for every list, wide where steps are subsampled.
QUICK_EVALUATORS: tuple[Evaluator, ...] = (BasicComposition(), AnalyticGaussian(), RenyiBound())
EVALUATORS: tuple[Evaluator, ...] = (BinomialComposition(), FourierInversion(), *QUICK_EVALUATORS, Convolution())
#: Every name that `Answer.method` can have.
METHODS = frozenset(name for evaluator in EVALUATORS for name in (evaluator.name, *evaluator.methods))
#: A delta below this is not resolved further.
NEGLIGIBLE_DELTA = 1e-33

NO_FINITE_EPSILON = (
    "No finite epsilon exists at delta 0: the list contains a mechanism whose privacy loss is unbounded. "
    "Ask for a positive delta."
)

NO_FINITE_BOUND = (
    "No finite upper bound was found for this combination of mechanisms, which is not to say that there is none. "
    "Ask about its parts separately and add their epsilons and deltas."
)
FAILS_TOO_OFTEN = (
    "No finite epsilon exists at this delta: with probability {:.6g} a step with a stated delta fails outright, which "
    "is more than delta {:.6g}. Ask for a larger delta."
)
#: Relative error of a sum of largest losses, whose exponentials magnify the rounding of a noise multiplier.
PURE_ALLOWANCE = 2e-12
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
    if delta == 1.0:
        return Answer(Interval(0.0, 0.0, 0.0), BasicComposition.name)
    least, most = composition.failure.left_of(delta)
    if least < 0.0:
        warning = FAILS_TOO_OFTEN.format(composition.failure.upper, delta)
        lower = 0.0 if most < 0.0 else _epsilon_of_rest(composition, most, evaluators).value.lower
        value = Interval(math.inf if most < 0.0 else lower, math.inf, math.inf)
        return Answer(value, BasicComposition.name, {}, (warning,))
    answer = _epsilon_of_rest(composition, least, evaluators)
    if most == least:
        return answer
    lower = min(answer.value.lower, _epsilon_of_rest(composition, most, evaluators).value.lower)
    value = Interval(lower, max(lower, answer.value.estimate), answer.value.upper)
    return replace(answer, value=value)


def _epsilon_of_rest(composition: Composition, delta: float, evaluators: Sequence[Evaluator]) -> Answer:
    """Epsilon at 0 <= delta <= 1 given that no step fails."""
    if delta == 1.0:
        return Answer(Interval(0.0, 0.0, 0.0), BasicComposition.name)
    pure = pure_epsilon(composition)
    if delta == 0.0:
        return _pure_answer(pure)
    return _intersect(composition, evaluators, lambda evaluator: evaluator.epsilon(composition, delta), pure, goal)


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
        answer = Answer(Interval(0.0, 0.0, 0.0), BasicComposition.name)
    else:
        answer = _intersect(
            composition, evaluators, lambda evaluator: evaluator.delta(composition, epsilon), 1.0, _delta_goal
        )
    return replace(answer, value=composition.failure.with_rest(answer.value))


def epsilons_for_deltas(
    events: Sequence[Event], relation: NeighboringRelation, deltas: Sequence[float]
) -> list[Answer]:
    """`epsilon_for_delta` at each of ``deltas``, in their order; neighbours share their work.

    >>> from accounting.events import Gaussian, Poisson
    >>> events = [Event(Gaussian(4.0), Poisson(0.01), 10_000)]
    >>> answers = epsilons_for_deltas(events, NeighboringRelation.ADD_OR_REMOVE_ONE, [1e-5, 1e-6])
    >>> [round(answer.value.upper, 6) for answer in answers]
    [0.946867, 1.084623]
    """
    deltas = [read_real("delta", delta, 0.0, 1.0) for delta in deltas]
    asked = [delta for delta in deltas if 0.0 < delta < 1.0]
    shared = _shared(events, relation, asked, epsilons_on_shared_lines)
    return [epsilon_for_delta(events, relation, delta, evaluators=_known_first(shared.get(delta))) for delta in deltas]


def deltas_for_epsilons(
    events: Sequence[Event], relation: NeighboringRelation, epsilons: Sequence[float]
) -> list[Answer]:
    """`delta_for_epsilon` at each of ``epsilons``, in their order; neighbours share their work."""
    epsilons = [read_real("epsilon", epsilon, 0.0, MAX_EPSILON) for epsilon in epsilons]
    shared = _shared(events, relation, epsilons, deltas_on_shared_lines)
    return [
        delta_for_epsilon(events, relation, epsilon, evaluators=_known_first(shared.get(epsilon)))
        for epsilon in epsilons
    ]


@dataclass(frozen=True)
class _Known:
    """An evaluator that was asked before."""

    bounds: Bounds
    name: str = FourierInversion.name
    methods: tuple[str, ...] = ()

    def delta(self, composition: Composition, epsilon: float) -> Bounds:
        return self.bounds

    def epsilon(self, composition: Composition, delta: float) -> Bounds:
        return self.bounds


def _known_first(bounds: Bounds | None) -> Sequence[Evaluator]:
    return EVALUATORS if bounds is None else (_Known(bounds), *EVALUATORS)


def _shared(
    events: Sequence[Event],
    relation: NeighboringRelation,
    asked: Sequence[float],
    evaluate: Callable[[Composition, Sequence[float]], list[Bounds | None]],
) -> dict[float, Bounds]:
    """Bounds by number, where numbers share lines; nothing where one alone is asked or a closed form answers."""
    composition = compose(events, NeighboringRelation(relation))
    if len(asked) < 2 or composition.gaussian_only is not None or composition.count == 1 or composition.failure.upper:
        return {}
    with np.errstate(all="ignore"):
        try:
            found = evaluate(composition, asked)
        except (ArithmeticError, ValueError, IndexError, MemoryError):
            return {}
    return {
        number: bounds for number, bounds in zip(asked, found, strict=True) if bounds is not None and bounds.is_sound
    }


def estimate_epsilon(events: Sequence[Event], relation: NeighboringRelation, delta: float) -> float:
    """A number near the certified epsilon, for a search that certifies where it ends; it bounds nothing."""
    composition = compose(events, NeighboringRelation(relation))
    if composition.gaussian_only is None and composition.count > 1:
        with np.errstate(all="ignore"), suppress(ArithmeticError, ValueError):
            estimate = FourierInversion().estimate_epsilon(composition, delta)
            if estimate is not None and 0.0 < estimate < math.inf:
                return estimate
    return epsilon_for_delta(events, relation, delta, evaluators=QUICK_EVALUATORS).value.upper


def _pure_answer(pure: float) -> Answer:
    if math.isinf(pure):
        return Answer(Interval(math.inf, math.inf, math.inf), BasicComposition.name, {}, (NO_FINITE_EPSILON,))
    lower = pure * (1.0 - PURE_ALLOWANCE)
    return Answer(Interval(lower, pure, pure), BasicComposition.name, {"rounding": pure - lower})


def _intersect(
    composition: Composition,
    evaluators: Sequence[Evaluator],
    ask: Callable[[Evaluator], Bounds | None],
    largest: float,
    narrow: Callable[[float], float],
) -> Answer:
    """The intersection of the bounds of one evaluator after the other.

    Args:
        largest: bounds the truth whatever the evaluators say.
        narrow: the width at which an interval with this upper end needs no further evaluator.
    """
    if composition.gaussian_only is not None:
        evaluators = (AnalyticGaussian(),)
    elif composition.count == 1:
        # One step has a closed form, which nothing numerical improves.
        evaluators = QUICK_EVALUATORS
    best, method = Bounds(upper=largest), BasicComposition.name
    lower, estimate, narrowest = 0.0, math.nan, math.inf
    for evaluator in evaluators:
        if math.isfinite(best.upper) and best.upper - lower <= narrow(best.upper):
            break
        bounds = _ask_safely(ask, evaluator)
        if bounds is None:
            continue
        lower = max(lower, bounds.lower)
        if bounds.upper < best.upper:
            best, method = bounds, bounds.method or evaluator.name
        if not math.isnan(bounds.estimate) and bounds.width < narrowest:
            estimate, narrowest = bounds.estimate, bounds.width
    if lower > best.upper * (1.0 + CROSSING_ALLOWANCE) + 1e-300 and len(evaluators) > len(QUICK_EVALUATORS):
        # Bounds that contradict each other mean that the numerical evaluator failed: the proved ones answer alone.
        return _intersect(composition, QUICK_EVALUATORS, ask, largest, narrow)
    # Proved bounds can cross by their rounding alone; then the larger number is reported.
    upper = max(best.upper, lower)
    middle = upper if math.isnan(estimate) else min(max(estimate, lower), upper)
    budget = dict(best.error_budget) or {method: upper - lower}
    warnings = (NO_FINITE_BOUND,) if math.isinf(upper) else ()
    return Answer(Interval(lower, middle, upper), method, budget, warnings)


def _delta_goal(delta: float) -> float:
    return max(DELTA_GOAL * delta, NEGLIGIBLE_DELTA)


def _ask_safely(ask: Callable[[Evaluator], Bounds | None], evaluator: Evaluator) -> Bounds | None:
    """One evaluator's bounds, or None where it fails: the others' bounds are sound without it."""
    with np.errstate(all="ignore"):
        try:
            bounds = ask(evaluator)
        except (ArithmeticError, ValueError, IndexError, MemoryError):
            return None
    return bounds if bounds is not None and bounds.is_sound else None
