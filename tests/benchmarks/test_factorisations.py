"""Our banded matrices beside those of JAX Privacy: judged by one function, and by the goals."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from benchmarks import report
from benchmarks.accounting import factorisations
from benchmarks.accounting.factorisations import Found, timed
from calibrators.correlation import Objective
from calibrators.matrix_factorisation.strategy import Workload, optimal


@pytest.fixture
def measured() -> dict[str, Any]:
    return report.read("factorisations")


def test_errors_do_not_depend_on_the_scale_of_a_matrix_and_follow_its_noise() -> None:
    one, other = Found((0.75, 0.66), 1.0), Found((1.5, 1.32), 1.0)
    assert one.error(1000, Objective.MEAN) == pytest.approx(other.error(1000, Objective.MEAN), rel=1e-12)
    assert Found((0.75, 0.66), 1.0, 3.0).error(1000, Objective.MAX) == 3.0 * one.error(1000, Objective.MAX)
    best = optimal(Workload(1000), 2)
    assert Found(best.coefficients, 1.0).error(1000, Objective.MEAN) == pytest.approx(15.920322, rel=2e-5)


def test_nothing_is_remembered_of_what_is_timed() -> None:
    optimal(Workload(1001), 3)
    before = optimal.cache_info().currsize
    found = timed(lambda: (optimal(Workload(1001), 3).coefficients, 2.0))
    assert before >= 1
    assert optimal.cache_info().currsize == 1
    assert (len(found.coefficients), found.noise) == (3, 2.0)


def test_goals_are_missed_where_a_figure_misses_them(measured: dict[str, Any]) -> None:
    assert measured["goals"] == factorisations.goals(measured)
    assert not measured["quick"]
    assert [(row["steps"], row["bands"]) for row in measured["matrices"][::2]] == list(factorisations.SIZES)
    spoilt = copy.deepcopy(measured)
    spoilt["matrices"][3]["error_ratio"] = 1.00011
    spoilt["matrices"][4]["time_ratio"] = 0.9
    spoilt["choices"][0]["error_ratio"] = 1.01
    assert [goal["met"] for goal in factorisations.goals(spoilt)] == [False] * 3


def test_the_committed_matrices_are_those_that_are_found_today(measured: dict[str, Any]) -> None:
    for row in measured["matrices"]:
        if row["steps"] <= 2000:
            found = optimal(Workload(row["steps"]), row["bands"], Objective(row["objective"]))
            error = Found(found.coefficients, 0.0).error(row["steps"], Objective(row["objective"]))
            assert error == pytest.approx(row["ours"]["error"], rel=1e-6)


def test_the_page_tells_every_goal_and_matrix(measured: dict[str, Any]) -> None:
    text = "\n".join(factorisations.factorisations_section(measured))
    assert all(goal["measured"] in text for goal in measured["goals"])
    assert text.count("| mean |") == text.count("| max |") == len(factorisations.SIZES)
