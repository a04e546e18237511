"""The accountant turns events into certified numbers: it chooses the evaluators and intersects their bounds.

* delta = 0: the sum of the pure parts (attained); no finite bound when a part has none.
* Full-batch Gaussians alone: the analytic closed form with mu^2 = sensitivity^2 * sum of count / noise^2.
* One step: its closed form.
* Everything else: the evaluators are asked in the order of `EVALUATORS` until the interval is narrow enough, and their
  bounds are intersected, which is sound because each of them holds. `method` names the one that gave the upper
  bound: ``binomial_sum`` (pure guarantees), ``lattice_sum`` (equal steps of discrete noise), ``fourier_inversion``,
  ``split_fourier_inversion`` or ``windowed_fourier_inversion`` (contour integrals; the rule between them is in
  `fourier.profiles`), ``bounded_range_recursion`` (equal steps of the exponential mechanism),
  ``basic_composition`` (sums, total variation), ``analytic_gaussian``, ``renyi_divergence`` (moments),
  ``privacy_loss_distribution`` (lattice convolution). The evaluators and the intersection are in
  `composition.intersection`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from accounting.composition.allocations import AllocationConvolution, is_convolved, like_poisson
from accounting.composition.basic import BasicComposition, one_step_delta, one_step_epsilon, pure_epsilon
from accounting.composition.composition import Composition, compose
from accounting.composition.evaluator import FAILURES, Evaluator
from accounting.composition.fourier import DELTA_GOAL, FourierInversion
from accounting.composition.intersection import EVALUATORS, QUICK_EVALUATORS, AskedBefore, intersect
from accounting.composition.renyi import RenyiBound
from accounting.composition.shared_lines import deltas_on_shared_lines, epsilons_on_shared_lines
from accounting.enclosure import between, bounds_of, dominating, enclosure, is_inverted, named, narrower
from accounting.events import Event
from accounting.fourier.effort import question
from accounting.fourier.profiles import goal
from accounting.intervals import Answer, Bounds, Interval
from accounting.numbers import read_real
from accounting.relations import NeighboringRelation

MAX_EPSILON = 1e15
#: Deltas below this number are not computed more closely.
NEGLIGIBLE_DELTA = 1e-33

NO_FINITE_EPSILON = (
    "No finite epsilon exists at delta 0: the list contains a mechanism whose privacy loss is unbounded. "
    "Ask for a positive delta."
)

FAILS_TOO_OFTEN = (
    "No finite epsilon exists at this delta: with probability {:.6g} a step with a stated delta fails outright, which "
    "is more than delta {:.6g}. Ask for a larger delta."
)
TOO_FAR = (
    "No finite epsilon is proved at this delta: the mechanism differs from its stand-in, whose cost is computed, "
    "by a total variation of {:.6g} over all steps. e^epsilon magnifies this difference, which is too large for "
    "delta {:.6g}."
)
#: Rare mixture branches are left out if their total probability is below this share of delta.
RARE_SHARE = 1e-7
_MOST_REACHES = 16
#: Bounds from two enclosing laws are always wider than this relative width, because the two laws differ by some
#: thousandths.
_NARROWER_THAN_LAWS = 1e-4
#: Relative error of a sum of largest losses, whose exponentials magnify the rounding of a noise multiplier.
PURE_ALLOWANCE = 2e-12
#: Sums below this number are not accurate in relative terms.
SMALLEST_PURE = 1e-300


def epsilon_for_delta(
    events: Sequence[Event],
    relation: NeighboringRelation,
    delta: float,
    *,
    evaluators: Sequence[Evaluator] = EVALUATORS,
) -> Answer:
    """Return the smallest epsilon >= 0 at which the list is (epsilon, delta)-DP, as an interval.

    Args:
        events: 1 to 1000 events, fixed before the first output is seen.
        relation: the neighbouring relation.
        delta: in [0, 1].
        evaluators: the evaluators to ask; `QUICK_EVALUATORS` gives a wider interval sooner.

    Returns:
        An interval that contains epsilon; its upper end is inf (with a warning) if no finite bound exists.

    Guarantees:
        interval_contains_truth: lower <= truth <= upper.
        exact_for_full_batch: relative width below 1e-9 for full-batch Gaussians.
        same_bits_for_the_same_numbers: int, float and NumPy scalars agree.
        never_nan: no NaN and no exception for valid events.

    Requires:
        Events that are fixed in advance. If later charges may depend on earlier outputs, use `accounting.filters`.

    Raises:
        InvalidValue: If a number is outside its range.

    Source: Balle & Wang 2018, Theorem 8 (analytic Gaussian); `accounting.composition` for the others.

    >>> from accounting.events import Gaussian
    >>> answer = epsilon_for_delta([Event(Gaussian(1.0))], NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-5)
    >>> round(answer.value.upper, 9), answer.method
    (4.377178096, 'analytic_gaussian')
    """
    delta = read_real("delta", delta, 0.0, 1.0)
    return epsilon_of_composition(compose(events, NeighboringRelation(relation)), delta, evaluators)


def epsilon_of_composition(
    composition: Composition, delta: float, evaluators: Sequence[Evaluator] = EVALUATORS
) -> Answer:
    """Return what `epsilon_for_delta` does, for losses that are already composed."""
    below = composition.from_below
    if below is not None:
        answer = epsilon_of_composition(replace(composition, from_below=None), delta, evaluators)
        return _lowered(answer, epsilon_of_composition(below, delta, evaluators) if below.steps else None)
    if delta == 1.0:
        return Answer(Interval(0.0, 0.0, 0.0), BasicComposition.name)
    composition = _without_rare_branches(composition, delta)
    if composition.discrepancy:
        return _epsilon_despite_discrepancy(composition, delta, evaluators)
    return _epsilon(composition, delta, evaluators)


def _lowered(answer: Answer, below: Answer | None) -> Answer:
    """Return the answer with the lower end of another list's answer. That list costs no more; if it is None, the lower
    end is 0."""
    value, least = answer.value, 0.0 if below is None else below.value.lower
    lower = min(value.lower, least)
    budget = {**answer.error_budget, "rounded_events": value.lower - lower}
    return replace(answer, value=Interval(lower, value.estimate, value.upper), error_budget=budget)


def _epsilon_despite_discrepancy(composition: Composition, delta: float, evaluators: Sequence[Evaluator]) -> Answer:
    """Bound epsilon by that of the stand-in, at delta less the discrepancy and at delta plus the discrepancy.

    The discrepancy grows with epsilon. So the discrepancy at some epsilon E is valid for every upper and lower end that
    is at most E.
    """
    discrepancy, grows = composition.discrepancy, composition.discrepancy.growing > 0.0
    reach = _epsilon(composition, delta, evaluators).value.upper if grows else 0.0
    most, lower = _more(delta, discrepancy.at(reach)), 0.0
    # If the discrepancy is fixed, both deltas are known at once, and they lie close together.
    together = (
        {}
        if grows or evaluators is not EVALUATORS
        else _on_shared_lines(composition, [_less(delta, discrepancy.fixed), most], epsilons_on_shared_lines)
    )
    evaluators = _known_first(together, evaluators)
    if most < 1.0:
        lower = _epsilon(composition, most, evaluators).value.lower
        lower = min(lower, reach) if grows else lower
    reach += goal(reach)
    for _ in range(_MOST_REACHES):
        left = _less(delta, discrepancy.at(reach))
        if not left > 0.0:
            break
        answer = _epsilon(composition, left, evaluators)
        upper = answer.value.upper
        if math.isinf(upper):
            return replace(answer, value=Interval(lower, upper, upper))
        if upper <= reach or not grows:
            lower = min(lower, upper)
            value = Interval(lower, min(max(answer.value.estimate, lower), upper), upper)
            budget = {**answer.error_budget, "discrepancy": max(0.0, upper - answer.value.width - lower)}
            return replace(answer, value=value, error_budget=budget)
        reach = upper + (upper - reach) + goal(upper)
    warning = TOO_FAR.format(discrepancy.fixed, delta)
    return Answer(Interval(lower, math.inf, math.inf), BasicComposition.name, {}, (warning,))


def _less(delta: float, discrepancy: float) -> float:
    return (delta - discrepancy) * (1.0 - 1e-15)


def _more(delta: float, discrepancy: float) -> float:
    return (delta + discrepancy) * (1.0 + 1e-15)


def _epsilon(composition: Composition, delta: float, evaluators: Sequence[Evaluator]) -> Answer:
    """Return epsilon of a composition at 0 <= delta < 1."""
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
    """Return epsilon at 0 <= delta <= 1, given that no step fails."""
    if delta == 1.0:
        return Answer(Interval(0.0, 0.0, 0.0), BasicComposition.name)
    pure = pure_epsilon(composition)
    if delta == 0.0:
        return _pure_answer(pure)
    enclosed = enclosure(composition, lambda: RenyiBound().best_tilt(composition, delta=delta))
    if enclosed is not None:
        inverted = _inverted(composition, evaluators, lambda each: each.epsilon(composition, delta), pure, goal)
        if inverted is not None and _is_narrow(inverted.value, goal):
            return inverted
        above, below = (_epsilon_of_rest(part, delta, evaluators) for part in (enclosed.above, enclosed.below))
        if enclosed.simpler is not None and above.value.width > goal(above.value.upper):
            above = narrower(above, _epsilon_of_rest(enclosed.simpler, delta, evaluators))
        above = named(above, enclosed.method)
        least = 0.0 if enclosed.one_step is None else one_step_epsilon(enclosed.one_step, delta)
        moments = RenyiBound().epsilon(composition, delta) if enclosed.has_own_moments else None
        others = [moments, bounds_of(inverted)]
        return between(above, below, least, others)
    return intersect(composition, evaluators, lambda evaluator: evaluator.epsilon(composition, delta), pure, goal)


def delta_for_epsilon(
    events: Sequence[Event],
    relation: NeighboringRelation,
    epsilon: float,
    *,
    evaluators: Sequence[Evaluator] = EVALUATORS,
) -> Answer:
    """Return the smallest delta at which the list is (epsilon, delta)-DP, as an interval.

    Args:
        epsilon: in [0, 1e15].

    Returns, Guarantees, Requires, Raises, Source: as `epsilon_for_delta`.

    >>> from accounting.events import Laplace
    >>> delta_for_epsilon([Event(Laplace(1.0))], NeighboringRelation.ADD_OR_REMOVE_ONE, 1.5).value.upper
    0.0
    """
    epsilon = read_real("epsilon", epsilon, 0.0, MAX_EPSILON)
    return delta_of_composition(compose(events, NeighboringRelation(relation)), epsilon, evaluators)


def delta_of_composition(
    composition: Composition, epsilon: float, evaluators: Sequence[Evaluator] = EVALUATORS
) -> Answer:
    """Return what `delta_for_epsilon` does, for losses that are already composed."""
    below = composition.from_below
    if below is not None:
        answer = delta_of_composition(replace(composition, from_below=None), epsilon, evaluators)
        return _lowered(answer, delta_of_composition(below, epsilon, evaluators) if below.steps else None)
    if composition.has_mixtures:
        composition = _without_rare_branches(composition, one_step_delta(composition, epsilon))
    answer = _delta_of_rest(composition, epsilon, evaluators)
    value = composition.discrepancy.around(composition.failure.with_rest(answer.value), epsilon)
    return replace(answer, value=value)


def _delta_of_rest(composition: Composition, epsilon: float, evaluators: Sequence[Evaluator]) -> Answer:
    """Return delta, given that no step fails."""
    if pure_epsilon(composition) <= epsilon:
        return Answer(Interval(0.0, 0.0, 0.0), BasicComposition.name)
    enclosed = enclosure(composition, lambda: RenyiBound().best_tilt(composition, epsilon=epsilon))
    if enclosed is not None:
        inverted = _inverted(composition, evaluators, lambda each: each.delta(composition, epsilon), 1.0, _delta_goal)
        if inverted is not None and _is_narrow(inverted.value, _delta_goal):
            return inverted
        above, below = (_delta_of_rest(part, epsilon, evaluators) for part in (enclosed.above, enclosed.below))
        if enclosed.simpler is not None and above.value.width > _delta_goal(above.value.upper):
            above = narrower(above, _delta_of_rest(enclosed.simpler, epsilon, evaluators))
        above = named(above, enclosed.method)
        least = 0.0 if enclosed.one_step is None else one_step_delta(enclosed.one_step, epsilon)
        moments = RenyiBound().delta(composition, epsilon) if enclosed.has_own_moments else None
        others = [moments, bounds_of(inverted)]
        return between(above, below, least, others)
    return intersect(composition, evaluators, lambda evaluator: evaluator.delta(composition, epsilon), 1.0, _delta_goal)


def _inverted(
    composition: Composition,
    evaluators: Sequence[Evaluator],
    ask: Callable[[Evaluator], Bounds | None],
    largest: float,
    narrow: Callable[[float], float],
) -> Answer | None:
    """Answer by inverting the composition itself and not the laws around it; return None if a loss cannot be
    inverted."""
    if not is_inverted(composition):
        return None
    known = [evaluator for evaluator in evaluators if isinstance(evaluator, AskedBefore)]
    convolved: tuple[Evaluator, ...] = (*known, AllocationConvolution())
    answer = intersect(composition, convolved, ask, largest, narrow)
    # Contour integrals give a wider interval than convolution where convolution is possible.
    if _is_narrow(answer.value, narrow):
        return answer
    return intersect(composition, (*convolved, FourierInversion()), ask, largest, narrow)


def _is_narrow(value: Interval, narrow: Callable[[float], float]) -> bool:
    """Return whether this interval is so narrow that bounds by two enclosing laws could hardly improve it."""
    return value.width <= max(narrow(value.upper), _NARROWER_THAN_LAWS * value.upper) and math.isfinite(value.upper)


def epsilons_for_deltas(
    events: Sequence[Event], relation: NeighboringRelation, deltas: Sequence[float]
) -> list[Answer]:
    """Return `epsilon_for_delta` at each of ``deltas``, in their order; neighbouring values share work.

    >>> from accounting.events import Gaussian, Poisson
    >>> events = [Event(Gaussian(4.0), Poisson(0.01), 10_000)]
    >>> answers = epsilons_for_deltas(events, NeighboringRelation.ADD_OR_REMOVE_ONE, [1e-5, 1e-6])
    >>> [round(answer.value.upper, 6) for answer in answers]
    [0.946867, 1.084623]
    """
    deltas = [read_real("delta", delta, 0.0, 1.0) for delta in deltas]
    return _epsilons_of_composition(compose(events, NeighboringRelation(relation)), deltas)


def _epsilons_of_composition(composition: Composition, deltas: Sequence[float]) -> list[Answer]:
    below = composition.from_below
    if below is not None:
        answers = _epsilons_of_composition(replace(composition, from_below=None), deltas)
        least = _epsilons_of_composition(below, deltas) if below.steps else [None] * len(deltas)
        return [_lowered(answer, one) for answer, one in zip(answers, least, strict=True)]
    asked = [delta for delta in deltas if 0.0 < delta < 1.0]
    if len(asked) < 2:
        return [epsilon_of_composition(composition, delta) for delta in deltas]
    # Branches that are rare compared with the smallest delta are rare compared with all.
    common = _without_rare_branches(composition, min(asked))
    if common.discrepancy.growing:
        return [epsilon_of_composition(composition, delta) for delta in deltas]
    fixed = common.discrepancy.fixed
    both = asked if not fixed else [end for delta in asked for end in (_less(delta, fixed), _more(delta, fixed))]
    known = _known_first(_on_shared_lines(common, both, epsilons_on_shared_lines))
    answer = _epsilon_despite_discrepancy if common.discrepancy else _epsilon
    return [
        answer(common, delta, known) if 0.0 < delta < 1.0 else epsilon_of_composition(composition, delta)
        for delta in deltas
    ]


def deltas_for_epsilons(
    events: Sequence[Event], relation: NeighboringRelation, epsilons: Sequence[float]
) -> list[Answer]:
    """Return `delta_for_epsilon` at each of ``epsilons``, in their order; neighbouring values share work."""
    epsilons = [read_real("epsilon", epsilon, 0.0, MAX_EPSILON) for epsilon in epsilons]
    return _deltas_of_composition(compose(events, NeighboringRelation(relation)), epsilons)


def _deltas_of_composition(composition: Composition, epsilons: Sequence[float]) -> list[Answer]:
    below = composition.from_below
    if below is not None:
        answers = _deltas_of_composition(replace(composition, from_below=None), epsilons)
        least = _deltas_of_composition(below, epsilons) if below.steps else [None] * len(epsilons)
        return [_lowered(answer, one) for answer, one in zip(answers, least, strict=True)]
    known: Sequence[Evaluator] = EVALUATORS
    if len(epsilons) > 1 and not composition.discrepancy and not _without_rare_branches(composition, 1.0).discrepancy:
        known = _known_first(_on_shared_lines(composition, epsilons, deltas_on_shared_lines))
    return [delta_of_composition(composition, epsilon, known) for epsilon in epsilons]


_Found = dict[tuple[Composition, float], Bounds]


def _known_first(found: _Found, evaluators: Sequence[Evaluator] = EVALUATORS) -> tuple[Evaluator, ...]:
    return (AskedBefore(found), *evaluators) if found else tuple(evaluators)


def _on_shared_lines(
    composition: Composition,
    asked: Sequence[float],
    evaluate: Callable[[Composition, Sequence[float]], list[Bounds | None]],
) -> _Found:
    """Return bounds of a composition, or of the two that enclose it, at all values; empty if sharing work does not
    help."""
    if not is_inverted(composition):
        enclosed = enclosure(composition)
        assert enclosed is not None
        parts = dict.fromkeys((enclosed.above, enclosed.below))
        return {key: bounds for part in parts for key, bounds in _on_shared_lines(part, asked, evaluate).items()}
    if composition.gaussian_only is not None or composition.count == 1 or composition.failure.upper:
        return {}
    if min(asked) < 0.0:
        return {}
    with np.errstate(all="ignore"):
        try:
            found = evaluate(composition, asked)
        except FAILURES:
            return {}
    return {
        (composition, number): bounds
        for number, bounds in zip(asked, found, strict=True)
        if bounds is not None and bounds.is_sound
    }


def estimate_epsilon(events: Sequence[Event], relation: NeighboringRelation, delta: float) -> float:
    """Return a number near the certified epsilon, for a search that certifies its result. It is not a bound."""
    composition = like_poisson(_without_rare_branches(compose(events, NeighboringRelation(relation)), delta))
    if composition.gaussian_only is None and composition.count > 1:
        with np.errstate(all="ignore"), suppress(ArithmeticError, ValueError):
            estimate = FourierInversion().estimate_epsilon(dominating(composition), delta)
            if estimate is not None and 0.0 < estimate < math.inf:
                return estimate
    return epsilon_for_delta(events, relation, delta, evaluators=QUICK_EVALUATORS).value.upper


def closely_estimate_epsilon(events: Sequence[Event], relation: NeighboringRelation, delta: float) -> float | None:
    """Return the certified epsilon of the remove direction alone, in half the time; None if that is not quicker."""
    composition = _without_rare_branches(compose(events, NeighboringRelation(relation)), delta)
    if composition.gaussian_only is not None or composition.count == 1:
        return None
    if composition.failure.upper or composition.discrepancy or is_convolved(composition):
        return None
    with np.errstate(all="ignore"), suppress(ArithmeticError, ValueError), question():
        return FourierInversion().epsilon_of_removal(dominating(composition), delta)
    return None


def _without_rare_branches(composition: Composition, delta: float) -> Composition:
    """Drop branches that are rare compared with ``delta``. A single step keeps them, since it has a closed form."""
    return composition.without_rare_branches(RARE_SHARE * delta) if composition.count > 1 else composition


def _pure_answer(pure: float) -> Answer:
    if math.isinf(pure):
        return Answer(Interval(math.inf, math.inf, math.inf), BasicComposition.name, {}, (NO_FINITE_EPSILON,))
    lower = pure * (1.0 - PURE_ALLOWANCE) if pure > SMALLEST_PURE else 0.0
    return Answer(Interval(lower, pure, pure), BasicComposition.name, {"rounding": pure - lower})


def _delta_goal(delta: float) -> float:
    return max(DELTA_GOAL * delta, NEGLIGIBLE_DELTA)
