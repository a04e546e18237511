"""Axes of charts: where a number stands, and which numbers are written beside the axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from app.dashboard.wording import at_most

#: The approximate number of ticks. A reader needs only a few.
_TICKS = 5
_ROUND = (1.0, 2.0, 5.0, 10.0)
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_STEPS_OF_TIME = (
    *(k * _MINUTE for k in (1, 5, 15, 30)),
    *(k * _HOUR for k in (1, 3, 6, 12)),
    *(k * _DAY for k in (1, 2, 3, 7, 14, 30, 90, 180, 365)),
)


class Scale(StrEnum):
    """The way in which numbers are spread along an axis."""

    LINEAR = "linear"
    LOGARITHMIC = "logarithmic"
    TIME = "time"
    """Seconds since 1970, in UTC."""


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes:
        label: What the axis shows, with the unit.
        scale: How numbers are spread. A logarithmic axis leaves out numbers that are not positive.
        from_zero: Whether a linear axis always begins at 0.
        written: How a number is written in the table.
    """

    label: str
    scale: Scale = Scale.LINEAR
    from_zero: bool = False
    written: Callable[[float], str] = at_most

    def shows(self, value: float | None) -> bool:
        """Return whether a number has a place on the axis."""
        return value is not None and math.isfinite(value) and (self.scale is not Scale.LOGARITHMIC or value > 0.0)

    def text(self, value: float) -> str:
        """Return a number as the table and the tips write it."""
        if self.scale is Scale.TIME:
            return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M")
        return self.written(value)


@dataclass(frozen=True)
class Tick:
    """A number beside the axis. Its place is 0 at the beginning of the axis and 1 at the end."""

    place: float
    text: str


@dataclass(frozen=True)
class Ruler:
    """An axis with the values at its ends."""

    low: float
    high: float
    scale: Scale

    @classmethod
    def over(cls, axis: Axis, values: Sequence[float]) -> Ruler:
        """Return a ruler that covers all values. A linear one ends at round numbers."""
        low, high = (min(values), max(values)) if values else (1.0, 2.0)
        if axis.scale is Scale.LOGARITHMIC:
            return cls(low / 1.5, high * 1.5, axis.scale) if low == high else cls(low, high, axis.scale)
        if axis.scale is Scale.TIME:
            return cls(low, high if high > low else low + _HOUR, axis.scale)
        if axis.from_zero:
            low, high = min(low, 0.0), max(high, 0.0)
        if low == high:
            low, high = low - (abs(low) or 1.0) / 2.0, high + (abs(high) or 1.0) / 2.0
        step = _round_step(high - low)
        return cls(math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, axis.scale)

    def place(self, value: float) -> float:
        """Return where a number stands on the axis: 0 at the beginning, 1 at the end."""
        if self.scale is Scale.LOGARITHMIC:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[Tick]:
        """Return round numbers on the axis."""
        if self.scale is Scale.TIME:
            return self._ticks_of_time()
        values = self._logarithmic() if self.scale is Scale.LOGARITHMIC else self._linear()
        least = 1e-2 if self.scale is Scale.LOGARITHMIC else 1e-4
        return [Tick(self.place(value), short(value, least)) for value in values]

    def _linear(self) -> list[float]:
        step = _round_step(self.high - self.low)
        first = math.ceil(self.low / step - 1e-9)
        return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def _logarithmic(self) -> list[float]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        decades = math.log10(self.high / self.low)
        if decades < 0.7:
            return [value for value in self._linear() if value > 0.0]
        every = max(1, math.ceil(decades / (_TICKS + 1)))
        for factors in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
            values = [factor * 10.0**power for power in range(first, last + 1, every) for factor in factors]
            found = [value for value in values if self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)]
            if len(found) <= _TICKS + 1:
                return found
        return found

    def _ticks_of_time(self) -> list[Tick]:
        span = self.high - self.low
        step = next((each for each in _STEPS_OF_TIME if span / each <= _TICKS), 365.0 * _DAY * math.ceil(span / 2e8))
        form = "%H:%M" if step < _DAY else "%d %b" if span < 330.0 * _DAY else "%b %Y"
        first = math.ceil(self.low / step)
        values = [k * step for k in range(first, math.floor(self.high / step) + 1)]
        return [Tick(self.place(value), datetime.fromtimestamp(value, UTC).strftime(form)) for value in values]


def short(value: float, least: float = 1e-4) -> str:
    """Return a tick's number in short. A number below ``least`` is written with a power of ten.

    >>> short(0.00001), short(0.25), short(5000.0), short(200000.0), short(0.30000000000000004)
    ('1e-5', '0.25', '5000', '2e5', '0.3')
    """
    text = f"{value:.6g}" if value == 0.0 or least <= abs(value) < 1e5 else f"{value:.3e}"
    mantissa, has_power, power = text.partition("e")
    if not has_power:
        return text
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(power)}"


def _round_step(span: float) -> float:
    rough = span / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    return float(next(factor * power for factor in _ROUND if rough <= factor * power * (1 + 1e-9)))
