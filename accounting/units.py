"""Nano- and atto-units: the integers that a ledger adds.

An amount of epsilon, rho, mu squared or Renyi divergence is a whole number of units of 1e-9, and an amount of delta a
whole number of units of 1e-18. Costs are rounded up to such units, and limits are rounded down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

Amounts = tuple[int, ...]

NANO = 10**9
ATTO = 10**18
#: Amounts stop growing here. This is above every cap, and the sum of two such amounts fits a signed 64-bit integer.
SATURATED = 2**61
#: The largest limit of a budget, in whole units. In nano-units it is below `SATURATED`, and so is a delta of 1 in
#: atto-units.
MAX_LIMIT = 1e9
#: Costs that are not rational are enlarged by this much, relatively, before they are rounded up to a nano-unit. The
#: moments carry their own allowance already.
TRANSCENDENTAL_ALLOWANCE = Fraction(1, 10**12)
#: The cap of an order that can admit nothing.
CLOSED = -1


@dataclass(frozen=True, slots=True)
class Between:
    """A cost in whole units that is known up to rounding.

    Attributes:
        least, most: Rational numbers with the cost between them. They are equal if the cost is rational itself.
    """

    least: Fraction
    most: Fraction

    def or_less(self, other: Between) -> Between:
        """Return the smaller of two costs."""
        return Between(min(self.least, other.least), min(self.most, other.most))


def exact(number: float) -> Fraction:
    """Return the shortest decimal that reads back to ``number``, as a rational number."""
    return Fraction(Decimal(repr(float(number))))


def exactly(cost: Fraction) -> Between:
    """Return a cost that is rational."""
    return Between(cost, cost)


def about(cost: float, least: float | None = None) -> Between:
    """Return a cost that is not rational, with its allowance on both sides.

    Args:
        cost: The cost, computed to a relative `TRANSCENDENTAL_ALLOWANCE`, or rounded up by more.
        least: The lower end, needed if ``cost`` is rounded up by more.
    """
    below = cost if least is None else max(0.0, least)
    return Between(Fraction(below) * (1 - TRANSCENDENTAL_ALLOWANCE), Fraction(cost) * (1 + TRANSCENDENTAL_ALLOWANCE))


def to_nano_up(amount: Fraction) -> int:
    """Return the smallest number of nano-units that is at least ``amount``, at most `SATURATED`.

    >>> to_nano_up(Fraction(1, 3 * 10**9))
    1
    """
    return min(math.ceil(amount * NANO), SATURATED)


def to_nano_down(amount: Fraction) -> int:
    """Return the largest number of nano-units that is at most ``amount``."""
    return min(math.floor(amount * NANO), SATURATED)


def to_atto_up(amount: Fraction) -> int:
    """Return the smallest number of atto-units that is at least ``amount``, at most `SATURATED`.

    >>> to_atto_up(Fraction(1, 10**5)), to_atto_up(Fraction(1, 10**30)), to_atto_up(Fraction(10**8)) == SATURATED
    (10000000000000, 1, True)
    """
    return min(math.ceil(amount * ATTO), SATURATED)


def to_atto_down(amount: Fraction) -> int:
    """Return the largest number of atto-units that is at most ``amount``."""
    return min(math.floor(amount * ATTO), SATURATED)


def add_saturating(first: Amounts, second: Amounts) -> Amounts:
    """Return the sum per position, at most `SATURATED`.

    >>> add_saturating((1, SATURATED), (2, SATURATED)) == (3, SATURATED)
    True
    """
    return tuple(min(a + b, SATURATED) for a, b in zip(first, second, strict=True))


def from_nano(amount: int) -> str:
    """Return the exact decimal string of an amount in nano-units.

    >>> from_nano(250_000_000), from_nano(3), from_nano(2 * NANO)
    ('0.25', '0.000000003', '2')
    """
    return _decimal(amount, NANO)


def from_atto(amount: int) -> str:
    """Return the exact decimal string of an amount in atto-units.

    >>> from_atto(10**13), from_atto(1), from_atto(0)
    ('0.00001', '0.000000000000000001', '0')
    """
    return _decimal(amount, ATTO)


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    digits = len(str(unit)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0").rstrip(".")
