"""A tail is given up once, whatever corrections come at the same moment, and the books add up to what was last said."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from app.context import Context
from app.ledger.price_search import PriceSearch
from app.ledger.price_verification import PriceClass, PriceVerification
from app.ledger.verification import verify
from tests.app.budgets.conftest import Api, api, clock, context, made
from tests.app.conftest import client, connect

__all__ = ["api", "client", "clock", "connect", "context"]

ROUNDS = 10
LIMIT = {"epsilon": 2, "delta": 1e-5}


def steps(count: int) -> dict[str, Any]:
    return {
        "mechanism": {"kind": "gaussian", "noise_multiplier": 4.69},
        "sampling": {"kind": "poisson", "sampling_probability": 0.05},
        "count": count,
    }


@pytest.mark.thorough  # tests/app/budgets/test_corrections.py has the shorter ones
def test_refunds_and_corrections_at_once_charge_what_was_said_last(api: Api, context: Context) -> None:
    root = api.budget({"epsilon": 8, "delta": 1e-5})["id"]
    seen = set()
    a_commit_takes = 0.0  # seconds, as the first round finds them
    for number in range(ROUNDS):
        budget = api.budget(LIMIT, parent_id=root)["id"]
        held = api.hold(budget, [steps(600)])
        made(api.resolve(held, "start"))
        asked: list[tuple[str, int | None]] = [("commit", 300), ("commit", 310), ("correct", 700), ("correct", None)]
        # Corrections come before the commits, together with them, and after, however slow the machine is.
        lead = (number % 5 - 2) * a_commit_takes
        waits = {"commit": max(0.0, -lead), "correct": max(0.0, lead)}
        barrier = Barrier(len(asked))

        def ask(
            one: tuple[str, int | None], held: Any = held, barrier: Barrier = barrier, waits: dict[str, float] = waits
        ) -> Any:
            what, count = one
            barrier.wait()
            time.sleep(waits[what])
            if what == "commit":
                return api.resolve(held, "commit", {"events": [steps(count or 0)], "give_up_tail": True})
            return api.correct(
                held["budget_id"], reservation_id=held["id"], **({} if count is None else {"events": [steps(count)]})
            )

        begun = time.monotonic()
        with ThreadPoolExecutor(len(asked)) as pool:
            answers = list(pool.map(ask, asked))
        a_commit_takes = a_commit_takes or time.monotonic() - begun
        assert {answer.status_code for answer in answers} <= {200, 201, 409}, [answer.text for answer in answers]
        done = [what for (what, _), answer in zip(asked, answers, strict=True) if answer.is_success]
        assert done.count("commit") <= 1
        if "commit" not in done:  # what was held had changed; now nothing does
            made(api.resolve(held, "commit", {"events": [steps(300)], "give_up_tail": True}))
            done.append("commit, again")
        told = [each for each in api.entries(budget) if each["kind"] in ("commit", "correct")]
        kinds = [each["kind"] for each in told]
        assert (kinds.count("commit"), kinds.count("correct")) == (1, done.count("correct"))
        (commit,) = [each for each in told if each["given_back"] is not None]
        shown = api.get(f"/v1/reservations/{held['id']}").json()
        last = told[-1]
        assert last["amount"] == shown["charged"] == api.read(budget)["amounts"]["spent"]
        assert shown["given_back"] == (commit["given_back"] if last is commit or not shown["corrected"] else None)
        assert api.read(budget)["epsilon"]["reserved"] == 0.0
        seen.add((*kinds, *done))
    assert len(seen) > 1, seen
    charges = PriceVerification(PriceSearch(context.processes, at_once=2))
    with context.database.read() as session:
        verdict = verify(session, charges=charges)
    assert verdict.valid, verdict.in_words()
    report = verdict.with_prices(charges).prices
    assert report is not None
    assert report.entries[PriceClass.TOO_LOW] == 0
