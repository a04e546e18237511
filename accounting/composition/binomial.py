"""This module composes randomised response by exact sums over outcomes. Pure guarantees are equivalent to randomised
response.

n steps whose largest loss is l have the losses l (2k - n), k = 0, ..., n, with binomial probabilities. A list with a
few different l therefore has few losses, and

    delta(eps) = sum over losses above eps of probability (1 - e^(eps - loss)),

a sum of positive terms (Kairouz, Oh & Viswanath 2015, Theorem 3.3; Murtagh & Vadhan 2016, Theorem 1.5 for lists).
"""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.composition.composition import Composition
from accounting.fourier.outcomes import MOST_OUTCOMES, Outcomes
from accounting.fourier.steps import UNIT
from accounting.intervals import Bounds
from accounting.losses.stated import RandomizedResponseLoss

Array = NDArray[np.float64]

_BISECTIONS = 200


class BinomialComposition:
    """The evaluator for compositions of randomised response.

    Guarantees: exact_for_pure_guarantees: relative width of a delta below 1e-8.
    """

    name = "binomial_sum"
    methods: tuple[str, ...] = ()

    def delta(self, composition: Composition, epsilon: float) -> Bounds | None:
        outcomes = _outcomes(composition)
        if outcomes is None:
            return None
        lower, upper = outcomes.delta(epsilon)
        return Bounds(lower, min(upper, 1.0), 0.5 * (lower + upper), {"rounding": upper - lower})

    def epsilon(self, composition: Composition, delta: float) -> Bounds | None:
        outcomes = _outcomes(composition)
        if outcomes is None:
            return None
        # Below the first number, the lower bound is above delta; from the second on, the upper bound is at most delta.
        low, _ = _crossing(outcomes, delta, upward=False)
        _, high = _crossing(outcomes, delta, upward=True)
        return Bounds(low, high, 0.5 * (low + high), {"rounding": high - low})


def _crossing(outcomes: Outcomes, delta: float, *, upward: bool) -> tuple[float, float]:
    """Return two neighbouring epsilons between which the bound of delta falls to ``delta``; (0, 0) if it is never above
    ``delta``.
    """
    low, high = 0.0, float(outcomes.losses.max()) + 2.0 * outcomes.loss_error
    if not outcomes.delta(low)[upward] > delta:
        return 0.0, 0.0
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        low, high = (middle, high) if outcomes.delta(middle)[upward] > delta else (low, middle)
    return low, high


def _outcomes(composition: Composition) -> Outcomes | None:
    """Return all outcomes; None if a step is not randomised response, or if there are too many losses."""
    groups: dict[float, int] = {}
    for loss, count in composition.steps:
        if not isinstance(loss, RandomizedResponseLoss):
            return None
        groups[loss.epsilon] = groups.get(loss.epsilon, 0) + count
    if math.prod(count + 1 for count in groups.values()) > MOST_OUTCOMES:
        return None
    laws = [_binomial(size, count) for size, count in groups.items()]
    log_masses = reduce(lambda left, right: np.add.outer(left, right).ravel(), (law[0] for law in laws))
    losses = reduce(lambda left, right: np.add.outer(left, right).ravel(), (law[1] for law in laws))
    # The largest terms are logarithms of factorials and exponents of powers. Each has an error of a few units in the
    # last place.
    terms = sum(8.0 * math.lgamma(count + 2.0) + 4.0 * count * (size + 1.0) for size, count in groups.items())
    largest = math.fsum(size * count for size, count in groups.items())
    error = UNIT * (16.0 * terms + 64.0 + losses.size)
    return Outcomes(log_masses, losses, math.expm1(error), UNIT * (8.0 + 2.0 * len(groups)) * largest)


def _binomial(size: float, count: int) -> tuple[Array, Array]:
    """Return (log masses, losses) of ``count`` steps: p = 1 / (1 + e^-l), 1 - p = p e^-l."""
    k = np.arange(count + 1, dtype=np.float64)
    log_choices = (
        scipy.special.gammaln(count + 1.0) - scipy.special.gammaln(k + 1.0) - scipy.special.gammaln(count - k + 1.0)
    )
    return log_choices - count * math.log1p(math.exp(-size)) - (count - k) * size, size * (2.0 * k - count)
