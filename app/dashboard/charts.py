"""Line charts: drawn here, shown by `templates/chart.html` as SVG with a table of the same numbers beside it.

    chart = line_chart("Noise over epsilon", "How ...", Axis("epsilon"), Axis("noise multiplier"), [Series("", points)])

and in a template `{% from "chart.html" import figure %}{{ figure(chart) }}`. Lines are told apart by colour, dashes
and markers, and have their names at their ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.dashboard.axes import Axis, Ruler, Tick

__all__ = ["Axis", "Chart", "Level", "Mark", "Series", "line_chart"]

#: The size in the units of the picture, which are CSS pixels at its full size.
WIDTH, HEIGHT = 440.0, 280.0
_TOP, _RIGHT, _BOTTOM = 14.0, 14.0, 46.0
_WIDTH_OF_A_LETTER, _HEIGHT_OF_A_LINE = 6.6, 15.0
_WIDEST_NAMES = 150.0
#: Lines with more points than this have markers at some of them only.
_MOST_MARKERS = 13
MOST_SERIES: Final = 5

Point = tuple[float, float | None]


@dataclass(frozen=True)
class Series:
    """One line.

    Attributes:
        name: The name, written at the line's end and above its column in the table.
        points: x and y. Where y is None, the line has a gap.
        is_staircase: Whether the value stays the same until the next point.
    """

    name: str
    points: Sequence[Point]
    is_staircase: bool = False


@dataclass(frozen=True)
class Level:
    """A horizontal line across the chart, such as a limit."""

    name: str
    value: float


@dataclass(frozen=True)
class Mark:
    """A highlighted point: the reader's own value."""

    name: str
    x: float
    y: float


@dataclass(frozen=True)
class Marker:
    """A point of a line, with the text of its tip."""

    x: float
    y: float
    tip: str


@dataclass(frozen=True)
class Line:
    """A series as it is drawn. `number` is its colour, its dashes and its markers."""

    number: int
    name: str
    path: str
    markers: tuple[Marker, ...]
    label_y: float


@dataclass(frozen=True)
class Label:
    """A text at a place of the picture, with SVG's text anchor."""

    x: float
    y: float
    text: str
    anchor: str = "start"


@dataclass(frozen=True)
class Chart:
    """A chart, laid out."""

    title: str
    description: str
    x: Axis
    y: Axis
    left: float
    right: float
    top: float
    bottom: float
    x_ticks: tuple[Label, ...]
    y_ticks: tuple[Label, ...]
    lines: tuple[Line, ...]
    levels: tuple[Label, ...]
    marks: tuple[Label, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    width: float = WIDTH
    height: float = HEIGHT

    @property
    def id(self) -> str:
        """Return the prefix of the ids of the chart's elements. It is unique, since no other chart of the page has this
        title."""
        return "chart-" + re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True)
class _Plane:
    """The area of the picture between the axes: it turns numbers into places of the picture."""

    x: Ruler
    y: Ruler
    left: float
    right: float
    top: float = _TOP
    bottom: float = HEIGHT - _BOTTOM

    def across(self, place: float) -> float:
        return round(self.left + place * (self.right - self.left), 1)

    def up(self, place: float) -> float:
        return round(self.bottom - place * (self.bottom - self.top), 1)

    def at(self, x: float, y: float) -> tuple[float, float]:
        return self.across(self.x.place(x)), self.up(self.y.place(y))


def line_chart(
    title: str,
    description: str,
    x: Axis,
    y: Axis,
    series: Sequence[Series],
    *,
    levels: Sequence[Level] = (),
    marks: Sequence[Mark] = (),
) -> Chart:
    """Lay a chart out.

    Args:
        title: What the chart shows, in a few words.
        description: What the chart looks like, for readers who cannot see it.
        x, y: The axes.
        series: At most five lines.
        levels: Horizontal lines with a name.
        marks: Points with a name.
    """
    assert len(series) <= MOST_SERIES, "nobody tells more lines apart"
    shown = [(px, py) for each in series for px, py in each.points if x.shows(px) and y.shows(py)]
    across = Ruler.over(x, [px for px, _ in shown] + [mark.x for mark in marks if x.shows(mark.x)])
    heights = [py for _, py in shown if py is not None]
    up = Ruler.over(y, heights + [each.value for each in levels] + [mark.y for mark in marks if y.shows(mark.y)])
    y_ticks = up.ticks()
    names = [each.name for each in series] if len(series) > 1 else []
    left = 34.0 + _WIDTH_OF_A_LETTER * max((len(tick.text) for tick in y_ticks), default=1)
    x_ticks = across.ticks()
    room = [_RIGHT, *(4.0 + _WIDTH_OF_A_LETTER * len(tick.text) / 2.0 for tick in x_ticks[-1:])]
    room += [min(_WIDEST_NAMES, 16.0 + _WIDTH_OF_A_LETTER * len(name)) for name in names]
    right = WIDTH - max(room)
    plane = _Plane(across, up, left, right)
    columns, rows = _table(x, y, series)
    return Chart(
        title=title,
        description=description,
        x=x,
        y=y,
        left=left,
        right=right,
        top=plane.top,
        bottom=plane.bottom,
        x_ticks=tuple(_x_tick(plane, tick) for tick in x_ticks),
        y_ticks=tuple(Label(left - 8.0, plane.up(tick.place), tick.text, "end") for tick in y_ticks),
        lines=tuple(_lines(plane, x, y, series)),
        levels=tuple(Label(right - 4.0, plane.up(up.place(each.value)), each.name, "end") for each in levels),
        marks=tuple(_mark(plane, mark) for mark in marks if x.shows(mark.x) and y.shows(mark.y)),
        columns=columns,
        rows=rows,
    )


def _lines(plane: _Plane, x: Axis, y: Axis, series: Sequence[Series]) -> list[Line]:
    drawn = []
    ends: list[float] = []
    for number, each in enumerate(series, 1):
        pieces: list[list[Marker]] = [[]]
        for px, py in sorted(each.points, key=lambda point: point[0]):
            if py is None or not (x.shows(px) and y.shows(py)):
                pieces.append([])
                continue
            across, up = plane.at(px, py)
            pieces[-1].append(Marker(across, up, f"{x.label} {x.text(px)}: {y.label} {y.text(py)}"))
        path = " ".join(_path(piece, is_staircase=each.is_staircase) for piece in pieces if piece)
        points = [point for piece in pieces for point in piece]
        every = -(-len(points) // _MOST_MARKERS)
        ends.append(points[-1].y if points else plane.top)
        drawn.append((number, each.name, path, tuple(points[::-1][:: every or 1])))
    places = _apart(ends, plane.top, plane.bottom)
    return [
        Line(number, _fitted(name), path, markers, place)
        for (number, name, path, markers), place in zip(drawn, places, strict=True)
    ]


def _fitted(name: str) -> str:
    """Shorten a name to the available width. The table has the full name."""
    most = int((_WIDEST_NAMES - 16.0) / _WIDTH_OF_A_LETTER)
    return name if len(name) <= most else f"{name[: most - 1].rstrip()}…"


def _path(points: Sequence[Marker], *, is_staircase: bool) -> str:
    form = "H{:g}V{:g}" if is_staircase else "L{:g} {:g}"
    return f"M{points[0].x:g} {points[0].y:g}" + "".join(form.format(point.x, point.y) for point in points[1:])


def _apart(ends: Sequence[float], top: float, bottom: float) -> list[float]:
    """Return heights for the names at the ends of lines: as close to the ends as possible without overlapping."""
    order = sorted(range(len(ends)), key=lambda index: ends[index])
    places = list(ends)
    least = top
    for index in order:
        places[index] = least = max(places[index], least)
        least += _HEIGHT_OF_A_LINE
    most = bottom
    for index in reversed(order):
        places[index] = most = min(places[index], most)
        most -= _HEIGHT_OF_A_LINE
    return [round(place, 1) for place in places]


def _x_tick(plane: _Plane, tick: Tick) -> Label:
    return Label(plane.across(tick.place), plane.bottom + 17.0, tick.text, "middle")


def _mark(plane: _Plane, mark: Mark) -> Label:
    """Put the name of a mark on the side with more room."""
    across, up = plane.at(mark.x, mark.y)
    return Label(across, up, mark.name, "end" if across > (plane.left + plane.right) / 2.0 else "start")


def _table(x: Axis, y: Axis, series: Sequence[Series]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return the table of numbers, with a row for each x and a column for each line."""
    places = sorted({px for each in series for px, _ in each.points})
    found = [dict(each.points) for each in series]

    def text(values: dict[float, float | None], place: float) -> str:
        value = values.get(place)
        return "" if value is None else y.text(value)

    rows = tuple((x.text(place), *(text(values, place) for values in found)) for place in places)
    return (x.label, *(each.name or y.label for each in series)), rows
