"""The queue is fair between budgets, and between keys that practise; and it has an end for each key."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import update

from app.runs import lifecycle, repository
from app.runs.turns import Turns
from app.tables.runs import Run
from tests.app.problem_assertions import assert_problem
from tests.app.runs.conftest import REQUEST
from tests.databases import on_one_engine

SMALL = {"kind": "zcdp", "rho": 1e-4}


def queue_of(service, number: int, **changes) -> list[str]:
    """Runs that a new budget pays for, from the oldest on, on public data."""
    budget = service.budget()
    chosen = {"dataset_id": "ds_breast_cancer", "budget_id": budget["id"], "target": SMALL} | changes
    return [service.queued(**chosen)["id"] for _ in range(number)]


def age(service, run_ids: list[str], seconds: int) -> None:
    """Make it so that the runs have waited for so long, and one second longer each."""
    with service.context.database.write() as session:
        for place, run_id in enumerate(run_ids):
            moment = service.context.clock() - timedelta(seconds=seconds - place)
            session.execute(update(Run).where(Run.id == run_id).values(created_at=moment))


def claims(service, number: int) -> list[str]:
    found = []
    for _ in range(number):
        run = lifecycle.claim(service.context, "wrk_test")
        assert run is not None
        found.append(run.id)
    return found


def test_budgets_take_turns_however_many_runs_one_of_them_has_queued(service):
    long = queue_of(service, 5)
    short = queue_of(service, 2)
    practice = queue_of(service, 1, budget_id=None)
    for run_ids, seconds in ((long, 300), (short, 200), (practice, 100)):
        age(service, run_ids, seconds)
    assert claims(service, 8) == [
        *(long[0], short[0], practice[0]),
        *(long[1], short[1]),
        *long[2:],
    ]
    assert lifecycle.claim(service.context, "wrk_test") is None


def test_what_another_worker_has_in_hand_holds_up_nobody(service):
    first, second = queue_of(service, 2), queue_of(service, 1)
    age(service, first, 100)
    with service.context.database.write() as session:
        taken = repository.next_queued(session)
        assert taken is not None
        assert taken.id == first[0]
        if not service.context.database.is_sqlite:  # which has one writer at a time
            assert claims(service, 2) == [second[0], first[1]]


@on_one_engine
def test_more_than_a_keys_share_of_the_queue_is_429_until_some_are_taken(service):
    settings = service.context.settings.model_copy(update={"queued_runs_per_key": 2})
    object.__setattr__(service.context, "settings", settings)
    queue_of(service, 1)
    body = REQUEST | {"dataset_id": "ds_breast_cancer"}
    kept = service.post("/v1/runs", body, key="kept")
    assert kept.status_code == 202
    refused = service.post("/v1/runs", body, key="later")
    assert_problem(refused, 429, "queue_full")
    assert int(refused.headers["Retry-After"]) > 0
    assert service.post("/v1/runs", body, key="kept").json()["id"] == kept.json()["id"]
    claims(service, 1)
    assert service.post("/v1/runs", body, key="later").status_code == 202


@pytest.mark.parametrize("lengths", [(1, 1), (1000, 1), (3, 50, 7)])
def test_a_queue_waits_for_one_run_of_each_other_at_most(lengths):
    turns = Turns()
    left = {f"bud_{number}": length for number, length in enumerate(lengths)}
    waits = dict.fromkeys(left, 0)
    while left:
        queue = turns.order(list(left))[0]
        turns.serve(queue)
        for other in left:
            waits[other] = 0 if other == queue else waits[other] + 1
            assert waits[other] < len(lengths)
        left[queue] -= 1
        left = {name: length for name, length in left.items() if length}


def test_queues_that_come_and_go_have_had_their_turn_all_the_same():
    turns = Turns()
    served = []
    for number in range(30):
        # Two of three others have one run each whenever it is not their turn: they are never there twice in a row.
        others = [f"bud_{which}" for which in range(3) if which != number % 3]
        served.append(turns.order(["bud_long", *others])[0])
        turns.serve(served[-1])
    assert served.count("bud_long") >= len(served) / 4
