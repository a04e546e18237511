"""This module compares another library's number with a certified interval."""

from __future__ import annotations

import math

from accounting.intervals import Interval

#: The relative tolerance. A number that is outside the interval only by rounding is not called wrong.
ROUNDING = 1e-9


def verdict(value: float, interval: Interval) -> str:
    """Return ``"below"`` (less privacy loss than the certified lower end), ``"inside"``, ``"above"``, ``"nan"`` or
    ``"infinite"``.

    >>> verdict(0.5, Interval(1.0, 1.5, 2.0)), verdict(math.inf, Interval(1.0, 1.5, 2.0))
    ('below', 'infinite')
    """
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "infinite"
    if value < interval.lower * (1.0 - ROUNDING):
        return "below"
    return "inside" if value <= interval.upper * (1.0 + ROUNDING) else "above"


def contains(interval: Interval, reference: float) -> bool:
    """Return whether ``interval`` contains a reference that is given with ten digits.

    >>> contains(Interval(1.0, 1.0, 1.0), 1.0 + 1e-11)
    True
    """
    return interval.lower * (1.0 - ROUNDING) <= reference <= interval.upper * (1.0 + ROUNDING)


def failure(error: BaseException) -> str:
    """Return one line that says why a library has no number."""
    sentence = str(error).splitlines()[0][:160] if str(error) else ""
    return f"{type(error).__name__}: {sentence}" if sentence else type(error).__name__
