"""Every algorithm keeps its promise over HTTP: a private run on a problem that it is about, and what its bounds say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibrators.registry import ALGORITHMS
from tests.app.runs.conftest import REQUEST
from tests.app.runs.promises.promise import MEASURES, Promise
from tests.app.runs.promises.promises import LARGE_PROMISES, PROMISES
from tests.databases import on_one_engine

#: A budget for all runs of a promise, which counts what the algorithm's events have a cost in.
BUDGETS: dict[str, dict[str, Any]] = {
    "zcdp": {"kind": "zcdp", "rho": 100},
    "approximate_dp": {"kind": "approximate_dp", "epsilon": 500, "delta": 1e-3},
    "renyi_dp": {"kind": "renyi_dp", "epsilon": 50, "delta": 1e-6},
}
PRICED_BY_RENYI = ("dp_svrg", "dp_svrg_pp")
SEED = 5


def private_runs(service: Any, name: str, promise: Promise) -> list[tuple[Any, dict[str, Any]]]:
    """Released points of private runs on one upload, which its own budget pays for, with their reports."""
    sample = promise.law.draw(promise.rows, SEED)
    kind = "renyi_dp" if name in PRICED_BY_RENYI else promise.request["target"]["kind"]
    budget = service.budget(neighboring_relation="replace_one", filter=BUDGETS[kind])
    dataset = service.dataset(
        sample.csv(promise.rows, SEED),
        declared_size=promise.rows,
        columns=promise.law.columns,
        budget_id=budget["id"],
    )
    assert not dataset["public"]
    request = {
        **dict.fromkeys(REQUEST, ...),
        "algorithm": name,
        "dataset_id": dataset["id"],
        "budget_id": budget["id"],
        "model": promise.law.model,
        **promise.request,
    }
    found = []
    for _ in range(promise.runs):
        run = service.trained(**request)
        assert service.reservation_state(run) == "committed"
        [released] = service.model(run)["parameters"].values()
        found.append((np.array(released), service.report(run)))
    return found


def bounds(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Upper bounds that are proved, with all of their constants."""
    return {
        number["name"]: number
        for number in report["utility"]
        if "bound" in number["name"] and not number["name"].startswith("lower_bound") and number["kind"] != "order"
    }


def check(service: Any, name: str, promise: Promise) -> None:
    """What was measured is within every proved bound, and which bounds are vacuous is no surprise."""
    runs = private_runs(service, name, promise)
    found = bounds(runs[0][1])
    assert bool(found) == (not promise.unbounded), "a bound that has come is to be measured"
    law = promise.law if promise.of_the_population else promise.law.draw(promise.rows, SEED)
    measures = MEASURES | {"gradient_norm": promise.stationarity, "closeness": promise.closeness}
    for bound, number in found.items():
        assert number["vacuous"] is bool(promise.vacuous), f"{bound}: {number}"
        measure = measures[bound.split("_bound")[0]]
        measured = np.mean([measure(point, law) for point, _ in runs])
        assert measured <= number["value"], bound


@on_one_engine
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.one_in(12)
def test_a_private_run_keeps_the_promise_of_its_algorithm(service, name):
    check(service, name, PROMISES[name])


@pytest.mark.soak
@on_one_engine
@pytest.mark.parametrize("name", LARGE_PROMISES)
def test_a_large_private_run_keeps_a_promise_that_says_something(service, name):
    check(service, name, LARGE_PROMISES[name])


def test_there_is_no_promise_without_its_algorithm():
    assert set(PROMISES) == set(ALGORITHMS)
    assert set(LARGE_PROMISES) <= {name for name, promise in PROMISES.items() if promise.vacuous}
