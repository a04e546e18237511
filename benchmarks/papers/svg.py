"""This module draws curves and heat maps as SVG. The same figures always give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from benchmarks.papers.reproduction import HeatMap, Lines, Plot

_WIDTH, _HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 24, 40, 56
#: Okabe and Ito's colours, which people with colour vision deficiency can tell apart.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_DASHES = ("", "6 3", "2 3", "8 3 2 3")
#: The colours of a heat map from low to high values. They go from light to dark, so that they can be told apart in
#: black-and-white print.
_HEAT = ((253, 231, 37), (94, 201, 98), (33, 145, 140), (59, 82, 139), (68, 1, 84))


def draw(plot: Plot) -> str:
    """Return the plot as an SVG document."""
    if plot["kind"] == "lines":
        body, width = _lines(plot), _WIDTH + _legend_width(plot)
    else:
        body, width = _heat_map(plot), _WIDTH
    frame = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12" fill="#222">',
        f'<rect width="{width}" height="{_HEIGHT}" fill="#fff"/>',
        _text(_WIDTH / 2, 22, plot["title"], size=14),
        _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 12, plot["x_label"]),
        _text(16, (_TOP + _HEIGHT - _BOTTOM) / 2, plot["y_label"], turned=True),
    ]
    return "\n".join([*frame, *body, "</svg>"]) + "\n"


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis, which maps numbers to positions."""

    lower: float
    upper: float
    start: float
    end: float
    logarithmic: bool

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float, logarithmic: bool) -> _Axis:
        scale: Callable[[float], float] = math.log10 if logarithmic else float
        lower, upper = scale(min(values)), scale(max(values))
        margin = 0.04 * (upper - lower) or 0.5
        return cls(lower - margin, upper + margin, start, end, logarithmic)

    def at(self, value: float) -> float:
        scaled = math.log10(value) if self.logarithmic else value
        return self.start + (scaled - self.lower) / (self.upper - self.lower) * (self.end - self.start)

    def ticks(self) -> Iterator[float]:
        if self.logarithmic:
            shown = (1, 2, 5) if self.upper - self.lower < 2.5 else (1,)
            for power in range(math.floor(self.lower), math.ceil(self.upper) + 1):
                for digit in shown:
                    if self.lower <= power + math.log10(digit) <= self.upper:
                        yield digit * 10.0**power
            return
        raw = (self.upper - self.lower) / 6
        unit = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= raw)
        for multiple in range(math.ceil(self.lower / step), math.floor(self.upper / step) + 1):
            yield multiple * step


def _lines(plot: Lines) -> Iterator[str]:
    values = [value for series in plot["series"].values() for value in series if value is not None]
    x = _Axis.over(list(plot["x"]), _LEFT, _WIDTH - _RIGHT, plot.get("log_x", False))
    y = _Axis.over(values, _HEIGHT - _BOTTOM, _TOP, plot.get("log_y", False))
    for tick in x.ticks():
        yield _line(x.at(tick), _TOP, x.at(tick), _HEIGHT - _BOTTOM)
        yield _text(x.at(tick), _HEIGHT - _BOTTOM + 16, _number(tick))
    for tick in y.ticks():
        yield _line(_LEFT, y.at(tick), _WIDTH - _RIGHT, y.at(tick))
        yield _text(_LEFT - 6, y.at(tick) + 4, _number(tick), anchor="end")
    for index, (name, series) in enumerate(plot["series"].items()):
        colour, dash = _COLOURS[index % len(_COLOURS)], _DASHES[index % len(_DASHES)]
        points = [
            None if value is None else (x.at(at), y.at(value)) for at, value in zip(plot["x"], series, strict=True)
        ]
        for before, after in pairwise(points):
            if before is not None and after is not None:
                yield _line(*before, *after, colour=colour, width=2, dash=dash)
        for point in points:
            if point is not None:
                yield f'<circle cx="{point[0]:.1f}" cy="{point[1]:.1f}" r="3" fill="{colour}"/>'
        beside, level = _WIDTH - _RIGHT + 12, _TOP + 14 + 18 * index
        yield _line(beside, level - 4, beside + 26, level - 4, colour=colour, width=2, dash=dash)
        yield _text(beside + 34, level, name, anchor="start")


def _legend_width(plot: Lines) -> int:
    """Return the width of the legend beside the plot, at seven units for each letter of its longest name."""
    return 30 + 7 * max(len(name) for name in plot["series"])


def _heat_map(plot: HeatMap) -> Iterator[str]:
    values = [value for row in plot["values"] for value in row]
    lower, upper = min(values), max(values)
    width = (_WIDTH - _LEFT - _RIGHT) / len(plot["x"])
    height = (_HEIGHT - _TOP - _BOTTOM) / len(plot["y"])
    for column, x in enumerate(plot["x"]):
        yield _text(_LEFT + (column + 0.5) * width, _HEIGHT - _BOTTOM + 16, _short(x))
    for row, y in enumerate(plot["y"]):
        top = _HEIGHT - _BOTTOM - (row + 1) * height
        yield _text(_LEFT - 6, top + height / 2 + 4, _short(y), anchor="end")
        for column, value in enumerate(plot["values"][row]):
            share = (value - lower) / (upper - lower) if upper > lower else 0.5
            left = _LEFT + column * width
            yield (
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{_heat(share)}"/>'
            )
            ink = "#fff" if share > 0.55 else "#222"
            yield _text(left + width / 2, top + height / 2 + 4, f"{value:.3g}", colour=ink)


def _heat(share: float) -> str:
    position = share * (len(_HEAT) - 1)
    index = min(int(position), len(_HEAT) - 2)
    mixed = (
        round(low + (position - index) * (high - low)) for low, high in zip(_HEAT[index], _HEAT[index + 1], strict=True)
    )
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _line(x1: float, y1: float, x2: float, y2: float, *, colour: str = "#ddd", width: int = 1, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colour}" stroke-width="{width}"{dashed}/>'


def _text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "middle",
    size: int = 12,
    colour: str = "",
    turned: bool = False,
) -> str:
    extra = f' fill="{colour}"' if colour else ""
    extra += f' font-size="{size}"' if size != 12 else ""
    extra += f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(words)}</text>'


def _number(value: float) -> str:
    return f"{value:.6g}"


def _short(value: float) -> str:
    """Return a number with three digits, or with all digits if it is whole."""
    return _number(value) if value == round(value) else f"{value:.3g}"
