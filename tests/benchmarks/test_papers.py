"""The page of reproductions is made from the committed figures; plots are the same bytes for the same figures."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import report
from benchmarks.papers import page, svg
from benchmarks.papers.__main__ import NAMES
from benchmarks.papers.reproduction import HeatMap, Lines, mean_and_error, slope

FIGURES = report.read("papers")

LINES: Lines = {
    "kind": "lines",
    "title": "risk & bound",
    "x": [1.0, 10.0, 100.0],
    "series": {"measured": [1.0, None, 0.01], "bound <1>": [2.0, 0.2, 0.02]},
    "x_label": "records",
    "y_label": "risk",
    "log_x": True,
    "log_y": True,
}
HEAT_MAP: HeatMap = {
    "kind": "heat_map",
    "title": "accuracy",
    "x": [0.1, 1.0],
    "y": [1.0, 2.0, 4.0],
    "values": [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]],
    "x_label": "c",
    "y_label": "eta",
}


def test_the_page_and_its_plots_are_those_that_the_results_make() -> None:
    assert page.PAGE.read_text() == page.page(FIGURES), "run: python -m benchmarks.papers.page"
    drawn = page.plots(FIGURES)
    assert set(page.PLOTS.glob("*.svg")) == set(drawn)
    for path, content in drawn.items():
        assert path.read_text() == content, path.name


def test_every_reproduction_is_committed_in_full_and_says_where_it_comes_from() -> None:
    assert FIGURES["quick"] is False, "run: make bench-papers"
    assert list(FIGURES["reproductions"]) == list(NAMES)
    for found in FIGURES["reproductions"].values():
        assert found["title"]
        assert found["sentences"]
        assert found["inputs"]
        assert all(list(row) == list(found["rows"][0]) for row in found["rows"])
        assert re.fullmatch(r"[0-9a-f]{40}", found["commit"])
        assert re.fullmatch(r"[0-9a-f]{64}", found["source_sha256"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", found["date"])
        assert set(found["versions"]) >= {"python", "numpy", "randomgen"}


def test_every_number_is_one_that_json_has() -> None:
    for value in leaves(FIGURES):
        assert not isinstance(value, float) or math.isfinite(value)


def test_the_page_says_what_was_found_in_each() -> None:
    text = page.page(FIGURES)
    for name, found in FIGURES["reproductions"].items():
        assert f"## {found['title']}\n" in text
        assert f"`benchmarks/papers/{name}.py`" in text
        for sentence in found["sentences"]:
            assert sentence in text
    changed = copy.deepcopy(FIGURES)
    changed["reproductions"][NAMES[0]]["sentences"][0] = "Something else was found."
    assert page.page(changed) != text


def test_every_plot_is_well_formed_and_alone_depends_on_its_figures() -> None:
    for plot in (LINES, HEAT_MAP):
        drawn = svg.draw(plot)
        ElementTree.fromstring(drawn)
        assert svg.draw(copy.deepcopy(plot)) == drawn
    assert "bound &lt;1&gt;" in svg.draw(LINES)


def test_curves_have_a_point_wherever_there_is_a_figure_and_a_line_between_neighbours() -> None:
    drawn = svg.draw(LINES)
    assert drawn.count("<circle") == 5
    # Two lines of the bound, none of the measured, whose middle is missing; and one in the legend for each.
    assert drawn.count('stroke-width="2"') == 2 + 2


def test_a_point_lies_where_its_logarithms_are() -> None:
    def positions(plot: Lines) -> list[tuple[float, float]]:
        found = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', svg.draw(plot))
        return [(float(x), float(y)) for x, y in found]

    first, second, third = positions(LINES)[2:]
    assert second[0] - first[0] == pytest.approx(third[0] - second[0], abs=0.2)
    assert second[1] - first[1] == pytest.approx(third[1] - second[1], abs=0.2)
    assert first[1] < third[1], "a larger figure is higher up"
    linear: Lines = {**LINES, "log_x": False}
    first, second, third = positions(linear)[2:]
    assert third[0] - second[0] == pytest.approx(10.0 * (second[0] - first[0]), abs=1.2)


def test_a_heat_map_has_a_cell_and_its_number_for_each_value_and_the_first_row_at_the_bottom() -> None:
    drawn = svg.draw(HEAT_MAP)
    cells = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" [^>]*fill="(#\w+)"', drawn)
    assert len(cells) == 6
    assert float(cells[0][1]) > float(cells[-1][1])
    assert cells[0][2] != cells[-1][2]
    for value in ("0.1", "0.2", "0.3", "0.4", "0.5", "0.6"):
        assert f">{value}</text>" in drawn


def test_a_power_law_has_its_exponent_as_slope() -> None:
    assert slope([1.0, 2.0, 4.0, 8.0], [3.0, 3.0 / 4, 3.0 / 16, 3.0 / 64]) == pytest.approx(-2.0, rel=1e-12)


def test_the_error_of_a_mean_is_the_deviation_over_the_root_of_the_runs() -> None:
    mean, error = mean_and_error([1.0, 2.0, 3.0, 4.0])
    assert mean == 2.5
    assert error == pytest.approx(math.sqrt(5.0 / 3.0) / 2.0, rel=1e-12)


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield value
