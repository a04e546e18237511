"""This module bounds the integrals of a sampled Gaussian pair beyond the window of a quadrature.

The factor density e^(tilt L) grows towards one side. There, each panel is bounded by the factor at its outer end times
the mass of N(0, s^2) beyond its inner end. A closed form bounds the rest beyond the last panel, and may replace all
panels. Towards the other side, the factor is at most its value at the window's end.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from accounting.compiled import compiled
from accounting.fourier.normal import log_normal_below
from accounting.fourier.pairs import ADD, REPLACE, Ends, Law, exponents_at, log_ratio_at

Array = NDArray[np.float64]

#: If the closed form is below e^-37, no panels are needed, because it is less than the unit roundoff of a moment.
_NOTHING = -37.0


@compiled
def log_tail(law: Law, left: float, right: float, tilts: Array, band: Ends) -> Array:
    """Return log of a bound of the integral of density e^(tilt L) N(0, s^2) outside [left, right], for every tilt."""
    number, s = law[0], law[1]
    # The factor of ADD grows to the left; the others grow to the right. ADD never has a band.
    near, flat, sign = (left, right, -1.0) if number == ADD else (right, left, 1.0)
    flat_base, flat_loss = exponents_at(flat, law)
    below = log_normal_below(-abs(flat) / s) if band[0] == -math.inf else _log_below(flat, s, band)
    tails, closed = np.empty(tilts.size), np.empty(tilts.size)
    # A moment of the whole law is at least 1; that of a band may be any positive number.
    panels = band[0] > -math.inf or band[1] < math.inf
    for i in range(tilts.size):
        tails[i] = flat_base + tilts[i] * flat_loss + below
        closed[i] = _log_beyond(law, near, tilts[i], band)
        panels = panels or closed[i] > _NOTHING
    if panels:
        closed = np.minimum(closed, _log_panels(law, near, sign, tilts, band))
    for i in range(tilts.size):
        tails[i] = _log_sum(closed[i], tails[i])
    return tails


@compiled
def _log_panels(law: Law, near: float, sign: float, tilts: Array, band: Ends) -> Array:
    """Return log of a bound of the integral further out than ``near``, in the direction of ``sign``, by panels."""
    s, bounded = law[1], band[1] < math.inf
    # A band's share needs finer panels, because tilts there are larger.
    even, step, ratio, geometric = (80, 0.125, 1.1, 120) if bounded or band[0] > -math.inf else (40, 0.25, 1.35, 16)
    totals, tops = np.zeros(tilts.size), np.full(tilts.size, -math.inf)
    inner, last = near, even + geometric - 1
    for k in range(last):
        outer = near + sign * s * (step * (k + 1) if k + 1 < even else even * step * ratio ** (k + 1 - even))
        base, loss = exponents_at(outer, law)
        mass = base + log_normal_below(-abs(inner) / s)
        if bounded or band[0] > -math.inf:
            # Each of the two factors that bound the share is taken at the end of the panel where it is larger.
            mass += min(log_normal_below((band[1] - inner) / band[2]), log_normal_below((outer - band[0]) / band[2]))
        for i in range(tilts.size):
            log = mass + tilts[i] * loss
            if log > tops[i]:
                totals[i] = totals[i] * math.exp(tops[i] - log) + 1.0
                tops[i] = log
            else:
                totals[i] += math.exp(log - tops[i])
        inner = outer
    logs = np.empty(tilts.size)
    for i in range(tilts.size):
        summed = tops[i] + math.log(totals[i]) if tops[i] > -math.inf else tops[i]
        logs[i] = _log_sum(summed, _log_beyond(law, inner, tilts[i], band))
    return logs


@compiled
def _log_beyond(law: Law, place: float, tilt: float, band: Ends) -> float:
    """Return log of a bound of the integral further out than ``place``."""
    number, s, _, _, _, log_least = law
    if number == ADD:
        return log_normal_below(-abs(place) / s) - tilt * log_least
    # f e^-a decreases, so f^p <= (f e^-a)(place)^p e^(p a), a Gaussian of mean p.
    p = tilt + 1.0
    ratio = log_ratio_at(place, law) - (place - 0.5) / (s * s)
    beyond = p * ratio + 0.5 * p * (p - 1.0) / (s * s) + log_normal_below(-(place - p) / s)
    if number == REPLACE:
        beyond -= tilt * log_least
    return beyond + log_normal_below((band[1] - place) / band[2])


@compiled
def _log_below(left: float, s: float, band: Ends) -> float:
    """Return log of a bound of the integral of N(0, s^2) times the band's share over x < ``left``, left of the band.

    There Phi((x - low) / w) is at most its value at ``left`` times e^(k (x - left)) with k = (low - left) / w^2,
    because phi(z) >= -z Phi(z).
    """
    low, _, width = band
    k = max((low - left) / width**2, 0.0)
    m = k * s - left / s
    return log_normal_below((left - low) / width) - 0.5 * (left / s) ** 2 + 0.5 * m * m + log_normal_below(-m)


@compiled
def _log_sum(first: float, second: float) -> float:
    """Return log(e^first + e^second), rounded up by more than its rounding."""
    top, other = max(first, second), min(first, second)
    if other == -math.inf or top == math.inf:
        return top
    return top + math.log1p(math.exp(other - top)) + 1e-15 * abs(top)
