"""Charts: numbers stand where they belong, the table has the same ones, and nothing in them is markup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.dashboard.axes import Axis, Ruler, Scale
from app.dashboard.calibration_charts import Drawn
from app.dashboard.charts import HEIGHT, MOST_SERIES, WIDTH, Chart, Level, Mark, Point, Series, line_chart
from app.dashboard.pages import page
from app.dashboard.wording import at_least
from tests.app.dashboard.documents import Document
from tests.app.dashboard.requests import a_request

LINEAR, LOGARITHMIC = Axis("x"), Axis("x", Scale.LOGARITHMIC)
numbers = st.floats(-1e9, 1e9).filter(lambda value: value == 0.0 or abs(value) > 1e-9)


def chart_of(*lines: Sequence[Point], x: Axis = LINEAR, y: Axis = Axis("y")) -> Chart:  # noqa: B008
    return line_chart("A title", "A description", x, y, [Series(f"line {k}", line) for k, line in enumerate(lines)])


def drawn(chart: Chart) -> Document:
    """The chart as a page shows it."""
    shown = page(a_request(), "calibrate_chart.html", drawn=Drawn(chart))
    return Document(bytes(shown.body).decode(), is_part=True)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=30, unique_by=lambda point: point[0]))
def test_every_number_stands_within_the_axes_and_in_their_order(points: list[Point]) -> None:
    chart = chart_of(points)
    [line] = chart.lines
    places = [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.e+-]+) ([\d.e+-]+)", line.path)]
    assert len(places) == len(points)
    for x, y in places:
        assert chart.left - 0.1 <= x <= chart.right + 0.1
        assert chart.top - 0.1 <= y <= chart.bottom + 0.1
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    by_value = sorted(zip([y for _, y in sorted(points)], [y for _, y in places], strict=True), key=lambda it: it[0])
    heights = [place for _, place in by_value]
    assert heights == sorted(heights, reverse=True), "what is more stands higher"


@given(st.floats(1e-12, 1e12), st.floats(1e-12, 1e12))
def test_a_logarithmic_axis_has_equal_ratios_at_equal_distances(one: float, other: float) -> None:
    ruler = Ruler.over(LOGARITHMIC, [one, other])
    if one != other:
        middle = (one**0.5) * (other**0.5)
        assert ruler.place(middle) == pytest.approx(0.5, abs=1e-6)
    assert all(-1e-6 <= tick.place <= 1 + 1e-6 for tick in ruler.ticks())


@given(st.tuples(numbers, numbers).filter(lambda ends: abs(ends[0] - ends[1]) > 1e-6 * max(map(abs, ends))))
def test_ticks_are_few_and_where_their_numbers_are(ends: tuple[float, float]) -> None:
    ruler = Ruler.over(LINEAR, ends)
    ticks = ruler.ticks()
    assert 2 <= len(ticks) <= 12
    for tick in ticks:
        assert ruler.place(float(tick.text)) == pytest.approx(tick.place, abs=0.02)


@pytest.mark.parametrize(
    ("seconds", "texts"),
    [
        (3600.0, ["00:00", "00:15", "00:30", "00:45", "01:00"]),
        (4 * 86400.0, ["01 Jan", "02 Jan", "03 Jan", "04 Jan", "05 Jan"]),
    ],
)
def test_an_axis_of_time_has_round_times(seconds: float, texts: list[str]) -> None:
    start = 1767225600.0  # 2026-01-01
    ruler = Ruler.over(Axis("day", Scale.TIME), [start, start + seconds])
    assert [tick.text for tick in ruler.ticks()] == texts


def test_what_has_no_place_is_a_gap() -> None:
    chart = chart_of([(1, 1.0), (2, None), (3, 3.0), (4, 4.0)])
    assert chart.lines[0].path.count("M") == 2
    logarithmic = chart_of([(0, 1.0), (1, 1.0), (10, 2.0)], x=LOGARITHMIC)
    assert logarithmic.lines[0].path.count("L") == 1, "0 has no place on a logarithmic axis"
    assert len(logarithmic.rows) == 3, "and stands in the table"
    assert chart_of([]).lines[0].path == ""


def test_a_staircase_stays_until_the_next_point() -> None:
    chart = line_chart("t", "d", LINEAR, Axis("y"), [Series("", [(0, 0.0), (1, 1.0)], is_staircase=True)])
    assert re.fullmatch(r"M[\d.]+ [\d.]+H[\d.]+V[\d.]+", chart.lines[0].path)


def test_the_table_has_the_numbers_rounded_as_the_axis_says() -> None:
    one, other = [(1, 0.12345678), (2, None)], [(2, 0.87654321), (3, 1.0)]
    assert chart_of(one, other).rows == (("1", "0.123457", ""), ("2", "", "0.876544"), ("3", "", "1"))
    assert chart_of(one, y=Axis("y", written=at_least)).rows == (("1", "0.123456"), ("2", ""))
    assert chart_of(one, other).columns == ("x", "line 0", "line 1")


def test_names_at_the_ends_of_lines_do_not_lie_on_one_another() -> None:
    chart = chart_of(*[[(0, 1.0), (1, 5.0 + k / 1000)] for k in range(MOST_SERIES)])
    heights = sorted(line.label_y for line in chart.lines)
    assert all(lower - upper >= 14.9 for upper, lower in pairwise(heights))
    assert heights[0] >= chart.top
    assert heights[-1] <= chart.bottom


def test_a_drawing_is_well_formed_and_has_its_words_escaped() -> None:
    hostile = "<script>alert(1)</script>\"'&"
    chart = line_chart(
        hostile,
        hostile,
        Axis(hostile),
        Axis(hostile),
        [Series(hostile, [(0, 0.0), (1, 2.0)]), Series("b", [(0, 1.0)])],
        levels=[Level(hostile, 1.5)],
        marks=[Mark(hostile, 1, 2.0)],
    )
    document = drawn(chart)
    assert document.faults == []
    assert not document.all("script")
    [picture] = document.all("svg")
    assert picture.attributes["role"] == "img"
    title, description = picture.attributes["aria-labelledby"].split()
    assert document.text_of(title) == document.text_of(description) == hostile
    assert len(document.all("tr")) == 1 + len(chart.rows)
    assert {each.attributes["class"] for each in document.all("g")} >= {"series-1", "series-2"}


def test_everything_that_is_drawn_is_in_the_picture() -> None:
    chart = chart_of([(0, 0.0), (5000, 8.0)], [(0, 1.0), (5000, 2.0)])
    for label in (*chart.x_ticks, *chart.y_ticks):
        assert 0 <= label.x <= WIDTH
        assert 0 <= label.y <= HEIGHT
    widest = max(len(line.name) for line in chart.lines)
    assert chart.right + 9 + 6.6 * widest <= WIDTH + 1
    long = chart_of([(0, 0.0), (1, 1.0)], [(0, 1.0)])
    assert long.right > long.left + 200, "there is room for the lines themselves"
