"""This module draws variates of a density that is known up to a constant, as ratios of uniform variates, to any number
of bits.

If (y, x) is uniform where 0 < y <= h(x/y)^(1/2), then x/y has a density proportional to h (Kinderman & Monahan 1977). A
point is uniform on a rectangle that covers this region and is accepted within it. Both coordinates are strings of bits.
Whether ln h(x/y) >= 2 ln y is decided between bounds; while these overlap, more bits of the same strings are read.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from trainer.exact.enclosures import Interval, ln
from trainer.keystream import Keystream

#: Computes bounds of ln h from bounds of a place and a number of bits; None if nothing can be said yet.
LogDensity = Callable[[Interval, int], Interval | None]
#: A stand-in for ln h = -infinity: 2 ln y is above it, however many bits are read.
OUTSIDE = (Fraction(-(10**30)), Fraction(-(10**30)))
_WORD = 64


class Ratio:
    """One point of the rectangle. If the point is accepted, its ratio x/y is the variate.

    Args:
        stream: The stream of the words that are read.
        ends: Bounds of x; y is in (0, 1].
        log_density: The function that bounds ln h.

    Attributes:
        bounds: Bounds of x/y.
        log: Bounds of ln h(x/y).
        precision: The precision in bits to which they are computed.
    """

    def __init__(self, stream: Keystream, ends: Interval, log_density: LogDensity) -> None:
        self._stream, self._ends, self._log_density = stream, ends, log_density
        self._x, self._y, self._bits = 0, 0, 0
        self.extend()
        self.extend()

    def extend(self) -> None:
        """Read one more word of each coordinate."""
        x, y = (int(word) for word in self._stream.words(2))
        self._x, self._y = (self._x << _WORD) + x, (self._y << _WORD) + y
        self._bits += _WORD

    @property
    def precision(self) -> int:
        return self._bits + 32

    def is_accepted(self) -> bool:
        """Return whether the point is in the region. As many bits are read as the decision takes."""
        while True:
            if self.refresh():
                twice = tuple(2 * end for end in ln(self._height(), self.precision))
                if twice[1] <= self.log[0]:
                    return True
                if twice[0] > self.log[1]:
                    return False
            self.extend()

    def refresh(self) -> bool:
        """Compute `bounds` and `log` from the bits that were read; return False if these bits are too few."""
        if self._y == 0:
            return False
        left, right = self._ends
        step = (right - left) / (1 << self._bits)
        low, high = self._height()
        least = left + step * self._x
        most = least + step
        self.bounds = (
            _rounded_down(least / (high if least >= 0 else low), self.precision),
            -_rounded_down(-most / (low if most >= 0 else high), self.precision),
        )
        log = self._log_density(self.bounds, self.precision)
        if log is None:
            return False
        self.log = log
        return True

    def _height(self) -> Interval:
        return Fraction(self._y, 1 << self._bits), Fraction(self._y + 1, 1 << self._bits)


def _rounded_down(number: Fraction, bits: int) -> Fraction:
    return Fraction((number.numerator << bits) // number.denominator, 1 << bits)


def accepted(stream: Keystream, ends: Interval, log_density: LogDensity) -> Ratio:
    """Return the first accepted point. The number of points before it is independent of its place."""
    while True:
        ratio = Ratio(stream, ends, log_density)
        if ratio.is_accepted():
            return ratio
