"""Reading numbers: the only place where a value from outside becomes a float or an int of this engine."""

from __future__ import annotations

import math
from numbers import Integral, Real

from accounting.errors import InvalidValue

#: The numerics are not used beyond these limits, which are part of the public contract.
MAX_COUNT = 10**8
MAX_EVENTS = 1000
MAX_DATASET_SIZE = 10**13
#: The largest dimension of a released vector.
MAX_DIMENSION = 10**10
#: The most Renyi orders, and the largest.
MAX_ORDERS = 64
MAX_ORDER = 1e7
MIN_NOISE_MULTIPLIER = 1e-3
MAX_NOISE_MULTIPLIER = 1e6


def read_real(name: str, value: object, lower: float, upper: float, *, open_lower: bool = False) -> float:
    """Return ``value`` as a float, or refuse it unless it is a real number in the range.

    Guarantees: int, float and NumPy scalars that mean the same number give the same bits.

    Raises:
        InvalidValue: If the value is not a real number (booleans and strings are not), not finite, or outside the
            range.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidValue(f"{name} must be a number, not {type(value).__name__}", pointer=(name,))
    number = float(value)
    below = number <= lower if open_lower else number < lower
    if not math.isfinite(number) or below or number > upper:
        bracket = "(" if open_lower else "["
        raise InvalidValue(f"{name} must be in {bracket}{lower:g}, {upper:g}], got {number!r}", pointer=(name,))
    return number


def read_integer(name: str, value: object, lower: int, upper: int) -> int:
    """Return ``value`` as an int; raise `InvalidValue` unless it is integral (3.0 is) and in the range."""
    integral = isinstance(value, Integral) or (isinstance(value, Real) and float(value).is_integer())
    if isinstance(value, bool) or not integral:
        raise InvalidValue(f"{name} must be an integer", pointer=(name,))
    number = int(value)  # type: ignore[call-overload]  # integral, checked above
    if not lower <= number <= upper:
        raise InvalidValue(f"{name} must be in [{lower}, {upper}], got {number}", pointer=(name,))
    return int(number)
