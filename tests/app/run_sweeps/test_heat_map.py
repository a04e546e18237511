"""The heat map: drawn of every cell, read by everybody, and never of what is withheld."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from typing import Any
from xml.etree import ElementTree

import pytest

from app.run_sweeps import heat_map
from app.run_sweeps.heat_map import colours, luminance
from tests.app.problem_assertions import assert_problem
from tests.app.run_sweeps.conftest import BEST, Sweeps

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def grid(quick) -> dict[str, Any]:
    sweeps = Sweeps(quick.client, quick.context)
    sweep = sweeps.swept(
        hyperparameters={"step_size": [0.1, 0.4, 1.6]}, gradient_bound={"kind": "clip", "max_grad_norm": [0.5, 1]}
    )
    sweeps.work_all()
    return sweeps.sweep(sweep)


def drawn(sweeps: Sweeps, sweep: dict[str, Any]) -> ElementTree.Element:
    answer = sweeps.client.get(f"/v1/run-sweeps/{sweep['id']}/heat-map")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/svg+xml")
    return ElementTree.fromstring(answer.text)


def test_every_cell_is_there_with_its_score(sweeps: Sweeps, grid: dict[str, Any]) -> None:
    picture = drawn(sweeps, grid)
    titles = [each.text for each in picture.findall(f"{SVG}g/{SVG}title")]
    expected = [
        f"{grid['fields'][0]} {cell['values'][0]}, {grid['fields'][1]} {cell['values'][1]}: "
        f"{cell['metrics'][0]['accuracy']:.4g}"
        for cell in grid["cells"]
    ]
    assert titles == expected
    squares = [(each.get("x"), each.get("y")) for each in picture.findall(f"{SVG}g/{SVG}rect")]
    rows, columns = grid["shape"]
    assert len(set(squares)) == len(squares) == rows * columns
    assert len({x for x, _ in squares}) == columns
    assert (picture.get("role"), picture.get("aria-labelledby")) == ("img", "map-title map-description")
    assert picture.find(f"{SVG}title").text.startswith("accuracy on ds_breast_cancer over ")


def test_the_darkest_cell_is_the_greatest(sweeps: Sweeps, grid: dict[str, Any]) -> None:
    fills = [each.get("fill") for each in drawn(sweeps, grid).findall(f"{SVG}g/{SVG}rect")]
    light = [luminance(tuple(bytes.fromhex(fill.removeprefix("#")))) for fill in fills]
    scores = [cell["metrics"][0]["accuracy"] for cell in grid["cells"]]
    assert scores[light.index(min(light))] == max(scores)
    assert scores[light.index(max(light))] == min(scores)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("share", [number / 50 for number in range(51)])
def test_ink_stands_out_from_its_cell(share: float) -> None:
    fill, ink = (luminance(tuple(bytes.fromhex(each.removeprefix("#")))) for each in colours(share))
    brighter, darker = max(fill, ink), min(fill, ink)
    assert (brighter + 0.05) / (darker + 0.05) >= 4.5


def test_the_scale_is_even_in_what_colour_blind_people_see() -> None:
    levels = [luminance(tuple(bytes.fromhex(colours(n / 20)[0].removeprefix("#")))) for n in range(21)]
    assert levels == sorted(levels, reverse=True)
    assert len(set(levels)) == len(levels)


def test_the_page_has_the_table_too_and_nothing_that_acts(sweeps: Sweeps, grid: dict[str, Any]) -> None:
    answer = sweeps.client.get(f"/v1/run-sweeps/{grid['id']}/heat-map", headers={"Accept": "text/html"})
    assert answer.headers["content-type"].startswith("text/html")
    page = answer.text
    for cell in grid["cells"]:
        assert cell["run_id"] in page
    assert page.count("<svg") == page.count("<table") == page.count("<style") == 1
    assert not re.search(r"<script|\son\w+=|style=|href|https?://(?!www\.w3\.org/2000/svg)", page)
    for shown in (answer, sweeps.client.get(f"/v1/run-sweeps/{grid['id']}/heat-map?format=svg")):
        [style] = re.findall(r"<style>(.*?)</style>", shown.text, re.DOTALL)
        digest = b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert f"style-src 'sha256-{digest}'" in shown.headers["Content-Security-Policy"]


def test_what_somebody_typed_is_text(sweeps: Sweeps, grid: dict[str, Any]) -> None:
    from app.run_sweeps.schemas import RunSweepBody

    body = RunSweepBody.model_validate_json(sweeps.client.get(f"/v1/run-sweeps/{grid['id']}").text)
    cells = [each.model_copy(update={"values": ["<script>", each.values[1]]}) for each in body.cells]
    hostile = body.model_copy(update={"cells": cells})
    made = heat_map.heat_map_of(hostile)
    for text in (heat_map.to_svg(made), heat_map.to_html(hostile, made)):
        assert "<script>" not in text
        assert "&lt;script&gt;" in text


def test_one_field_makes_one_row_and_a_cell_without_a_score_is_empty(sweeps: Sweeps) -> None:
    sweep = sweeps.swept(iterations=[1, 2, 3], hyperparameters={"step_size": 1})
    assert_problem(sweeps.client.get(f"/v1/run-sweeps/{sweep['id']}/heat-map"), 409, "no_score")
    sweeps.work()
    squares = drawn(sweeps, sweep).findall(f"{SVG}g/{SVG}rect")
    assert sorted(each.get("class") for each in squares) == ["cell", "unscored", "unscored"]
    assert len({each.get("y") for each in squares if each.get("class") == "unscored"}) == 1
    sweeps.work_all()


@pytest.mark.thorough
def test_a_wide_map_leaves_its_numbers_to_the_titles(sweeps: Sweeps) -> None:
    sweep = sweeps.swept(iterations=list(range(1, 26)), hyperparameters={"step_size": 1})
    sweeps.work()
    picture = drawn(sweeps, sweep)
    assert not picture.findall(f"{SVG}g/{SVG}text")
    assert len(picture.findall(f"{SVG}g/{SVG}title")) == 25
    assert sweeps.post(f"/v1/run-sweeps/{sweep['id']}/cancel").status_code == 200


@pytest.mark.thorough
def test_of_a_sweep_for_the_best_there_is_no_map(sweeps: Sweeps) -> None:
    sweep = sweeps.swept(**BEST)
    assert_problem(sweeps.client.get(f"/v1/run-sweeps/{sweep['id']}/heat-map"), 409, "results_withheld")
    sweeps.work_all()
    assert_problem(sweeps.client.get(f"/v1/run-sweeps/{sweep['id']}/heat-map"), 409, "results_withheld")
