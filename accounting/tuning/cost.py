"""The cost of tuning, that is, of releasing the best of several runs, beside the cost of releasing all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from accounting.accountant import epsilon_for_delta, epsilon_of_composition
from accounting.composition.composition import compose
from accounting.composition.evaluator import Evaluator
from accounting.composition.intersection import EVALUATORS
from accounting.conversions import convert
from accounting.errors import InvalidValue, Unreachable, Unsupported
from accounting.events import ApproximateDp, Event, PureDp, RenyiDp, check_events
from accounting.guarantees import ApproximateDpGuarantee, RenyiDpGuarantee, read_orders
from accounting.intervals import Answer, Interval
from accounting.numbers import read_real
from accounting.relations import NeighboringRelation
from accounting.tuning.selection import Selection
from accounting.tuning.trials import FixedTrials, PoissonTrials, Trials

#: The orders of moments if none are given.
DEFAULT_ORDERS = (
    1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 14.0, 16.0, 20.0, 24.0, 28.0, 32.0, 40.0,
    48.0, 56.0, 64.0, 80.0, 96.0, 128.0, 192.0, 256.0, 384.0, 512.0, 1024.0,
)  # fmt: skip

#: The largest epsilon that an event may state.
MAX_STATED = 1e6

COMPOSITION = "composition"
PROFILE = "selection_profile"
RENYI = "selection_renyi"
#: The theorem behind each method.
SOURCES = {
    COMPOSITION: "the certified interval of all runs together",
    PROFILE: "delta_A(eps) <= sum of w_j delta(eps - c_j); with one c: Koskela, Redberg & Wang 2024",
    RENYI: "Papernot & Steinke 2022, Lemma 7, Theorem 2 (negative binomial) and Theorem 6 (Poisson)",
}


@dataclass(frozen=True, slots=True)
class TuningCost:
    """The cost of releasing the best of K runs.

    Attributes:
        epsilon: The epsilon of the selection at delta. With some score, the selection costs the lower end.
        run: The epsilon of one run, at the same delta.
        composition: The epsilon of ``ceil(E[K])`` runs that are all released, at the same delta; None if they have more
            steps than are accounted.
        bounds: Each proved upper bound of epsilon, by method; the smallest one is ``epsilon.value.upper``.
        moments: Renyi divergences of the selection; None if a run has none.
    """

    epsilon: Answer
    run: Answer
    composition: Answer | None
    bounds: dict[str, float]
    moments: RenyiDpGuarantee | None


def selection_moments(
    events: Sequence[Event],
    relation: NeighboringRelation,
    trials: Trials,
    orders: Sequence[float] | None = None,
) -> RenyiDpGuarantee:
    """Return Renyi divergences of releasing the best of K runs, with K drawn in secret.

    Args:
        events: The events of one run; if runs differ, a list that bounds each of them.
        relation: The neighbouring relation.
        trials: The law of K; a fixed K composes.
        orders: 1 to 64 increasing orders above 1. By default, those of `DEFAULT_ORDERS` that have a bound of at most
            1e6.

    Returns:
        Upper bounds that never decrease in the order. `selection_event` makes a charge from them.

    Guarantees:
        above_every_selection: at least the divergence of the selection by any score, in both directions.
        never_above_theorem_2: at most what Theorem 2 gives from one run's divergences at these orders.

    Requires:
        The number of runs does not depend on data, and nobody learns it (for instance from the time it took). Runs are
        chosen and scored independently of each other, each from its own output or public data.

    Raises:
        InvalidValue: If a number is out of range.
        Unsupported: If one run has no divergence at an order.

    Source: Papernot & Steinke 2022, Lemma 7, Theorems 2 and 6.

    >>> from accounting.events import Gaussian
    >>> from accounting.tuning.trials import TruncatedNegativeBinomial
    >>> once = TruncatedNegativeBinomial(1.0, 1.0)
    >>> found = selection_moments([Event(Gaussian(1.0))], NeighboringRelation.ADD_OR_REMOVE_ONE, once, [2, 4])
    >>> [round(epsilon, 9) for epsilon in found.epsilons]
    [1.0, 2.0]
    """
    events, relation = check_events(events), NeighboringRelation(relation)
    wanted = DEFAULT_ORDERS if orders is None else read_orders(tuple(orders))
    places = np.array(wanted)
    if isinstance(trials, FixedTrials):
        once = Selection(events, relation, PoissonTrials(1.0))
        bounds = trials.trials * once.run_divergences(places) * (1.0 + 1e-15)
    else:
        bounds = Selection(events, relation, trials).divergences(places)
    known = np.isfinite(bounds)
    if orders is None and np.any(known & (bounds <= MAX_STATED)):
        known = known & (bounds <= MAX_STATED)
        places, bounds = places[known], bounds[known]
    elif not np.all(known):
        first = wanted[int(np.argmin(known))]
        raise Unsupported(
            f"no finite Renyi divergence of order {first:g} is known for one run (a step with a stated delta "
            "has none at any order); ask for epsilon at delta, or for smaller orders",
            code="no_renyi_divergence",
            pointer=("orders",),
        )
    return RenyiDpGuarantee(tuple(map(float, places)), tuple(map(float, bounds)))


def selection_event(moments: RenyiDpGuarantee) -> Event:
    """Return the whole selection as one event for a budget, which is charged once, whatever K was.

    Orders at which the selection costs more than an event may state (1e6) are left out.

    Raises:
        Unsupported: If no order is left.

    >>> selection_event(RenyiDpGuarantee((2.0,), (0.5,))).mechanism.kind
    'renyi_dp'
    """
    kept = [pair for pair in zip(moments.orders, moments.epsilons, strict=True) if pair[1] <= MAX_STATED]
    if not kept:
        raise Unsupported(f"the selection costs more than {MAX_STATED:g} at every order", code="no_renyi_divergence")
    return Event(RenyiDp(tuple(order for order, _ in kept), tuple(epsilon for _, epsilon in kept)))


def selection_charge(epsilon: float, delta: float) -> Event:
    """Return the same charge for a budget in (epsilon, delta), or for a pure one."""
    return Event(ApproximateDp(epsilon, delta) if delta > 0.0 else PureDp(epsilon))


def tuning_cost(
    events: Sequence[Event],
    relation: NeighboringRelation,
    trials: Trials,
    delta: float,
    *,
    orders: Sequence[float] | None = None,
) -> TuningCost:
    """Return the cost of tuning at ``delta``, if the best of K runs is released and everything else is withheld.

    Args:
        events: The events of one run; if runs differ, a list that bounds each of them.
        relation: The neighbouring relation.
        trials: The law of K. With a fixed K the runs compose, so every run may be released.
        delta: In [0, 1).
        orders: The orders of the Renyi moments, as in `selection_moments`.

    Guarantees:
        above_every_selection: epsilon's upper end holds for the selection by any score.
        attained_below: some score costs the lower end.

    Requires: As `selection_moments`.

    Raises:
        InvalidValue: If a number is out of range.

    Source: `accounting.tuning.selection`.

    >>> from accounting.events import Laplace
    >>> from accounting.tuning.trials import TruncatedNegativeBinomial
    >>> geometric = TruncatedNegativeBinomial(1.0, 0.01)
    >>> found = tuning_cost([Event(Laplace(1.0))], NeighboringRelation.ADD_OR_REMOVE_ONE, geometric, 0.0)
    >>> found.epsilon.value.upper <= 3.0 + 1e-9, round(found.run.value.upper, 6)
    (True, 1.0)
    """
    events, relation = check_events(events), NeighboringRelation(relation)
    delta = read_real("delta", delta, 0.0, math.nextafter(1.0, 0.0))
    run = epsilon_for_delta(events, relation, delta)
    try:
        together = epsilon_of_runs(events, relation, math.ceil(trials.expected_trials), delta)
    except InvalidValue:
        # One run was accounted above, so it is the total number of steps that is too large.
        if isinstance(trials, FixedTrials):
            raise
        together = None
    try:
        moments = selection_moments(events, relation, trials, orders)
    except Unsupported as error:
        if error.code != "no_renyi_divergence":
            raise
        moments = None
    if isinstance(trials, FixedTrials):
        assert together is not None
        return TuningCost(together, run, together, {COMPOSITION: together.value.upper}, moments)
    answer, bounds = selection_epsilon(Selection(events, relation, trials), delta, moments)
    return TuningCost(answer, run, together, bounds, moments)


def selection_epsilon(
    selection: Selection, delta: float, moments: RenyiDpGuarantee | None = None
) -> tuple[Answer, dict[str, float]]:
    """Return epsilon of a selection at ``delta``, and each bound of it by method."""
    by_profile = selection.epsilon_by_profile(delta)
    bounds = {PROFILE: by_profile.value.upper}
    if moments is not None and delta > 0.0:
        try:
            converted = convert(moments, "approximate_dp", delta=delta).guarantee
        except Unreachable:
            converted = None
        if isinstance(converted, ApproximateDpGuarantee):
            bounds[RENYI] = converted.epsilon
    method = min(bounds, key=bounds.__getitem__)
    upper = bounds[method]
    lower = min(selection.least_epsilon(delta), upper)
    answer = Answer(Interval(lower, upper, upper), method, {"unknown_score": upper - lower}, by_profile.warnings)
    return answer, bounds


def epsilon_of_runs(
    events: Sequence[Event],
    relation: NeighboringRelation,
    times: int,
    delta: float,
    evaluators: Sequence[Evaluator] = EVALUATORS,
) -> Answer:
    """Return the epsilon of releasing this many runs: that of the repeated list, where each run has its own schedules.

    Raises:
        InvalidValue: If the runs together have more steps than are accounted. The pointer is ``trials``.

    >>> from accounting.events import DisjointBatches, Gaussian
    >>> pass_of_ten = [Event(Gaussian(1.0), DisjointBatches("independent"), 10)]
    >>> round(epsilon_of_runs(pass_of_ten, NeighboringRelation.REPLACE_SPECIAL, 5, 1e-5).value.upper, 5)
    11.48002
    """
    try:
        composition = compose(events, relation, runs=times)
    except InvalidValue as error:
        if error.pointer != ("runs",):
            raise
        raise InvalidValue(error.detail, pointer=("trials",)) from None
    return epsilon_of_composition(composition, delta, evaluators)
