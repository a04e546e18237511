"""Membership audits: what an observer of many trials can prove about a mechanism, at 95 % confidence.

The observer fixes a threshold beforehand, guesses "member" above it, and counts. Clopper-Pearson bounds the true
positive rate from below and the false positive rate from above, each at 97.5 %.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize, stats

ERROR = 0.025


def rates(members: np.ndarray, others: np.ndarray, threshold: float) -> tuple[float, float]:
    """Lower bound of the true positive rate and upper bound of the false positive rate."""
    hits, alarms = int(np.sum(members > threshold)), int(np.sum(others > threshold))
    lower = float(stats.beta.ppf(ERROR, hits, members.size - hits + 1)) if hits else 0.0
    upper = float(stats.beta.ppf(1.0 - ERROR, alarms + 1, others.size - alarms)) if alarms < others.size else 1.0
    return lower, upper


def epsilon_lower_bound(members: np.ndarray, others: np.ndarray, threshold: float, delta: float) -> float:
    """No (epsilon, delta) below this is true: TPR <= e^epsilon FPR + delta."""
    lower, upper = rates(members, others, threshold)
    return math.log((lower - delta) / upper) if lower > delta else 0.0


def mu_lower_bound(members: np.ndarray, others: np.ndarray, threshold: float) -> float:
    """No Gaussian-DP parameter below this is true: the trade-off of N(0, 1) and N(mu, 1) at these rates."""
    lower, upper = rates(members, others, threshold)
    return float(stats.norm.ppf(lower) - stats.norm.ppf(upper))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The epsilon of one Gaussian mechanism at delta (Balle & Wang 2018, Theorem 8)."""

    def excess(epsilon: float) -> float:
        first = stats.norm.cdf(mu / 2.0 - epsilon / mu)
        return float(first - math.exp(epsilon) * stats.norm.cdf(-mu / 2.0 - epsilon / mu) - delta)

    return float(optimize.brentq(excess, 0.0, 50.0))
