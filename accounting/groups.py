"""Groups of records: the cost of several records of one owner together.

Two data sets differ in a group of k: its records all come or go (add_or_remove_one), all become null (replace_special)
or are all replaced (replace_one). This is the relation for a unit larger than a record, if a bound k on the records of
each unit is enforced.

If the pair of every step for a group is known (`PrivacyLoss.for_group`), the steps are composed as in any list. The
answer is exact if some group attains all pairs, or lies between two pairs, up to the probability r that a batch holds
more records of a group than the pairs distinguish. With such an r, a list costs at least delta'(e) - (1 + e^e) r, where
delta' is the delta of the mixtures: each of the list's two laws is within r of those of the mixtures.

Every other list is bounded along a chain of k data sets from one to the other. So is every list with a sampling that
may put records of one group into different steps. With delta(e) for single records,

    delta_k(k e) <= (1 + e^e + ... + e^((k-1) e)) delta(e),

which applies P(S) <= e^e P'(S) + delta(e) k times. From below, a group costs at least as much as one of its records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import scipy

from accounting.accountant import delta_of_composition, epsilon_of_composition
from accounting.composition.composition import Composition, compose
from accounting.composition.evaluator import Evaluator
from accounting.composition.fourier import FourierInversion
from accounting.composition.intersection import EVALUATORS, NO_FINITE_BOUND, QUICK_EVALUATORS
from accounting.enclosure import dominating, enclosure
from accounting.events import Event
from accounting.intervals import Answer, Interval
from accounting.losses.privacy_loss import PrivacyLoss
from accounting.numbers import read_integer, read_real
from accounting.relations import NeighboringRelation

MAX_GROUP_SIZE = 1000
#: The method name of an upper bound that is derived from the cost of single records.
THROUGH_SINGLE_RECORDS = "group_privacy"
_MAX_EPSILON = 1e15
#: Shares of delta below this are given up for a lower bound on epsilon.
_SLIGHT = 1e-9
#: The relative accuracy with which one record's share of epsilon is found; the bound holds at the share that is found.
_TOLERANCE = 2e-6
#: The relative distance from an estimate at which the search for the other end of the bracket begins.
_FIRST_STEP = 1e-3
_MOST_DOUBLINGS = 12
#: Relative widths up to which pairs of groups are enough; if intervals are wider, single records are used as well.
_NARROW = 0.01


def group_epsilon_for_delta(
    events: Sequence[Event], relation: NeighboringRelation, delta: float, group_size: int
) -> Answer:
    """Return the smallest epsilon >= 0 at which the list is (epsilon, delta)-DP for groups, as an interval.

    Args:
        events, relation, delta: As in `accountant.epsilon_for_delta`.
        group_size: The largest number k of records in one group, from 1 to `MAX_GROUP_SIZE`.

    Guarantees:
        interval_contains_truth; one_record_is_a_group: at k = 1 the answer is that of single records.
        exact_for_sums: with full-batch Gaussian and Laplace noise, on a grid too, and of Poisson batches with Gaussian
            noise up to `accounting.losses.group_poisson.MOST_HITS` records.
        as_one_mechanism_for_selection: the exponential mechanism costs a group as much as one with k times its epsilon
            costs a record.

    Raises:
        InvalidValue, Unsupported: As `accountant.epsilon_for_delta` does.

    >>> from accounting.events import Gaussian
    >>> answer = group_epsilon_for_delta([Event(Gaussian(4.0))], NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-5, 4)
    >>> round(answer.value.upper, 9)
    4.377178096
    """
    delta, size = read_real("delta", delta, 0.0, 1.0), read_integer("group_size", group_size, 1, MAX_GROUP_SIZE)
    single = compose(events, NeighboringRelation(relation))
    grouped = _step_by_step(events, single, size)
    excess = _excess_of_single_records(single, delta, size)
    if grouped is not None and grouped.is_exact and grouped.rare == 0.0:
        attained = epsilon_of_composition(grouped.above, delta, grouped.evaluators)
        upper = attained.value.upper
        if _is_narrow(attained.value) or delta in (0.0, 1.0) or excess(upper / size) > 0.0:
            return attained
        through = _through_single_records(single, excess, delta, size, upper / size)
        return _between(min(attained, through, key=lambda found: found.value.upper), attained.value.lower)
    below = epsilon_of_composition(single, delta)
    if delta in (0.0, 1.0):
        value = below.value
        scaled = Interval(value.lower, size * value.estimate, size * value.upper * (1.0 + 1e-15))
        return Answer(scaled, below.method, below.error_budget, below.warnings)
    answer, lower = _through_single_records(single, excess, delta, size, below.value.upper), below.value.lower
    answer = replace(answer, warnings=below.warnings or answer.warnings)
    if grouped is not None and grouped.rare < delta:
        steps = epsilon_of_composition(grouped.above, (delta - grouped.rare) * (1.0 - 1e-15), grouped.evaluators)
        answer = min(answer, steps, key=lambda found: found.value.upper)
        lower = max(lower, _lower_of_steps(grouped, delta))
    return _between(answer, lower)


def estimate_group_epsilon(
    events: Sequence[Event], relation: NeighboringRelation, delta: float, group_size: int
) -> float | None:
    """Estimate `group_epsilon_for_delta`, for a search that certifies its result. The estimate bounds nothing.

    Return None if no estimate is quicker.
    """
    single = compose(events, NeighboringRelation(relation))
    grouped, found = _step_by_step(events, single, group_size), []
    if grouped is not None and grouped.rare < delta:
        found.append(_estimate(grouped.above, delta - grouped.rare))
    if grouped is None or not grouped.is_exact or grouped.rare > 0.0:
        share = _estimated_share(single, delta, group_size)
        found.append(None if share is None else group_size * share)
    return None if None in found else min((each for each in found if each is not None), default=None)


def group_delta_for_epsilon(
    events: Sequence[Event], relation: NeighboringRelation, epsilon: float, group_size: int
) -> Answer:
    """Return the smallest delta at which the list is (epsilon, delta)-DP for groups; see `group_epsilon_for_delta`."""
    epsilon = read_real("epsilon", epsilon, 0.0, _MAX_EPSILON)
    size = read_integer("group_size", group_size, 1, MAX_GROUP_SIZE)
    single = compose(events, NeighboringRelation(relation))
    grouped = _step_by_step(events, single, size)
    steps = None if grouped is None else delta_of_composition(grouped.above, epsilon, grouped.evaluators)
    exact = grouped is not None and grouped.is_exact and grouped.rare == 0.0
    if steps is not None and exact and steps.value.width <= _NARROW * steps.value.upper:
        return steps
    lower = delta_of_composition(single, epsilon).value.lower
    share = epsilon / size * (1.0 - 1e-15)
    through = delta_of_composition(single, share)
    upper = _times_exp(through.value.upper, _log_factor(share, size))
    answer = Answer(Interval(0.0, upper, upper), THROUGH_SINGLE_RECORDS, {}, through.warnings)
    if grouped is not None and steps is not None:
        if grouped.is_exact:
            lower = max(lower, steps.value.lower - grouped.less(epsilon))
        upper = min(1.0, (steps.value.upper + grouped.rare) * (1.0 + 1e-15))
        steps = replace(steps, value=Interval(0.0, min(steps.value.estimate, upper), upper))
        answer = min(answer, steps, key=lambda found: found.value.upper)
    return _between(answer, lower)


@dataclass(frozen=True, slots=True)
class GroupComposition:
    """The steps with their pairs for a group.

    Attributes:
        above: The composition of pairs that dominate.
        is_exact: Whether some group of some mechanism attains all pairs, up to ``rare``.
        rare: The further cost that the list may have, in delta.
    """

    above: Composition
    is_exact: bool
    rare: float = 0.0

    @property
    def evaluators(self) -> Sequence[Evaluator]:
        """The evaluators that are used: all of them, without the lattice if it takes minutes."""
        slow = any(loss.slow_on_lattice for loss, _ in self.above.steps)
        return (FourierInversion(), *QUICK_EVALUATORS) if slow else EVALUATORS

    def less(self, epsilon: float) -> float:
        """Return the largest amount by which the list's delta may be below the delta of its pairs, if the pairs are
        exact."""
        return (1.0 + math.exp(min(epsilon, 700.0))) * self.rare * (1.0 + 1e-12)


def _step_by_step(events: Sequence[Event], single: Composition, size: int) -> GroupComposition | None:
    if size > 1 and any(_is_apart(event) for event in events):
        return None
    return group_composition(single, size)


def _is_apart(event: Event) -> bool:
    return event.sampling.is_drawn_apart and not event.mechanism.parts_cost_less


def group_composition(single: Composition, size: int) -> GroupComposition | None:
    """Return the composition for a group; None if some step's pair for a group is not known."""
    if size == 1:
        return GroupComposition(single, is_exact=True)
    if single.failure.upper > 0.0 or single.discrepancy:
        return None
    steps: list[tuple[PrivacyLoss, int]] = []
    exact, rare = True, 0.0
    for loss, count in single.steps:
        group = loss.for_group(size)
        if group is None:
            return None
        steps.append((group.loss, group.repeats * count))
        exact = exact and group.is_exact
        rare += count * group.rare
    return GroupComposition(Composition(tuple(steps)), exact, rare)


def _is_narrow(value: Interval) -> bool:
    return math.isinf(value.upper) or value.width <= _NARROW * max(1.0, value.upper)


def _lower_of_steps(grouped: GroupComposition, delta: float) -> float:
    """Bound epsilon from below: at every smaller epsilon, the delta of the list, which is hardly below that of its
    pairs, exceeds ``delta``."""
    slight = _SLIGHT * delta
    if not grouped.is_exact or grouped.less(0.0) > slight or delta + slight >= 1.0:
        return 0.0
    reach = math.log(slight / grouped.rare - 1.0) - 1e-9
    most = delta + max(slight, grouped.less(reach))
    found = epsilon_of_composition(grouped.above, most, grouped.evaluators) if most < 1.0 else None
    return 0.0 if found is None else min(max(reach, 0.0), found.value.lower)


def _between(above: Answer, lower: float) -> Answer:
    upper, lower = above.value.upper, min(lower, above.value.upper)
    value = Interval(lower, min(max(above.value.estimate, lower), upper), upper)
    gap = upper - lower if math.isfinite(upper) else 0.0
    return Answer(value, above.method, {**above.error_budget, "group": gap}, above.warnings)


def _excess_of_single_records(single: Composition, delta: float, size: int) -> Callable[[float], float]:
    """Return a function of one record's share of epsilon: log of the bound through single records over delta.

    The bound holds where this function is at most 0. The function decreases.
    """
    enclosed = enclosure(single)
    # A dominating list gives the same in a fraction of the time, if it is known well and moments give no better bound.
    over = single if enclosed is None or enclosed.has_own_moments else enclosed.above

    def excess(share: float) -> float:
        found = delta_of_composition(over, share).value
        if over is not single and found.width > _TOLERANCE * found.upper:
            found = delta_of_composition(single, share).value
        bound = _times_exp(found.upper, _log_factor(share, size))
        return math.log(bound / delta) if bound > 0.0 else -math.inf

    return excess


def _through_single_records(
    single: Composition, excess: Callable[[float], float], delta: float, size: int, start: float
) -> Answer:
    """Find nearly the least e with delta(e) (1 + e^e + ... ) <= delta.

    The search for one record's share begins at ``start``, unless an estimate says where.
    """
    near = _estimated_share(single, delta, size)
    start, step = (max(start, 1e-3), 1.0) if near is None else (near, _FIRST_STEP)
    upper = size * _least_share(excess, start, step) * (1.0 + 1e-15)
    warnings = (NO_FINITE_BOUND,) if math.isinf(upper) else ()
    return Answer(Interval(0.0, upper, upper), THROUGH_SINGLE_RECORDS, {}, warnings)


def _least_share(excess: Callable[[float], float], start: float, step: float) -> float:
    """Find nearly the least number from which on the excess is at most 0; inf if it is too large.

    Args:
        excess: A decreasing function.
        start: The place where the search begins.
        step: The relative distance of the first step from there; later steps are larger.
    """
    low = high = start
    at_low = at_high = excess(start)
    if at_high <= 0.0:
        low = start / (1.0 + step)
        at_low = excess(low)
        # If the list costs nothing at this delta, the search would go down to the smallest positive float.
        if at_low <= 0.0 and excess(0.0) <= 0.0:
            return 0.0
        while at_low <= 0.0:
            high, at_high, step = low, at_low, 4.0 * step
            low = high / (1.0 + step)
            at_low = excess(low)
    else:
        for _ in range(40):
            high = low * (1.0 + step)
            at_high = excess(high) if math.isfinite(high) else math.inf
            if at_high <= 0.0 or not math.isfinite(high):
                break
            low, at_low, step = high, at_high, 4.0 * step
        else:
            high = math.inf
    trials = 0
    while math.isfinite(high) and high - low > _TOLERANCE * high:
        trials += 1
        # Secant steps end on the far side of the root, so that both ends come near to it. If one fails, the bracket is
        # halved.
        tried = 0.5 * (low + high)
        if math.isfinite(at_high) and trials % 4:
            root = low + (high - low) * at_low / (at_low - at_high)
            aside = root + (0.3 if high - root > root - low else -0.3) * _TOLERANCE * high
            tried = aside if low < aside < high else tried
        found = excess(tried)
        if found <= 0.0:
            high, at_high = tried, found
        else:
            low, at_low = tried, found
    return high


def _estimated_share(single: Composition, delta: float, size: int) -> float | None:
    """Estimate the least e with delta(e) (1 + e^e + ...) <= delta; None if no estimate finds it."""

    def more(share: float) -> float:
        found = _estimate(single, math.exp(math.log(delta) - _log_factor(share, size)))
        return math.nan if found is None else found - share

    low = _estimate(single, delta)
    if low is None:
        return None
    high = 2.0 * low
    for _ in range(_MOST_DOUBLINGS):
        if not more(high) > 0.0:
            break
        low, high = high, 2.0 * high
    if not more(low) >= 0.0 >= more(high):
        return None
    return float(scipy.optimize.brentq(more, low, high, xtol=1e-300, rtol=1e-5))


def _estimate(composition: Composition, delta: float) -> float | None:
    """Return a quick estimate of epsilon at ``delta``; None if there is none."""
    if composition.gaussian_only is not None or composition.count == 1 or not 0.0 < delta < 1.0:
        return None
    if composition.failure.upper or composition.discrepancy:
        return None
    with np.errstate(all="ignore"), suppress(ArithmeticError, ValueError):
        found = FourierInversion().estimate_epsilon(dominating(composition), delta)
        return found if found is not None and 0.0 < found < math.inf else None
    return None


def _log_factor(share: float, size: int) -> float:
    """Return log of 1 + e^share + ... + e^((size - 1) share), rounded up."""
    if share == 0.0:
        return math.log(size) * (1.0 + 1e-15)
    largest = (size - 1) * share
    return largest + math.log(-math.expm1(-size * share) / -math.expm1(-share)) + 1e-14 * (1.0 + largest)


def _times_exp(delta: float, log_factor: float) -> float:
    """Return delta times e^log_factor, or 1 if that is smaller."""
    if delta == 0.0:
        return 0.0
    return min(1.0, math.exp(min(0.0, math.log(delta) + log_factor)) * (1.0 + 1e-14))
