"""Bounds on the best guess of who took part: what a limit on privacy loss means for one person, in per cent.

Somebody knows all of the data except whether one unit took part, and finds both cases equally likely. Without the
output, their guess is right in half of all cases. Each function returns an upper bound of the share of cases in which a
guess with the output is right.
"""

from __future__ import annotations

import math

#: An allowance far above the effect of rounding on the probabilities below.
_ROUNDING = 1e-12


def under_epsilon(epsilon: float, delta: float = 0.0) -> float:
    """Return the largest share of right guesses under (epsilon, delta)-differential privacy.

    No test is right more often than ``(e^epsilon + delta) / (1 + e^epsilon)`` (Kairouz, Oh & Viswanath 2015, Theorem
    2.1).

    >>> round(under_epsilon(3.0), 4), round(under_epsilon(0.0, 0.5), 4)
    (0.9526, 0.75)
    """
    wrong = (1.0 - delta) / (1.0 + math.exp(min(epsilon, 700.0)))
    return min(1.0, 1.0 - wrong + _ROUNDING)


def under_mu(mu: float) -> float:
    """Return the share under mu-Gaussian differential privacy: ``Phi(mu / 2)`` (Dong, Roth & Su 2022).

    >>> round(under_mu(1.0), 4)
    0.6915
    """
    return min(1.0, 0.5 * math.erfc(-mu / math.sqrt(8.0)) + _ROUNDING)


def under_rho(rho: float) -> float:
    """Return an upper bound of the share of right guesses under rho-zero-concentrated differential privacy.

    The Kullback-Leibler divergence of the two outputs is at most rho, so their total variation is at most
    ``sqrt(rho / 2)`` (Pinsker) and ``sqrt(1 - e^-rho)`` (Bretagnolle & Huber); a guess is right with probability (1 +
    total variation) / 2.

    >>> round(under_rho(0.5), 4), round(under_rho(5.0), 4)
    (0.75, 0.9983)
    """
    distance = min(math.sqrt(rho / 2.0), math.sqrt(-math.expm1(-rho)))
    return min(1.0, 0.5 + 0.5 * distance + _ROUNDING)
