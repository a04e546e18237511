"""The scores of a sweep as a heat map, drawn as a self-contained picture.

The colours go from light to dark in one hue, so that colour-blind people can tell their order. Each cell shows its
number in a contrasting colour, and has the number as its title.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.problems import Problem
from app.run_sweeps.schemas import CellBody, RunSweepBody
from app.tables.states import Select
from app.web import pages

PICTURE_STYLES = ("colours.css", "heat_map.css")
PAGE_STYLES = ("colours.css", "page.css", "heat_map.css")

#: Red, green and blue of the palest and of the darkest cell.
_PALE, _DARK = (0xE6, 0xF0, 0xFA), (0x08, 0x30, 0x6B)
_BLACK, _WHITE = "#000000", "#ffffff"
#: In maps with more columns, numbers are shown only in the titles and in the table.
_COLUMNS_WITH_NUMBERS = 20
_WIDE, _NARROW, _HEIGHT = 76, 26, 40
_LEFT, _TOP = 150, 84
#: The most letters of a label that fit beside its row, or above its column.
_ROW_LABEL, _COLUMN_LABEL = 16, 9
_SHADES_OF_LEGEND = 24


@dataclass(frozen=True)
class Square:
    """A cell: its place, its text and its colours."""

    x: int
    y: int
    text: str
    title: str
    fill: str | None
    ink: str


@dataclass(frozen=True)
class Label:
    x: int
    y: int
    text: str


@dataclass(frozen=True)
class HeatMap:
    title: str
    description: str
    width: int
    height: int
    cell_width: int
    cell_height: int
    squares: tuple[Square, ...]
    rows: tuple[Label, ...]
    columns: tuple[Label, ...]
    row_field: Label | None
    column_field: Label
    legend: tuple[tuple[int, str], ...]
    legend_y: int
    least: str
    greatest: str
    score: str


def heat_map_of(sweep: RunSweepBody) -> HeatMap:
    """Return the map of a sweep's scores.

    Raises:
        Problem: 409 ``results_withheld``, or ``no_score``.
    """
    if sweep.select == Select.BEST:
        detail = "A sweep for the best run releases one result; a map would show results that are withheld."
        raise Problem(409, "results_withheld", detail)
    scores = [_score(cell) for cell in sweep.cells]
    known = [score for score in scores if score is not None]
    if not known:
        detail = (
            "No run of the sweep has a score on public rows: none has succeeded so far, the training data are private "
            "and there is no test_dataset_id, or the model predicts no label."
        )
        raise Problem(409, "no_score", detail)
    return _draw(sweep, scores, min(known), max(known))


def to_svg(drawn: HeatMap) -> str:
    """Return the picture with its style."""
    return pages.render("heat_map.svg", PICTURE_STYLES, map=drawn, alone=True)


def to_html(sweep: RunSweepBody, drawn: HeatMap) -> str:
    """Return a page with the picture and a table of the same numbers."""
    rows = [(cell, number(_score(cell))) for cell in sweep.cells]
    return pages.render(
        "run_sweep.html", PAGE_STYLES, title=drawn.title, map=drawn, sweep=sweep, rows=rows, alone=False, shown=_shown
    )


def number(score: float | None) -> str:
    """Return a score with four digits; "no score" if there is none.

    >>> number(0.9123456), number(None)
    ('0.9123', 'no score')
    """
    return "no score" if score is None else f"{score:.4g}"


def colours(share: float) -> tuple[str, str]:
    """Return the colour of a cell and of its text, which is black or white, whichever has more contrast.

    >>> colours(0.0), colours(1.0)
    (('#e6f0fa', '#000000'), ('#08306b', '#ffffff'))
    """
    rgb = tuple(round(pale + share * (dark - pale)) for pale, dark in zip(_PALE, _DARK, strict=True))
    # White text has the higher contrast up to this relative luminance of the cell, and black text above it.
    ink = _BLACK if luminance(rgb) > 0.1791 else _WHITE
    return "#{:02x}{:02x}{:02x}".format(*rgb), ink


def luminance(rgb: tuple[int, ...]) -> float:
    """Return the relative luminance, from which contrast ratios are calculated (WCAG 2)."""
    linear = [
        level / 12.92 if level <= 0.04045 else ((level + 0.055) / 1.055) ** 2.4 for level in (c / 255 for c in rgb)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _score(cell: CellBody) -> float | None:
    if not cell.metrics:
        return None
    metric = cell.metrics[0]
    return metric.accuracy if metric.accuracy is not None else metric.mean_absolute_error


def _score_name(sweep: RunSweepBody) -> str:
    metric = next(cell.metrics[0] for cell in sweep.cells if cell.metrics)
    name = "accuracy" if metric.accuracy is not None else "mean absolute error"
    return f"{name} on {metric.dataset_id}"


def _draw(sweep: RunSweepBody, scores: list[float | None], least: float, greatest: float) -> HeatMap:
    # The last field changes fastest: it goes from left to right.
    width = sweep.shape[-1]
    columns = [cell.values[-1] for cell in sweep.cells[:width]]
    rows = [cell.values[0] for cell in sweep.cells[::width]] if len(sweep.fields) > 1 else [""]
    cell_width = _WIDE if width <= _COLUMNS_WITH_NUMBERS else _NARROW
    squares = tuple(
        _square(
            _LEFT + index % width * cell_width,
            _TOP + index // width * _HEIGHT,
            _title(sweep, index, score),
            number(score) if cell_width == _WIDE and score is not None else "",
            None if score is None else (score - least) / ((greatest - least) or 1.0),
        )
        for index, score in enumerate(scores)
    )
    score = _score_name(sweep)
    bottom = _TOP + len(rows) * _HEIGHT
    return HeatMap(
        title=f"{score} over {' and '.join(sweep.fields)}",
        description=f"A grid of {len(scores)} runs. The least score is {number(least)}, the greatest "
        f"{number(greatest)}; darker cells have higher ones.",
        width=max(_LEFT + width * cell_width + 24, 480),
        height=bottom + 76,
        cell_width=cell_width,
        cell_height=_HEIGHT,
        squares=squares,
        rows=tuple(Label(_LEFT - 8, _TOP + n * _HEIGHT + _HEIGHT // 2 + 5, _shown(v)) for n, v in enumerate(rows)),
        columns=tuple(
            Label(_LEFT + n * cell_width + cell_width // 2, _TOP - 8, _shown(v, _COLUMN_LABEL))
            for n, v in enumerate(columns)
        ),
        row_field=Label(8, _TOP - 30, sweep.fields[0]) if len(sweep.fields) > 1 else None,
        column_field=Label(_LEFT, 40, sweep.fields[-1]),
        legend=tuple((_LEFT + n * 8, colours(n / (_SHADES_OF_LEGEND - 1))[0]) for n in range(_SHADES_OF_LEGEND)),
        legend_y=bottom + 28,
        least=number(least),
        greatest=number(greatest),
        score=score,
    )


def _square(x: int, y: int, title: str, text: str, share: float | None) -> Square:
    fill, ink = (None, _BLACK) if share is None else colours(share)
    return Square(x, y, text, title, fill, ink)


def _title(sweep: RunSweepBody, index: int, score: float | None) -> str:
    cell = sweep.cells[index]
    place = ", ".join(f"{field} {_shown(value)}" for field, value in zip(sweep.fields, cell.values, strict=True))
    return f"{place}: {number(score)}"


def _shown(value: float | int | str, most: int = _ROW_LABEL) -> str:
    text = str(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"
