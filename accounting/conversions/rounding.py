"""This module rounds outward, so that a converted guarantee holds exactly as its numbers are written."""

from __future__ import annotations

import math
from fractions import Fraction

#: An allowance for rounding in a closed form of a few operations and elementary functions, relative to its largest
#: term.
CLOSED_FORM_ALLOWANCE = 8.0 * 2.0**-52


def rounded_up(number: Fraction) -> float:
    """Return the smallest float that is at least ``number``.

    >>> rounded_up(Fraction(1, 2)), rounded_up(Fraction(1, 10)) >= Fraction(1, 10)
    (0.5, True)
    """
    nearest = float(number)
    return nearest if Fraction(nearest) >= number else math.nextafter(nearest, math.inf)


def root_rounded_up(square: Fraction) -> float:
    """Return a float whose square is at least ``square``, and exceeds it by a few units in the last place at most.

    >>> root_rounded_up(Fraction(1, 4)), root_rounded_up(Fraction(2)) ** 2 >= 2
    (0.5, True)
    """
    root = math.sqrt(rounded_up(square))
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root


def enlarged(value: float, scale: float = 0.0) -> float:
    """Return ``value`` plus the rounding allowance of a closed form whose largest term has the size ``scale``, or that
    of ``value`` if it is larger.

    >>> enlarged(0.0), 1.0 < enlarged(1.0) < 1.0 + 1e-14
    (0.0, True)
    """
    if value == 0.0 and scale == 0.0:
        return 0.0
    return value + max(abs(value), abs(scale)) * CLOSED_FORM_ALLOWANCE + 5e-324


def as_probability(value: float) -> float:
    """Return ``value`` as an upper bound of a probability: 1 if it is larger."""
    return min(1.0, max(0.0, value))


def times_exp(number: float, exponent: float) -> float:
    """Return ``number`` times e^exponent. The product is right even if the power alone would overflow.

    >>> round(times_exp(1e-310, 710.0), 6)
    0.02234
    """
    first = min(exponent, 700.0)
    return number * math.exp(first) * math.exp(min(exponent - first, 700.0))
