"""This module gives the bounds of simple composition, which need neither moments nor convolution.

* Pure parts add up; with a Gaussian rest, epsilon is at most their sum plus the Gaussian's epsilon at the same delta,
  where a Poisson step counts as a full batch (sampling is a post-processing of the full-batch pair).
* Total variation: delta(0) of a list is at most 1 - prod (1 - delta_i(0))^count, and delta falls in epsilon.
* From below, one step of the list costs no more than the list; a list of one step costs exactly that.
"""

from __future__ import annotations

import math

import numpy as np

from accounting.composition.composition import Composition
from accounting.composition.gaussian_dp import AnalyticGaussian, epsilon_of_gaussian
from accounting.intervals import Bounds
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.privacy_loss import Direction, PrivacyLoss

#: A bound of the relative error of closed-form profiles.
_PROFILE_ALLOWANCE = 5e-12
_UNAMPLIFIED_ALLOWANCE = 1e-14


class BasicComposition:
    """The evaluator by simple composition.

    Guarantees: upper_bound_for_every_list; exact_for_one_step.
    """

    name = "basic_composition"
    methods: tuple[str, ...] = ()

    def delta(self, composition: Composition, epsilon: float) -> Bounds | None:
        if pure_epsilon(composition) <= epsilon:
            return Bounds(0.0, 0.0, 0.0)
        lower = max(_one_step_delta(loss, epsilon, upward=False) for loss, _ in composition.steps)
        upper = min(1.0, total_variation(composition))
        pure, mu = _pure_and_gaussian(composition)
        if mu > 0.0 and pure <= epsilon:
            alone = AnalyticGaussian().delta(_gaussian(mu), epsilon - pure)
            upper = min(upper, alone.upper if alone else 1.0)
        if composition.count == 1 and composition.has_pairs:
            upper = min(upper, _one_step_delta(composition.steps[0][0], epsilon, upward=True) + 5e-324)
        return Bounds(min(lower, upper), upper, math.nan, {"composition": upper - min(lower, upper)})

    def epsilon(self, composition: Composition, delta: float) -> Bounds | None:
        if total_variation(composition) <= delta:
            return Bounds(0.0, 0.0, 0.0)
        pure, mu = _pure_and_gaussian(composition)
        rest = epsilon_of_gaussian(mu, delta, upward=True) if mu > 0.0 else 0.0
        upper = (pure + rest) * (1.0 + 1e-15)
        steps = [_one_step_epsilon(loss, delta) for loss, _ in composition.steps]
        lower = max(below for below, _ in steps)
        if composition.count == 1 and composition.has_pairs:
            upper = min(upper, steps[0][1])
        return Bounds(min(lower, upper), upper, math.nan, {"composition": upper - min(lower, upper)})


def pure_epsilon(composition: Composition) -> float:
    """Return the sum of the pure parts, rounded up; inf if a step has no largest loss."""
    return math.fsum(count * loss.pure_epsilon for loss, count in composition.steps) * (1.0 + 2.0**-50)


def _pure_and_gaussian(composition: Composition) -> tuple[float, float]:
    """Return the sum of pure epsilons, and mu of all Gaussian steps without amplification.

    If some part is neither pure nor Gaussian, the answer is (inf, 0).
    """
    pure, mu_squared = [0.0], [0.0]
    for loss, count in composition.steps:
        mu = loss.unamplified_mu
        if mu is not None:
            mu_squared.append(count * mu**2)
        elif math.isfinite(loss.pure_epsilon):
            pure.append(count * loss.pure_epsilon)
        else:
            return math.inf, 0.0
    return math.fsum(pure), math.sqrt(math.fsum(mu_squared)) * (1.0 + _UNAMPLIFIED_ALLOWANCE)


def _gaussian(mu: float) -> Composition:
    return Composition(((GaussianLoss(mu), 1),))


def total_variation(composition: Composition) -> float:
    """Return an upper bound of the composition's delta at epsilon 0, which is its total variation."""
    if not composition.has_pairs:
        return 1.0
    log_agreement = 0.0
    for loss, count in composition.steps:
        one = float(loss.excess(np.zeros(1), remove=True)[0]) * (1.0 + _PROFILE_ALLOWANCE)
        one = min(1.0, one + 5e-324) if loss.pure_epsilon > 0.0 else 0.0
        log_agreement += count * math.log1p(-one) if one < 1.0 else -math.inf
    return -math.expm1(log_agreement) * (1.0 + 1e-15)


def _one_step_delta(loss: PrivacyLoss, epsilon: float, *, upward: bool) -> float:
    """Return delta of one step alone, rounded up or down; 0 or 1 if it has no pair."""
    return max(one_step_delta_in(direction, loss, epsilon, upward=upward) for direction in Direction)


def one_step_delta_in(direction: Direction, loss: PrivacyLoss, epsilon: float, *, upward: bool) -> float:
    """Return the delta of one step in one direction, rounded up or down; 0 or 1 if the step has no pair."""
    if not loss.has_pair:
        return float(upward)
    sign, largest = (1.0 if upward else -1.0), loss.pure_epsilon
    error = loss.end_error * largest if math.isfinite(largest) else loss.atom_error * epsilon
    epsilon = max(0.0, epsilon - sign * error)
    profile = float(loss.excess(np.array([epsilon]), remove=direction is Direction.REMOVE)[0])
    # Subnormal numbers have no relative accuracy, so the smallest of them is added or subtracted.
    rounding = sign * 5e-324 if profile > 0.0 else 0.0
    return min(1.0, max(0.0, profile * (1.0 + 2.0 * sign * _PROFILE_ALLOWANCE) + rounding))


def one_step_delta(composition: Composition, epsilon: float) -> float:
    """Return the largest delta that one step alone costs at ``epsilon``, rounded down. It is a lower bound for the
    list.
    """
    return max(_one_step_delta(loss, epsilon, upward=False) for loss, _ in composition.steps)


def one_step_epsilon(composition: Composition, delta: float) -> float:
    """Return the largest epsilon that one step alone costs at ``delta``, rounded down. It is a lower bound for the
    list.
    """
    return max(_one_step_epsilon(loss, delta)[0] for loss, _ in composition.steps)


def _one_step_epsilon(loss: PrivacyLoss, delta: float) -> tuple[float, float]:
    """Bracket the epsilon of one step alone: its delta is above ``delta`` at the first end, and at most that at the
    second.

    The bracket is (0, inf) if the step has no pair.
    """
    if not loss.has_pair:
        return 0.0, math.inf
    return _crossing(loss, delta, upward=False)[0], _crossing(loss, delta, upward=True)[1]


def _crossing(loss: PrivacyLoss, delta: float, *, upward: bool) -> tuple[float, float]:
    """Return two neighbouring numbers between which `_one_step_delta` falls to ``delta``, by bisection."""
    low, high = 0.0, 1.0
    if _one_step_delta(loss, low, upward=upward) <= delta:
        return 0.0, 0.0
    while _one_step_delta(loss, high, upward=upward) > delta:
        low, high = high, 2.0 * high
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (middle, high) if _one_step_delta(loss, middle, upward=upward) > delta else (low, middle)
    return low, high
