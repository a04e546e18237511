"""The largest true positive rate of any membership attack at one false positive rate, from certified deltas.

A guarantee (epsilon, delta) bounds every test of two neighbours, in both directions:

    TPR <= e^epsilon FPR + delta,        TPR <= 1 - e^-epsilon (1 - delta - FPR).

Every epsilon gives a bound, so the smallest over any set of epsilons is a bound, too. A certified upper bound of delta
makes it certified. As a function of e^epsilon the first form is convex on [1, inf) and the second on (0, 1], where they
continue each other (the first with delta of the exchanged pair). So one minimum is searched along the signed line:
epsilon >= 0 stands for the first form at epsilon, a negative number for the second form at -epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import scipy

from accounting.accountant import delta_for_epsilon
from accounting.composition.basic import BasicComposition, pure_epsilon
from accounting.composition.composition import compose
from accounting.composition.evaluator import Evaluator
from accounting.composition.gaussian_dp import AnalyticGaussian
from accounting.composition.intersection import EVALUATORS
from accounting.events import Event
from accounting.intervals import Answer, Interval
from accounting.numbers import read_real
from accounting.relations import NeighboringRelation
from accounting.trade_off import trade_off

#: The epsilon beyond which the mirrored form is 1 up to rounding.
_LARGEST_MIRRORED_EPSILON = 36.0
#: The tolerance of the minimum's place. The bound is flat there, so its error is of the order of the square.
_TOLERANCE = 1e-4
_ULP = 2.0**-52


def tpr_for_fpr(
    events: Sequence[Event],
    relation: NeighboringRelation,
    fpr: float,
    *,
    evaluators: Sequence[Evaluator] = EVALUATORS,
) -> Answer:
    """Return the largest true positive rate that a test of two neighbours has at this false positive rate.

    Args:
        events: 1 to 1000 events, fixed before the first output is seen.
        relation: the neighbouring relation.
        fpr: The share of non-members that the attack takes for members, in (0, 1).
        evaluators: The evaluators that are asked for delta.

    Returns:
        An interval. Its upper end bounds every attack; no bound below its lower end holds for all neighbours.

    Guarantees:
        no_attack_is_better: upper is at least the true positive rate of every test, in both directions.
        exact_for_full_batch: relative width below 1e-9 for full-batch Gaussians: Phi(mu + Phi^-1(fpr)).

    Raises:
        InvalidValue: If fpr is not in (0, 1).

    Source: Wasserman & Zhou 2010, Theorem 2.4; Dong, Roth & Su 2022, Proposition 3.

    >>> from accounting.events import Gaussian
    >>> answer = tpr_for_fpr([Event(Gaussian(1.0))], NeighboringRelation.ADD_OR_REMOVE_ONE, 0.05)
    >>> round(answer.value.upper, 9)
    0.259511023
    """
    fpr = read_real("fpr", fpr, 0.0, math.nextafter(1.0, 0.0), open_lower=True)
    relation = NeighboringRelation(relation)
    composition = compose(events, relation)
    if composition.gaussian_only is not None:
        return _gaussian(composition.gaussian_only.mu, fpr)

    def delta_at(epsilon: float) -> Answer:
        return delta_for_epsilon(events, relation, epsilon, evaluators=evaluators)

    return tpr_from_deltas(delta_at, fpr, pure_epsilon(composition))


def _gaussian(mu: float, fpr: float) -> Answer:
    """Return Phi(mu + Phi^-1(fpr)), rounded outward."""
    start = float(scipy.special.ndtri(fpr))
    quantile = mu + start
    slack = 16.0 * _ULP * (abs(start) + mu + 1.0)
    relative = 1e-14 * (1.0 + quantile * quantile)
    # Logarithms are used, because `ndtr` returns 0 where its value is below every normal number.
    below, middle, above = np.exp(scipy.special.log_ndtr([quantile - slack, quantile, quantile + slack])).tolist()
    lower = max(fpr, below * (1.0 - relative) - 5e-324)
    upper = max(lower, min(1.0, above * (1.0 + relative) + 5e-324))
    estimate = min(max(middle, lower), upper)
    return Answer(Interval(lower, estimate, upper), AnalyticGaussian.name, {"rounding": upper - lower})


def tpr_from_deltas(delta_at: Callable[[float], Answer], fpr: float, pure: float = math.inf) -> Answer:
    """Return what `tpr_for_fpr` does, for anything that has a delta at each epsilon, such as a group of records.

    The upper end is the smallest of the bounds along the signed line. The lower end is the trade-off curve's, from the
    same deltas.

    Args:
        delta_at: The interval of delta at an epsilon of at least 0, for both directions.
        fpr: The false positive rate, in (0, 1).
        pure: The epsilon at which delta becomes 0, if it is known. The line has a kink there, which a search for a
            smooth minimum only approximates.
    """
    uppers = [1.0]
    methods = [BasicComposition.name]
    deltas: dict[float, Interval] = {}

    def bound(signed: float) -> float:
        epsilon = abs(signed)
        answer = delta_at(epsilon)
        form = _direct if signed >= 0.0 else _mirrored
        uppers.append(form(epsilon, fpr, answer.value.upper))
        methods.append(answer.method)
        deltas[epsilon] = answer.value
        return uppers[-1]

    low, high = -_LARGEST_MIRRORED_EPSILON, -math.log(fpr)
    for kink in (0.0, pure, -pure):
        if low <= kink <= high:
            bound(kink)
    scipy.optimize.minimize_scalar(bound, bounds=(low, high), method="bounded", options={"xatol": _TOLERANCE})
    upper = min(uppers)
    nodes = sorted(deltas)
    [false_negatives] = trade_off(nodes, [deltas[node] for node in nodes], [fpr])
    lower = min(max(fpr, (1.0 - false_negatives.upper) * (1.0 - 4.0 * _ULP)), upper)
    return Answer(Interval(lower, upper, upper), methods[uppers.index(upper)], {"trade_off": upper - lower})


def _direct(epsilon: float, fpr: float, delta: float) -> float:
    """Return e^eps fpr + delta, rounded up."""
    return (math.exp(epsilon) * fpr + delta) * (1.0 + 8.0 * _ULP) + 5e-324


def _mirrored(epsilon: float, fpr: float, delta: float) -> float:
    """Return 1 - e^-eps (1 - delta - fpr), rounded up."""
    return 1.0 - math.exp(-epsilon) * (1.0 - delta - fpr) + 8.0 * _ULP
