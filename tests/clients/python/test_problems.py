"""Errors: the class that programs branch on, and a text that says what would be right."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from epsilond_client import (
    Budget,
    BudgetExceeded,
    Client,
    Conflict,
    EpsilondError,
    Fault,
    Forbidden,
    InvalidRequest,
    NotFound,
    ProblemError,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from epsilond_client.events import gaussian
from epsilond_client.problems import problem_of

from app.problem_catalogue import PROBLEMS

CLASSES = {
    400: InvalidRequest,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    405: InvalidRequest,
    408: ProblemError,
    409: Conflict,
    413: InvalidRequest,
    415: InvalidRequest,
    422: InvalidRequest,
    429: RateLimited,
    431: ProblemError,
    500: ProblemError,
    503: Unavailable,
    507: Unavailable,
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("code", PROBLEMS)
def test_every_code_of_the_service_has_its_class(code: str) -> None:
    status = PROBLEMS[code][0]
    problem = problem_of(status, {"code": code, "status": status, "detail": "why", "errors": []})
    assert type(problem) is (BudgetExceeded if code == "budget_exceeded" else CLASSES[status])
    assert (problem.status, problem.code, problem.detail) == (status, code, "why")


def test_a_fault_is_told_with_its_place(client: Client, budget: Budget) -> None:
    with pytest.raises(InvalidRequest) as caught:
        client.reservations.create(budget, [gaussian(1.0, count=-1)], purpose="p")
    problem = caught.value
    assert problem.code == "invalid_request"
    assert problem.errors == (Fault("/events/0/count", "out_of_range", problem.errors[0].detail),)
    assert problem.request_id is not None
    assert re.search(r"/events/0/count: .+ \(out_of_range\)", str(problem))
    assert problem.request_id in str(problem)


def test_an_id_that_names_nothing(client: Client) -> None:
    with pytest.raises(NotFound, match="bud_none"):
        client.budgets.get("bud_none")


def test_a_denial_is_the_same_in_another_process(client: Client, budget: Budget) -> None:
    with pytest.raises(BudgetExceeded) as caught:
        client.reservations.create(budget, [gaussian(0.5, count=100)], purpose="p")
    other = pickle.loads(pickle.dumps(caught.value))
    assert type(other) is BudgetExceeded
    assert str(other) == str(caught.value)
    assert other.cost == caught.value.cost
    lost = Unavailable(0, "no_answer", "no answer came")
    lost.idempotency_key = "key"
    assert pickle.loads(pickle.dumps(lost)).idempotency_key == "key"


def test_a_dry_run_says_what_would_not_fit(client: Client, budget: Budget) -> None:
    with pytest.raises(BudgetExceeded) as caught:
        client.reservations.quote(budget, [gaussian(10.0, count=1000)])
    assert caught.value.largest_count_that_fits == 200
    assert re.search(r"cost: rho 5\.0\n  remaining: rho 1\.0\n  largest_count_that_fits: 200", str(caught.value))


def test_all_of_them_are_caught_as_one(client: Client, tmp_path: Path) -> None:
    with pytest.raises(EpsilondError):
        client.ledger.export(tmp_path / "none", budget="bud_none")
