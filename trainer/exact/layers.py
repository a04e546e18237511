"""This module makes the layers of a ziggurat over exp(-rate |x|^order), in whole numbers, for any order.

Any numbers that satisfy the inequalities of `trainer.exact.ziggurat` give the exact law. Floating point only chooses
x_0, so that the layers end just above the density's top; everything else is computed between bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue
from trainer.exact.enclosures import Interval, exp, ln, power

#: The error bounds of the ziggurat hold up to this order. Calibrated noise has at most twice ln 10^10.
LARGEST_ORDER = 128.0
_LAYERS = 256
_BITS = 100
_UNIT = 1 << 64
_Floats = npt.NDArray[np.float64]
#: The unit of x_0: x_0 is a whole number of these units.
_GRAIN = Fraction(1, 1 << 24)


@dataclass(frozen=True)
class Layers:
    """Layers that cover the region under exp(-rate |x|^order).

    Attributes:
        rate, order: The rate and order of the density; the order is at least 2.
        tail_start: The tail start x_0.
        tail_rate: The tail rate l.
        area: The area v of a layer times 2^64.
        heights: The heights Y_1 to Y_256 times 2^64; only the last one is at least 1.
        certain: The whole numbers k_0 to k_255.
    """

    rate: Fraction
    order: Fraction
    tail_start: Fraction
    tail_rate: Fraction
    area: int
    heights: tuple[int, ...]
    certain: tuple[int, ...]

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Y_0 = 0 to Y_255, times 2^64."""
        return (0, *self.heights[:-1])

    @cached_property
    def widths(self) -> tuple[Fraction, ...]:
        """X_0 to X_255."""
        return tuple(Fraction(self.area, end - start) for start, end in zip(self.starts, self.heights, strict=True))

    @cached_property
    def tail_height(self) -> Fraction:
        """a = l (v - x_0 Y_1), the envelope's height where the tail begins: no less than f there."""
        return self.tail_rate * (self.area - self.tail_start * self.heights[0]) / (1 << 64)

    @cached_property
    def floats(self) -> tuple[_Floats, _Floats, _Floats]:
        """X_i, Y_i and Y_(i+1) - Y_i in float64."""
        spans = [(end - start) * 2.0**-64 for start, end in zip(self.starts, self.heights, strict=True)]
        return np.array([float(width) for width in self.widths]), np.array(self.starts) * 2.0**-64, np.array(spans)

    @cached_property
    def whole_widths(self) -> tuple[int, ...]:
        """X_i 2^128, rounded down."""
        return tuple(math.floor(width * (1 << 128)) for width in self.widths)

    @cached_property
    def rejected(self) -> float:
        """An upper bound of the share of trials that are rejected, since they are above f."""
        under = math.gamma(1.0 + 1.0 / float(self.order)) * float(self.rate) ** (-1.0 / float(self.order))
        return _rounded_up(1.0 - under / (256.0 * self.area * 2.0**-64))

    @cached_property
    def undecided(self) -> float:
        """An upper bound of the share of trials that are not accepted by their word alone."""
        return _rounded_up(1.0 - sum(self.certain) * 2.0**-60)

    def density(self, places: Interval, bits: int) -> Interval:
        """Return bounds of f between two places, neither of them negative."""
        low, high = power(places, self.order, bits)
        return exp((-self.rate * high, -self.rate * low), bits)


def check_order(order: float) -> None:
    """Refuse noise of a norm l_r that is not drawn.

    Raises:
        InvalidValue: If r is not from 2 to 128.
    """
    if not 2.0 <= order <= LARGEST_ORDER:
        raise InvalidValue(
            f"noise of the norm l_r can be drawn only for r from 2 to {LARGEST_ORDER:g}, not for {order:g}",
            pointer=("noise_order",),
        )


@lru_cache(maxsize=16)
def power_layers(order: float) -> Layers:
    """Return layers that cover the region under exp(-|x|^order).

    Args:
        order: The order r, in [2, 128].

    Guarantees:
        - layers_cover_the_region: every inequality of `trainer.exact.ziggurat` holds.

    Raises:
        InvalidValue: If the order is out of range.

    >>> layers = power_layers(4.0)
    >>> layers.heights[-1] >= 2**64 > layers.heights[-2], round(float(layers.tail_start), 3)
    (True, 1.574)
    """
    check_order(order)
    exponent = Fraction(order)
    grains = round(_start(order) / _GRAIN)
    while True:
        layers = _layers(exponent, grains * _GRAIN)
        if layers is not None:
            return layers
        grains -= 1  # each layer gets a little more area


def _layers(order: Fraction, start: Fraction) -> Layers | None:
    """Return the layers whose tail begins at ``start``; None if they end below the top."""
    at_start = exp(_negated(power((start, start), order, _BITS)), _BITS)[1]
    slope = order * power((start, start), order - 1, _BITS)[0]
    slope = Fraction(math.floor(slope * (1 << 40)), 1 << 40)
    heights = [math.ceil(at_start * _UNIT)]
    area = math.ceil(start * heights[0] + at_start * _UNIT / slope)
    places = []  # f^-1(Y_i), from below
    while len(heights) < _LAYERS:
        low, high = _inverse(Fraction(heights[-1], _UNIT), order)
        places.append(low)
        heights.append(heights[-1] + math.floor(area / high))
    if heights[-1] < _UNIT:
        return None
    places.append(Fraction(0))
    steps = [one - other for one, other in zip(heights, [0, *heights], strict=False)]
    certain = tuple(math.floor(place * step * (1 << 52) / area) for place, step in zip(places, steps, strict=True))
    return Layers(Fraction(1), order, start, slope, area, tuple(heights), certain)


def _inverse(height: Fraction, order: Fraction) -> Interval:
    """Return bounds of (-ln y)^(1/r), the place at which the density has the height y."""
    low, high = ln(_negated(ln((height, height), _BITS)), _BITS)
    return exp((low / order, high / order), _BITS)


def _negated(interval: Interval) -> Interval:
    return -interval[1], -interval[0]


def _start(order: float) -> Fraction:
    """Estimate the x_0 with which the layers end at the top. With a smaller x_0 the layers have more area."""
    low, high = 0.1 ** (1.0 / order), 40.0 ** (1.0 / order)
    for _ in range(40):
        middle = 0.5 * (low + high)
        if _reaches_the_top(middle, order):
            low = middle
        else:
            high = middle
    return Fraction(low)


def _reaches_the_top(start: float, order: float) -> bool:
    height = math.exp(-(start**order))
    area = start * height + height / (order * start ** (order - 1.0))
    for _ in range(_LAYERS - 1):
        if height >= 1.0:
            return True
        height += area / (-math.log(height)) ** (1.0 / order)
    return height >= 1.0


def _rounded_up(share: float) -> float:
    """Return the share, made larger by more than the rounding error of its computation."""
    return math.ceil(1e5 * share + 1.0) / 1e5
