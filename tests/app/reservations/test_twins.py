"""Requests with one key at once: in one process only one is carried out, and other processes get its answer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from app.context import Context, default_gate
from app.db.database import Database
from app.kit.group_commit import GroupCommit
from app.ledger import pricing
from app.main import create_app
from tests.app.budgets.conftest import Api, gaussian
from tests.app.problem_assertions import assert_problem
from tests.local_access import local_client

PATIENCE_S = 60
#: Priced by nobody before, so that it takes numerics.
EVENTS = [gaussian(17.25, 3)]


@pytest.fixture(autouse=True)
def _nothing_is_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pricing, "_PRICES", {})


@contextmanager
def no_numerics(context: Context) -> Iterator[ExitStack]:
    """All numerics of the process are taken, until the stack is closed: a request that prices something waits."""
    with ExitStack() as taken:
        for _ in range(os.cpu_count() or 1):
            taken.enter_context(context.numerics)
        yield taken


@contextmanager
def another_process(context: Context) -> Iterator[Api]:
    """The service in a process that shares nothing with this one but the database and the secret."""
    other = replace(
        context,
        database=Database(context.database.url),
        numerics=default_gate(),
        ledger_commits=GroupCommit(),
    )
    with local_client(create_app(other)) as client:
        yield Api(client)
    other.database.dispose()


def first_done(sent: list[Future[Any]], count: int) -> tuple[list[Any], list[Future[Any]]]:
    """The first answers to come, and what is still under way."""
    done: set[Future[Any]] = set()
    waiting = set(sent)
    while len(done) < count:
        found, waiting = wait(waiting, timeout=PATIENCE_S, return_when=FIRST_COMPLETED)
        assert found, "nobody is answered"
        done |= found
    return [future.result() for future in done], list(waiting)


def test_of_twins_in_one_process_one_is_carried_out_and_the_others_are_told_at_once(api: Api, context: Context) -> None:
    budget = api.budget()
    with no_numerics(context) as taken, ThreadPoolExecutor(3) as pool:
        sent = [pool.submit(api.reserve, budget["id"], EVENTS, "k") for _ in range(3)]
        told, (first,) = first_done(sent, 2)
        for answer in told:
            problem = assert_problem(answer, 409, "request_in_progress")
            assert "decided_at" not in problem
        taken.close()
        made = first.result(PATIENCE_S)
    assert made.status_code == 201
    again = api.reserve(budget["id"], EVENTS, "k")
    assert (again.status_code, again.json()) == (201, made.json()), "being told so was not an answer to remember"
    assert api.kinds(budget["id"]) == ["create", "reserve"]


@pytest.mark.parametrize(("rho", "status"), [(1, 201), (0.001, 409)])
def test_what_another_process_has_answered_meanwhile_is_the_answer(
    api: Api, context: Context, rho: float, status: int
) -> None:
    budget = api.budget({"kind": "zcdp", "rho": rho})
    with (
        no_numerics(context) as taken,
        ThreadPoolExecutor(1) as pool,
        another_process(context) as elsewhere,
    ):
        slow = pool.submit(api.reserve, budget["id"], EVENTS, "k")
        quick = elsewhere.reserve(budget["id"], EVENTS, "k")
        # The answer stands, also where the slow one could be carried out by now, or could not any more.
        elsewhere.change_limit(budget["id"], {"kind": "zcdp", "rho": 2 if status == 409 else "0.1"})
        taken.close()
        late = slow.result(PATIENCE_S)
    assert quick.status_code == late.status_code == status
    assert {**quick.json(), "request_id": ""} == {**late.json(), "request_id": ""}
    assert late.headers["idempotency-replayed"] == "true"
    assert api.kinds(budget["id"]).count("reserve") == (1 if status == 201 else 0)


def test_a_key_that_another_process_has_used_for_another_request_is_refused(api: Api, context: Context) -> None:
    budget = api.budget()
    with another_process(context) as elsewhere:
        assert elsewhere.reserve(budget["id"], [gaussian(17.25, 4)], "k").status_code == 201
    assert_problem(api.reserve(budget["id"], EVENTS, "k"), 422, "idempotency_key_reused")
    assert api.kinds(budget["id"]) == ["create", "reserve"]
