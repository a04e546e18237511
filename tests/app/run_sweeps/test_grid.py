"""What a sweep may ask: grids, faults where they are, and what a dry run answers."""

from __future__ import annotations

from typing import Any

import pytest

from app.run_sweeps import preparation
from app.run_sweeps.examples import RUN_SWEEP_EXAMPLES
from app.run_sweeps.grid import read_grid
from app.run_sweeps.schemas import MAX_CELLS, RunSweepRequest
from tests.app.problem_assertions import assert_problem
from tests.app.run_sweeps.conftest import BEST, Sweeps


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", RUN_SWEEP_EXAMPLES)
def test_every_example_runs_as_it_stands(sweeps: Sweeps, name: str) -> None:
    body = RUN_SWEEP_EXAMPLES[name]["value"]
    quote = sweeps.client.post("/v1/run-sweeps?dry_run=true", json=body)
    assert quote.status_code == 200, quote.text
    sweep = sweeps.swept(**{**dict.fromkeys(sweeps.request(), ...), **body})
    assert sweep["sweep_hash"] == quote.json()["sweep_hash"]
    assert sweep["guarantee"] == quote.json()["guarantee"]
    sweeps.work_all()
    if sweep["release_at"] is None:
        assert sweeps.sweep(sweep)["state"] == "succeeded"


def test_the_last_field_changes_fastest(sweeps: Sweeps) -> None:
    sweep = sweeps.swept(
        hyperparameters={"step_size": [0.1, 0.2]}, gradient_bound={"kind": "clip", "max_grad_norm": [1, 2, 3]}
    )
    fields = ["gradient_bound.max_grad_norm", "hyperparameters.step_size"]
    assert sorted(sweep["fields"]) == fields
    values = [tuple(cell["values"]) for cell in sweep["cells"]]
    first, second = ([1, 2, 3], [0.1, 0.2]) if sweep["fields"] == fields else ([0.1, 0.2], [1, 2, 3])
    assert values == [(a, b) for a in first for b in second]
    assert sweep["shape"] == [len(first), len(second)]
    assert len({cell["plan_hash"] for cell in sweep["cells"]}) == 6


FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "nothing swept": ({"hyperparameters": {"step_size": 0.1}}, "missing", "/hyperparameters"),
    "three fields": (
        {"iterations": [1, 2], "target": {"kind": "approximate_dp", "epsilon": [1, 2], "delta": 1e-5}},
        "overdetermined",
        "/hyperparameters/step_size",
    ),
    "no values": ({"hyperparameters": {"step_size": []}}, "too_short", "/hyperparameters/step_size"),
    "no select": ({"select": ...}, "missing", "/select"),
    "an unknown select": ({"select": "some"}, "unknown_value", "/select"),
    "an unknown field": ({"nonsense": 1}, "unknown_field", "/nonsense"),
    "a value that is wrong": (
        {"hyperparameters": {"step_size": [0.1, -1]}},
        "out_of_range",
        "/hyperparameters/step_size/1",
    ),
    "a value of a wrong type": (
        {"hyperparameters": {"step_size": [0.1, True]}},
        "wrong_type",
        "/hyperparameters/step_size/1",
    ),
    "a value that cannot be calibrated": (
        {"hyperparameters": {"step_size": 0.1}, "algorithm": ["dp_sgd", "no_such"]},
        "unknown_algorithm",
        "/algorithm/1",
    ),
    "a value twice": (
        {"hyperparameters": {"step_size": [0.1, 1, 1.0]}},
        "invalid_value",
        "/hyperparameters/step_size/2",
    ),
    "several data sets": ({"dataset_id": ["ds_digits", "ds_breast_cancer"]}, "unsupported", "/dataset_id"),
    "no data set": ({"dataset_id": ...}, "missing", "/dataset_id"),
    "a plan hash": ({"expected_plan_hash": "0" * 64}, "unsupported", "/expected_plan_hash"),
    "another sweep": ({"expected_sweep_hash": "0" * 64}, "sweep_hash_mismatch", "/expected_sweep_hash"),
    "a law without a best": ({"trials": {"kind": "poisson", "expected_trials": 2}}, "overdetermined", "/trials"),
    "no law": (BEST | {"trials": ...}, "missing", "/trials"),
    "no score": (BEST | {"score": ...}, "missing", "/score"),
    "a law that is known": (BEST | {"trials": {"kind": "fixed", "trials": 3}}, "unknown_value", "/trials/kind"),
    "a law too far": (
        BEST | {"trials": {"kind": "logarithmic", "expected_trials": 1000}},
        "too_many_trials",
        "/trials",
    ),
    "a law without its mean": (BEST | {"trials": {"kind": "geometric"}}, "invalid_value", "/trials/expected_trials"),
    "a seed": (BEST | {"seed": 1}, "unsupported", "/seed"),
    "a target without a delta": (BEST | {"target": {"kind": "zcdp", "rho": 1}}, "unsupported", "/target/kind"),
    "a target for groups": (
        BEST | {"target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5, "group_size": 2}},
        "unsupported",
        "/target/group_size",
    ),
    "several deltas": (
        BEST | {"target": {"kind": "approximate_dp", "epsilon": 1, "delta": [1e-6, 1e-5]}},
        "unsupported",
        "/target/delta",
    ),
    "batches of several sizes": (
        BEST | {"hyperparameters": {"step_size": 1}, "sampling": "poisson", "batch_size": [50, 100]},
        "candidates_differ",
        "/batch_size/1",
    ),
    "a time that is too long": (BEST | {"release_after_s": 10**7}, "out_of_range", "/release_after_s"),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.one_in(3)
def test_a_fault_is_told_where_it_is(sweeps: Sweeps, name: str) -> None:
    changes, code, pointer = FAULTS[name]
    answer = sweeps.ask(**changes)
    assert answer.status_code == 422, answer.text
    [item] = answer.json()["errors"]
    assert (item["code"], item["pointer"]) == (code, pointer)


def test_a_cell_that_cannot_be_calibrated_is_named(sweeps: Sweeps) -> None:
    # Disjoint batches of 300 of 569 records are one.
    answer = sweeps.ask(
        iterations=[1, 2], hyperparameters={"step_size": 1}, sampling="disjoint_batches", batch_size=300
    )
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"].startswith("In the cell of iterations ")


def test_inline_rows_are_refused(sweeps: Sweeps) -> None:
    dataset = {"columns": [], "label": "y", "rows": [[1]]}
    assert_problem(sweeps.ask(dataset=dataset), 422, "unsupported", "/dataset")


def test_a_thousand_cells_are_the_most(sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [1.0 + number / 100 for number in range(40)]
    body = sweeps.request(hyperparameters={"step_size": sizes}, iterations=list(range(1, 26)))
    assert len(read_grid(RunSweepRequest(body)).cells) == MAX_CELLS
    more = sweeps.ask(hyperparameters={"step_size": sizes}, iterations=list(range(1, 27)))
    assert_problem(more, 422, "invalid_request", "/hyperparameters/step_size")
    assert "would have 1040" in more.json()["detail"]
    many = sweeps.ask(hyperparameters={"step_size": [0.1] * (MAX_CELLS + 1)})
    assert_problem(many, 422, "invalid_request", "/hyperparameters/step_size")
    monkeypatch.setattr(preparation, "MOST_STORED", 100)
    assert_problem(sweeps.ask(), 422, "too_much_work", "/dataset_id")
    monkeypatch.setattr(preparation, "MOST_SECONDS", -1.0)
    assert_problem(sweeps.ask(), 422, "too_much_work", "/hyperparameters/step_size")


def test_a_dry_run_answers_the_cost_and_writes_nothing(sweeps: Sweeps) -> None:
    budget = sweeps.budget(filter={"kind": "renyi_dp", "epsilon": 5, "delta": 1e-5})
    # Those of other tests may end meanwhile.
    before = [sweep["id"] for sweep in sweeps.get("/v1/run-sweeps")["items"]]
    for changes in ({}, BEST):
        body = sweeps.request(budget_id=budget["id"], **changes)
        quote = sweeps.client.post("/v1/run-sweeps?dry_run=true", json=body).json()
        assert quote["cost"]["epsilons"][0] > 0.0
        assert quote["remaining"]["epsilons"][0] < budget["amounts"]["remaining"]["epsilons"][0]
        assert len(quote["cells"]) == 3
    assert quote["trials_quantile"] == {"probability": 0.999, "trials": 18}
    assert [sweep["id"] for sweep in sweeps.get("/v1/run-sweeps")["items"]] == before
    assert sweeps.get(f"/v1/budgets/{budget['id']}")["amounts"]["reserved"]["epsilon"] == 0.0
    small = sweeps.budget(filter={"kind": "renyi_dp", "epsilon": 0.5, "delta": 1e-5})
    body = sweeps.request(budget_id=small["id"])
    assert_problem(sweeps.client.post("/v1/run-sweeps?dry_run=true", json=body), 409, "budget_exceeded")
    asked = sweeps.client.post("/v1/run-sweeps", json=body)
    assert_problem(asked, 400, "idempotency_key_missing")


@pytest.mark.thorough
def test_the_best_costs_less_than_all(sweeps: Sweeps) -> None:
    sizes = {"hyperparameters": {"step_size": [number / 10 for number in range(1, 11)]}}
    uppers = []
    for changes in ({}, BEST | {"trials": {"kind": "logarithmic", "expected_trials": 10}}):
        quote = sweeps.client.post("/v1/run-sweeps?dry_run=true", json=sweeps.request(**sizes, **changes)).json()
        uppers.append(quote["guarantee"]["epsilon"]["upper"])
    assert uppers[1] < 0.6 * uppers[0]


def test_an_unknown_sweep_is_404(sweeps: Sweeps) -> None:
    for path in ("/v1/run-sweeps/swp_none", "/v1/run-sweeps/swp_none/heat-map"):
        assert_problem(sweeps.client.get(path), 404, "not_found")
    assert_problem(sweeps.post("/v1/run-sweeps/swp_none/cancel"), 404, "not_found")
