"""`POST /v1/sweep`: a table whose rows are what `/v1/calibrate` answers cell by cell."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest

from app.kit.process_pool import JobFailed, ProcessPool
from app.sweeps import service
from app.sweeps.examples import SWEEP_EXAMPLES
from app.sweeps.schemas import MAX_CELLS
from tests.app.problem_assertions import assert_problem

#: Full batches are solved in closed form, so each cell takes a millisecond.
REQUEST: dict[str, Any] = {
    "algorithm": "dp_sgd",
    "dataset_size": 1000,
    "iterations": 100,
    "sampling": "full_batch",
    "gradient_bound": {"kind": "clip", "max_grad_norm": 2.0},
    "target": {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-5},
}
#: Rational arithmetic, for sweeps of many cells.
MU = {"kind": "gaussian_dp", "mu": 1}
SWEEPS: dict[str, list[Any]] = {
    "target.epsilon": [0.5, 1, 2],
    "target.delta": [1e-6, 1e-5],
    "iterations": [1, 10, 100.0],
    "dataset_size": [100, 1000],
    "neighboring_relation": ["add_or_remove_one", "replace_one"],
    "gradient_bound.max_grad_norm": [0.5, 1.0],
    "hyperparameters.step_size": [0.1, 0.2],
    "dimension": [10, 20],
}


def with_value(field: str, value: Any) -> dict[str, Any]:
    body = copy.deepcopy(REQUEST)
    *parents, last = field.split(".")
    inner = body
    for name in parents:
        inner = inner.setdefault(name, {})
    inner[last] = value
    return body


def swept(reader, field: str, values: list[Any], **changes: Any) -> Any:
    body = {key: value for key, value in (with_value(field, values) | changes).items() if value is not ...}
    return reader.post("/v1/sweep", json=body)


@pytest.mark.parametrize("name", SWEEP_EXAMPLES)
def test_every_example_runs_as_it_stands(reader, name):
    answer = reader.post("/v1/sweep", json=SWEEP_EXAMPLES[name]["value"])
    assert answer.status_code == 200, answer.text
    rows = answer.json()["rows"]
    assert sum(row["solution"] is not None for row in rows) >= 2


@pytest.mark.parametrize("field", SWEEPS)
def test_each_row_is_what_calibrate_answers(reader, field):
    answer = swept(reader, field, SWEEPS[field])
    assert answer.status_code == 200, answer.text
    table = answer.json()
    assert table["field"] == field
    assert table["values"] == [row["value"] for row in table["rows"]] == SWEEPS[field]
    for row in table["rows"]:
        single = reader.post("/v1/calibrate", json=with_value(field, row["value"])).json()
        for member in ("solution", "achieved", "noise", "plan_hash", "warnings"):
            assert row[member] == single[member]
        assert row["utility"] == {item["name"]: item["value"] for item in single["utility"]}
        assert row["problem"] is None
    for relation, meaning in table["conventions"].items():
        assert meaning["neighboring_relation"] == relation


def test_other_unknowns_are_swept_alike(reader):
    iterations = swept(reader, "noise_multiplier", [5.0, 50.0], solve_for="iterations", iterations=...).json()["rows"]
    assert [row["solution"]["iterations"] for row in iterations] == sorted(
        row["solution"]["iterations"] for row in iterations
    )
    target = {"kind": "approximate_dp", "delta": [1e-7, 1e-5]}
    epsilons = swept(reader, "target", [], target=target, solve_for="epsilon", noise_multiplier=30).json()["rows"]
    assert epsilons[0]["solution"]["epsilon"] > epsilons[1]["solution"]["epsilon"]


def test_one_bad_cell_does_not_spoil_the_rest(reader):
    rows = swept(reader, "target.epsilon", [1, -1, 1e-6, "two", 2], iterations=10**8).json()["rows"]
    problems = [row["problem"] for row in rows]
    assert [problem and problem["code"] for problem in problems] == [
        None,
        "invalid_request",
        "unreachable_target",
        "invalid_request",
        None,
    ]
    assert problems[1]["errors"][0]["pointer"] == "/target/epsilon"
    assert problems[1]["errors"][0]["code"] == "out_of_range"
    assert all((row["solution"] is None) == (row["problem"] is not None) for row in rows)


@pytest.mark.parametrize(
    ("changes", "code", "pointer"),
    [
        ({}, "missing", ""),
        ({"dataset_size": [10, 20], "iterations": [1, 2]}, "overdetermined", "/iterations"),
        ({"iterations": []}, "invalid_request", "/iterations"),
        ({"iterations": [1] * (MAX_CELLS + 1)}, "invalid_request", "/iterations"),
        ({"iterations": [1, None]}, "invalid_request", "/iterations/1"),
        ({"iterations": [1, True]}, "invalid_request", "/iterations/1"),
        ({"iterations": [1, [2]]}, "overdetermined", None),
        ({"target": [{"kind": "zcdp", "rho": 1}]}, "invalid_request", "/target/0"),
        ({"iterations": [1, 2], "epsilon": 1}, "invalid_request", "/epsilon"),
        ({"iterations": [1, 2], "algorithm": "adam"}, "unknown_algorithm", "/algorithm"),
        ({"iterations": [1, 2], "epochs": 2}, "overdetermined", "/epochs"),
        ({"epsilon": [1, 2]}, "invalid_request", "/epsilon"),
        ({"assumptions": {"x": {"y": [1, 2]}}}, "invalid_request", "/assumptions/x"),
    ],
)
def test_a_sweep_that_cannot_be_read_is_refused_as_a_whole(reader, changes, code, pointer):
    if changes.get("iterations") == [1, [2]]:
        code, pointer = "invalid_request", "/iterations/1"
    assert_problem(reader.post("/v1/sweep", json=REQUEST | changes), 422, code, pointer)


@pytest.mark.parametrize("body", [[], 7, "x", None])
def test_a_body_that_is_no_object_is_refused(reader, body):
    assert_problem(reader.post("/v1/sweep", json=body), 422, "invalid_request")


@pytest.mark.thorough
def test_the_largest_sweep_is_answered(reader):
    steps = [(index + 1) / 1000 for index in range(MAX_CELLS)]
    answer = swept(reader, "hyperparameters.step_size", steps, target=MU)
    assert answer.status_code == 200, answer.text[:500]
    rows = answer.json()["rows"]
    assert len(rows) == MAX_CELLS
    assert {row["solution"]["noise_multiplier"] for row in rows} == {rows[0]["solution"]["noise_multiplier"]}
    assert len({row["plan_hash"] for row in rows}) == MAX_CELLS


def test_a_long_sweep_is_the_short_ones_together(reader):
    values = list(range(1, service.MOST_CELLS_OF_SHORT_SWEEPS + 40))
    rows = swept(reader, "iterations", values, target=MU).json()["rows"]
    short = swept(reader, "iterations", values[60:70], target=MU).json()["rows"]
    assert rows[60:70] == short
    assert not any(row["problem"] for row in rows)


@pytest.mark.parametrize("cells", [3, 100])
def test_what_is_not_reached_in_time_has_too_much_work(reader, monkeypatch, cells):
    monkeypatch.setattr(service, "MOST_SECONDS", -1.0)
    monkeypatch.setattr(service, "MOST_SECONDS_OF_LONG_SWEEPS", -1.0)
    rows = swept(reader, "iterations", list(range(1, cells + 1))).json()["rows"]
    assert {row["problem"]["code"] for row in rows} == {"too_much_work"}


def test_values_that_break_their_process_are_given_up_and_the_others_stand(reader, monkeypatch):
    run, calls = ProcessPool.run, itertools.count()

    def fails_once(self, function, *args):
        if next(calls) == 0:
            raise JobFailed("it took longer than 20 s")
        return run(self, function, *args)

    monkeypatch.setattr(ProcessPool, "run", fails_once)
    rows = swept(reader, "iterations", list(range(1, 100)), target=MU).json()["rows"]
    codes = [row["problem"] and row["problem"]["code"] for row in rows]
    assert codes == ["too_much_work"] * service.CELLS_TOGETHER + [None] * (99 - service.CELLS_TOGETHER)
    assert "longer than 20 s" in rows[0]["problem"]["detail"]


def test_a_sweep_needs_no_idempotency_key_and_stores_nothing(reader):
    assert swept(reader, "iterations", [1, 2]).status_code == 200


TREES: dict[str, Any] = {
    "algorithm": "tree_sfw_l1",
    "dataset_size": 1000,
    "dimension": 7,
    "iterations": 3,
    "assumptions": {"radius": 1, "lipschitz": 2, "smoothness": 0.5},
    "target": {"kind": "pure_dp", "epsilon": 2},
}
SCHEDULE: dict[str, Any] = {
    "algorithm": "clipped_sgd_strongly_convex",
    "dataset_size": 1000,
    "dimension": 7,
    "assumptions": {"smoothness": 4, "strong_convexity": 1, "diameter": 2, "moment_order": 3, "moment_bound": 2},
    "target": {"kind": "zcdp", "rho": 0.5},
}


@pytest.mark.parametrize(
    ("body", "swept_values", "changed", "lists"),
    [
        (TREES, {"target": {"kind": "pure_dp", "epsilon": [0.5, 1, 2]}}, "noise_scale", [3, 3, 3]),
        (TREES, {"iterations": [1, 2, 40]}, "noise_scale", [1, 2, None]),
        (TREES | {"assumptions": {}}, {"domain": {"kind": "l1_ball", "radius": [1, 2]}}, "noise_scale", [None, None]),
        (SCHEDULE, {"iterations": [3, 7]}, "step_size", [4, 8]),
        (SCHEDULE, {"penalty": {"kind": "l2", "strength": [0.1, 0.5, 2]}}, "step_size", None),
    ],
)
def test_numbers_that_are_lists_stand_in_rows_as_in_single_answers(reader, body, swept_values, changed, lists):
    table = reader.post("/v1/sweep", json=body | swept_values).json()
    [(name, value)] = swept_values.items()
    for index, row in enumerate(table["rows"]):
        one = (
            {key: each[index] if isinstance(each, list) else each for key, each in value.items()}
            if isinstance(value, dict)
            else value[index]
        )
        single = reader.post("/v1/calibrate", json=body | {name: one})
        if single.status_code != 200:
            assert row["problem"]["code"] == single.json()["code"]
            assert row["problem"]["errors"] == single.json()["errors"]
            assert lists is None or lists[index] is None
            continue
        expected = single.json()
        assert row["solution"] == expected["solution"]
        assert row["noise"] == expected["noise"]
        assert row["plan_hash"] == expected["plan_hash"]
        assert row["hyperparameters"] == {item["name"]: item["value"] for item in expected["hyperparameters"]}
        assert isinstance(row["hyperparameters"][changed], list)
        assert lists is None or len(row["hyperparameters"][changed]) == lists[index]
