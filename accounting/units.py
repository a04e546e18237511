"""Nano-units: the integers that a ledger adds.

An amount of epsilon, rho or Renyi divergence is an integer number of 1e-9: costs are rounded up to one, limits down.
"""

from __future__ import annotations

import math
from fractions import Fraction

Amounts = tuple[int, ...]

NANO = 10**9
#: Amounts stop growing here: above every cap, and the sum of two still fits a signed 64-bit integer.
SATURATED = 2**61
#: Largest limit of a budget, in whole units; its nano-units are below `SATURATED`.
MAX_LIMIT = 1e9
#: The cap of an order that can admit nothing.
CLOSED = -1


def to_nano_up(amount: Fraction) -> int:
    """The smallest number of nano-units that is at least ``amount``, at most `SATURATED`.

    >>> to_nano_up(Fraction(1, 3 * 10**9))
    1
    """
    return min(math.ceil(amount * NANO), SATURATED)


def to_nano_down(amount: Fraction) -> int:
    """The largest number of nano-units that is at most ``amount``."""
    return min(math.floor(amount * NANO), SATURATED)


def add_saturating(first: Amounts, second: Amounts) -> Amounts:
    """Sum per position, at most `SATURATED`.

    >>> add_saturating((1, SATURATED), (2, SATURATED)) == (3, SATURATED)
    True
    """
    return tuple(min(a + b, SATURATED) for a, b in zip(first, second, strict=True))


def from_nano(amount: int) -> str:
    """The exact decimal string of an amount.

    >>> from_nano(250_000_000), from_nano(3), from_nano(2 * NANO)
    ('0.25', '0.000000003', '2')
    """
    whole, rest = divmod(amount, NANO)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".")
