"""The Bayes risk of membership inference: how often the best attacker with a prior errs, from certified deltas.

An attacker gives "this data set" the prior probability p, and "its neighbour" 1 - p. A test then errs with probability
p (1 - TPR) + (1 - p) FPR. With s = min(p, 1 - p) and eps = |log(p / (1 - p))|, the smallest such probability over all
tests, in both directions, is

    R(p) = s (1 - delta(eps)),

so certified deltas bound it from both sides. Related quantities:

* 1 - R(p) is the posterior (Bayes) vulnerability: the probability that the best guess is right;
* at p = 1/2 it is (1 - advantage) / 2, and the smallest R(p) / s over all priors, 1 - advantage, is the Bayes security
  of Chatzikokolakis, Cherubin, Palamidessi & Troncoso 2023;
* R is the support function of the trade-off curve: moving the curve by (k, k) moves R by k at every prior.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from accounting.accountant import delta_for_epsilon
from accounting.composition.evaluator import Evaluator
from accounting.composition.intersection import EVALUATORS
from accounting.events import Event
from accounting.intervals import Answer, Interval
from accounting.numbers import read_real
from accounting.relations import NeighboringRelation

#: Priors nearer to 0 or 1 would ask for delta at an epsilon beyond 700.
SMALLEST_PRIOR = 1e-300
_ULP = 2.0**-52


def bayes_risk(
    events: Sequence[Event],
    relation: NeighboringRelation,
    prior: float,
    *,
    evaluators: Sequence[Evaluator] = EVALUATORS,
) -> Answer:
    """Return the smallest probability of error of an attacker with this prior.

    Args:
        events: 1 to 1000 events, fixed before the first output is seen.
        relation: the neighbouring relation.
        prior: in (0, 1), the attacker's probability of membership.
        evaluators: the evaluators that are asked for delta.

    Returns:
        An interval. Its LOWER end holds for every attack; no bound above its upper end holds for all neighbours.

    Guarantees:
        no_attack_errs_less: lower is at most the probability of error of every test, in both directions.
        priors_are_symmetric: p and 1 - p give the same risk.

    Raises:
        InvalidValue: If the prior is not in (0, 1).

    Source: Neyman & Pearson; Kulynych et al. 2024 (riskcal), Cherubin et al. 2023 for its use.

    >>> from accounting.events import Gaussian
    >>> risk = bayes_risk([Event(Gaussian(1.0))], NeighboringRelation.ADD_OR_REMOVE_ONE, 0.5).value
    >>> round(risk.lower, 9), round(risk.upper, 9)
    (0.308537539, 0.308537539)
    """
    smaller, least, most = log_odds(prior)
    high = delta_for_epsilon(events, relation, least, evaluators=evaluators)
    low = high if least == most else delta_for_epsilon(events, relation, most, evaluators=evaluators)
    return Answer(risk_of_delta(smaller, low.value, high.value), high.method, {"delta": high.value.width * smaller})


def log_odds(prior: float) -> tuple[float, float, float]:
    """Return min(p, 1 - p), then |log(p / (1 - p))| rounded down and rounded up.

    Raises:
        InvalidValue: If the prior is not in (0, 1).

    >>> log_odds(0.5)
    (0.5, 0.0, 0.0)
    """
    prior = read_real("prior", prior, SMALLEST_PRIOR, math.nextafter(1.0, 0.0))
    smaller = min(prior, 1.0 - prior)
    odds = math.log1p(-smaller) - math.log(smaller)
    slack = 8.0 * _ULP * odds
    return smaller, max(0.0, odds - slack), odds + slack


def risk_of_delta(smaller: float, low: Interval, high: Interval) -> Interval:
    """Return s (1 - delta), from delta at an epsilon that is not too small (``low``) and one that is not too large."""
    lower = smaller * (1.0 - high.upper) * (1.0 - 4.0 * _ULP)
    upper = min(smaller, smaller * (1.0 - low.lower) * (1.0 + 4.0 * _ULP))
    return Interval(lower, min(max(smaller * (1.0 - high.estimate), lower), upper), upper)
