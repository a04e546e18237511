r"""This module converts between the paper's privacy numbers: $\varepsilon_p = \sqrt{2\rho}$, and Proposition 3."""

from __future__ import annotations

import math

#: Replacing a record moves the sum of clipped gradients by at most this many contribution bounds.
_REPLACED = 2.0


def paper_epsilon(noise_multiplier: float) -> float:
    """Return the epsilon_p for which the paper adds this noise. It is 2 / z, because the paper has sigma = 2 C /
    (epsilon_p s).

    >>> paper_epsilon(2.0)
    1.0
    """
    return _REPLACED / noise_multiplier


def paper_rho(noise_multiplier: float) -> float:
    """Return rho = epsilon_p^2 / 2 of one pass with this noise, if a record is replaced.

    Under the other relations a pass costs less. A replacement is two changes under such a relation. By zCDP for groups
    of two (2^2 rho), the lower bounds for replaced records hold under these relations with the same number.
    """
    return 0.5 * paper_epsilon(noise_multiplier) ** 2


def proposition_3_epsilon(rho: float, delta: float) -> float:
    """Return epsilon = rho + 2 sqrt(rho ln(1/delta)), the conversion of Proposition 3.

    >>> round(proposition_3_epsilon(0.5, 1e-6), 9), round(proposition_3_epsilon(0.01, 1e-5), 10)
    (5.75652177, 0.6886140424)
    """
    return rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))


def proposition_3_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho for which the epsilon of Proposition 3 is at most the given epsilon.

    >>> round(proposition_3_rho(1.0, 1e-6), 11)
    0.01746890477
    """
    log_delta = math.log(1.0 / delta)
    # This computes the difference of the square roots without cancellation.
    return (epsilon / (math.sqrt(log_delta + epsilon) + math.sqrt(log_delta))) ** 2
