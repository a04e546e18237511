"""Sweeps that release the best of a secret number of trials: what is charged, and that nobody learns the number."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from accounting.events import Event, Gaussian
from accounting.relations import NeighboringRelation
from accounting.tuning import PoissonTrials, TruncatedNegativeBinomial, tuning_cost
from app.fence.watching import fence_of, fenced_context
from app.ledger.statements import RESERVATIONS
from app.runs import lifecycle, worker
from app.runs import sweep_progression as progression
from app.runs.executors.paces import Pace
from app.runs.preparation import QUEUE_HOLD_S
from app.runs.schedule import Schedule
from app.runs.supervisor import Supervisor
from app.tables.runs import Run, RunSweep
from tests.app.ledger import attacks
from tests.app.problem_assertions import assert_problem
from tests.app.run_sweeps.conftest import BEST, STEP_SIZES
from tests.app.runs.clocks import PacedExecutor
from tests.app.runs.conftest import ROWS
from tests.app.runs.interrupted import stopping_after
from tests.databases import on_one_engine


def models(service) -> list[str]:
    return sorted(path.name for path in (service.context.settings.data_dir / "models").glob("*"))


def test_the_best_trial_is_released_and_nothing_of_the_others(service, draws):
    draws.trials, draws.cells = 3, [1, 2, 0]
    sweep = service.paid(**BEST)
    assert (sweep["state"], {cell["state"] for cell in sweep["cells"]}) == ("queued", {None})
    assert service.get("/v1/runs")["items"] == []
    assert service.work_all() == 3
    ended = service.sweep(sweep)
    assert ended["state"] == "succeeded"
    best = ended["best"]
    assert [item["id"] for item in service.get("/v1/runs")["items"]] == [best["run_id"]]
    assert [name.partition(".")[0] for name in models(service)] == [best["run_id"]]
    rows = service.runs_of(sweep)
    assert sorted(row.sweep_cell for row in rows) == [0, 1, 2]
    for row in rows:
        is_best = row.id == best["run_id"]
        assert (row.is_withheld, row.result is None) == (not is_best, not is_best)
        for path in ("", "/report", "/model", "/events"):
            status = service.client.get(f"/v1/runs/{row.id}{path}").status_code if is_best or path else 404
            assert status == (200 if is_best else 404)
        if not is_best:
            assert service.client.get(f"/v1/runs/{row.id}").status_code == 404
            assert service.post(f"/v1/runs/{row.id}/cancel").status_code == 404
            assert service.post("/v1/audits", {"run_id": row.id}).status_code == 404
    assert service.kinds(sweep) == ["reserve", "start", "commit"]
    run = service.get(f"/v1/runs/{best['run_id']}")
    assert run["charge"] == ended["charge"]
    assert [run[name] for name in ("created_at", "started_at", "finished_at")] == [
        ended[name] for name in ("created_at", "started_at", "finished_at")
    ]
    assert best["values"] == ended["cells"][rows[[row.id for row in rows].index(run["id"])].sweep_cell]["values"]
    assert all(cell["run_id"] is cell["state"] is None and cell["metrics"] == [] for cell in ended["cells"])


@on_one_engine
def test_the_best_is_the_one_with_the_best_score(service, draws, monkeypatch):
    draws.trials, draws.cells = 4, [0, 1, 2, 1]
    scores = iter([0.5, 0.75, None, 0.625])
    summarize = worker.summarize

    def scored(job, result, score_key, device):
        score = next(scores)
        if score is None:
            raise FloatingPointError("this trial fails")
        summary = summarize(job, result, score_key, device)
        summary["metrics"][0]["accuracy"] = score
        return summary

    monkeypatch.setattr(worker, "summarize", scored)
    sweep = service.paid(**BEST)
    assert service.work_all() == 4
    best = service.sweep(sweep)["best"]
    assert (best["metrics"][0]["accuracy"], best["values"]) == (0.75, [STEP_SIZES[1]])


@on_one_engine
def test_where_every_trial_fails_there_is_no_model_and_the_charge_stands(service, draws, monkeypatch):
    draws.trials = 2

    def fails(*_):
        raise FloatingPointError("this trial fails")

    monkeypatch.setattr(worker, "summarize", fails)
    sweep = service.paid(**BEST)
    service.work_all()
    ended = service.sweep(sweep)
    assert (ended["state"], ended["best"]) == ("failed", None)
    assert "No trial succeeded" in ended["note"]
    assert service.kinds(sweep) == ["reserve", "start", "commit"]
    assert all(row.problem is None for row in service.runs_of(sweep))


def test_where_no_trial_is_drawn_there_is_no_model_and_that_is_said(service, draws):
    draws.trials = 0
    sweep = service.paid(**BEST | {"trials": {"kind": "poisson", "expected_trials": 2}})
    assert service.work_all() == 1
    ended = service.sweep(sweep)
    assert (ended["state"], ended["best"]) == ("succeeded", None)
    assert "No trial was drawn" in ended["note"]
    assert service.kinds(sweep) == ["reserve", "start", "commit"]
    assert models(service) == []
    assert service.get("/v1/runs")["items"] == []


def visible(service, sweep: dict[str, Any]) -> str:
    """Every answer that has to do with the sweep, as an analyst reads it, without ids, hashes and times."""
    paths = [
        "/v1/runs?limit=200",
        "/v1/run-sweeps",
        f"/v1/run-sweeps/{sweep['id']}",
        f"/v1/reservations/{sweep['reservation_id']}",
        f"/v1/budgets/{sweep['budget_id']}?delta=1e-6",
        f"/v1/budgets/{sweep['budget_id']}/entries",
        f"/v1/budgets/{sweep['budget_id']}/reservations",
        f"/v1/run-sweeps/{sweep['id']}/heat-map",
        f"/v1/datasets/{sweep['dataset_id']}",
    ]
    answers = [service.client.get(path) for path in paths]
    text = json.dumps([[answer.status_code, answer.json()] for answer in answers], sort_keys=True)
    text = re.sub(r"\b(bud|res|run|ds|ent|swp|req|chk)_[a-z2-7]{16,}", r"\1", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "hash", text)
    text = re.sub(r"req_[0-9a-z]+", "req", text)
    text = re.sub(r'"(leaf_index)": \d+', r'"\1"', text)
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "time", text)


#: 99.9 % of sweeps make at most three trials.
FEW = {"kind": "poisson", "expected_trials": 0.2}


def test_no_answer_tells_the_number_of_trials(service, draws):
    """Before the first trial, after it, after all of them, and after the time to release at."""
    seen: list[list[str]] = []
    for trials in (0, 1, 3):
        draws.trials, draws.cells = trials, None
        # Rows of one data set are bound to its budget, so that each sweep has its own.
        rows = f"{ROWS}{trials},0,red,no\n"
        sweep = service.private_sweep(rows, **BEST | {"trials": FEW, "release_after_s": 1000})
        told = [visible(service, sweep)]
        service.work()
        told.append(visible(service, sweep))
        # Whoever shares the workers sees three of them, whatever was drawn.
        assert service.work_all() == 2
        progression.advance_all(service.context)
        told.append(visible(service, sweep))
        assert told[2] == told[1] != told[0]
        cancelled = service.post(f"/v1/run-sweeps/{sweep['id']}/cancel")
        assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelling")
        progression.advance_all(service.context)
        told.append(visible(service, sweep))
        progression.advance_all(service.later(1100))
        told.append(visible(service, sweep))
        assert service.sweep(sweep)["state"] == "cancelled"
        seen.append(told)
        _forget(service)
    for moment, texts in enumerate(zip(*seen, strict=True)):
        assert len(set(texts)) == 1, (moment, *texts)


def _forget(service) -> None:
    """Leave the lists as they were, for the next sweep to be the only one in them."""
    from sqlalchemy import delete, update

    from app.fence import repository as fence
    from app.fence.marks import Kept
    from app.tables.runs import Run, RunSweepCell

    with service.context.database.write() as session:
        session.execute(delete(Run))
        session.execute(delete(RunSweepCell))
        session.execute(update(RunSweep).values(best_run_id=None))
        session.execute(delete(RunSweep))
    with service.context.database.read() as session:
        connection = session.connection()
        life = fence.newest_life(connection)
        assert life is not None
        # The runs that are gone are in the fence, which would refuse a database without them.
        kept = Kept(fence.ledger_id(connection), life[1], fence.heads(connection))
    fence_of(service.context).renew(kept)


def test_nothing_is_released_before_its_time_and_one_thing_after(service, draws):
    draws.trials = 2
    sweep = service.private_sweep(**BEST | {"trials": FEW, "release_after_s": 600})
    assert service.work_all() == 3
    assert service.counted(sweep) == [True, True, False]
    progression.advance_all(service.later(500))
    held = service.sweep(sweep)
    assert (held["state"], held["best"], held["finished_at"]) == ("running", None, None)
    assert service.kinds(sweep) == ["reserve", "start"]
    assert service.get("/v1/runs")["items"] == []
    progression.advance_all(service.later(700))
    ended = service.sweep(sweep)
    assert (ended["state"], service.kinds(sweep)) == ("succeeded", ["reserve", "start", "commit"])
    assert service.client.get(f"/v1/runs/{ended['best']['run_id']}/model").status_code == 200


def test_the_time_in_the_queue_hides_nothing_and_does_not_count(service, draws):
    draws.trials = 2
    sweep = service.private_sweep(**BEST | {"trials": FEW, "release_after_s": 600})
    late = service.later(1000)
    while worker.work_once(late, "wrk_test"):
        pass
    progression.advance_all(service.later(1500))
    assert (service.sweep(sweep)["state"], service.kinds(sweep)) == ("running", ["reserve", "start"])
    progression.advance_all(service.later(1700))
    assert service.sweep(sweep)["state"] == "succeeded"


@on_one_engine
def test_the_supervisor_releases_what_is_due(service, draws):
    sweep = service.paid(**BEST | {"trials": FEW, "release_after_s": 600})
    assert service.work_all() == 3
    late = service.later(700).clock()
    is_late = threading.Event()
    now = service.context.clock
    context = fenced_context(
        service.context.settings, service.context.database, lambda: late if is_late.is_set() else now()
    )
    supervisor = Supervisor(context, 0, lease_s=0.6)
    supervisor.start()
    try:
        assert service.sweep(sweep)["state"] == "running"
        is_late.set()
        deadline = time.monotonic() + 30
        while service.sweep(sweep)["state"] == "running" and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        supervisor.stop()
    assert service.sweep(sweep)["state"] == "succeeded"


@pytest.mark.parametrize("trials", [1, 3])
def test_trials_that_are_not_done_in_time_are_waited_for_whatever_number_was_drawn(service, draws, trials):
    draws.trials = trials
    sweep = service.private_sweep(**BEST | {"trials": FEW, "release_after_s": 600})
    service.work()
    progression.advance_all(service.later(700))
    late = service.later(700)
    for _ in range(2):
        assert service.sweep(sweep)["state"] == "running"
        assert worker.work_once(late, "wrk_test")
    assert service.sweep(sweep)["state"] == "succeeded"
    assert not worker.work_once(late, "wrk_test")


@on_one_engine
def test_a_private_sweep_ends_no_earlier_than_all_its_trials_would(service, draws):
    """Each trial takes as long as the longest cell, so that neither the number nor the cells show in the time."""
    draws.trials, draws.cells = 1, [0, 1, 0]
    executor = PacedExecutor(Pace(reading_s=0.1, preparing_s=0.1, step_s=0.01, scoring_s=0.1))
    sweep = service.private_sweep(
        **BEST | {"trials": FEW, "release_after_s": 3, "iterations": [2, 20], "hyperparameters": {"step_size": 0.5}}
    )
    while worker.work_once(service.context, "wrk_test", executor=executor):
        pass
    trials = service.runs_of(sweep)
    [stored] = {json.dumps(trial.schedule) for trial in trials}
    schedule = Schedule.from_json(json.loads(stored))
    assert (len(trials), schedule.steps) == (3, 20)
    assert {trial.steps_total for trial in trials} == {2, 20}
    told = service.sweep(sweep)
    started, release = (datetime.fromisoformat(told[name]) for name in ("started_at", "release_at"))
    assert (release - started).total_seconds() == max(3, math.ceil(3 * schedule.bound_s()))
    progression.advance_all(service.later(100))
    ended = service.sweep(sweep)
    best = service.get(f"/v1/runs/{ended['best']['run_id']}")
    assert best["release_at"] == ended["release_at"]


@on_one_engine
def test_spare_trials_are_never_the_best_and_end_with_the_time(service, draws, monkeypatch):
    draws.trials, draws.cells = 1, [0, 1, 2]
    scores = iter([0.5, 0.75, 1.0])
    summarize = worker.summarize

    def scored(job, result, score_key, device):
        summary = summarize(job, result, score_key, device)
        summary["metrics"][0]["accuracy"] = next(scores)
        return summary

    monkeypatch.setattr(worker, "summarize", scored)
    sweep = service.paid(**BEST | {"release_after_s": 600})
    service.work()
    service.work()
    late = service.later(700)
    assert worker.work_once(late, "wrk_test")
    assert not worker.work_once(late, "wrk_test"), "its time has come: no further one is made"
    ended = service.sweep(sweep)
    assert (ended["state"], ended["best"]["values"]) == ("succeeded", [STEP_SIZES[0]])
    assert service.counted(sweep) == [True, False, False]
    assert len(models(service)) == 1


@on_one_engine
def test_trials_do_not_wait_behind_all_runs_of_their_budget(service, draws):
    draws.trials = 2
    sweep = service.paid(**BEST)
    others = [service.queued(dataset_id="ds_breast_cancer", budget_id=sweep["budget_id"], iterations=2) for _ in "abc"]
    with service.context.database.write() as session:
        older = service.context.clock() - timedelta(hours=1)
        session.execute(update(Run).where(Run.id.in_([run["id"] for run in others])).values(created_at=older))
    for _ in range(4):
        service.work()
    assert service.sweep(sweep)["state"] == "succeeded"
    assert [service.get(f"/v1/runs/{run['id']}")["state"] for run in others].count("queued") == 1


@on_one_engine
def test_private_data_need_a_time_to_release_at(service):
    budget = service.budget()
    private = service.dataset(budget_id=budget["id"])
    asked = BEST | {"dataset_id": private["id"], "budget_id": budget["id"]}
    without_scores = service.ask(**asked, release_after_s=60)
    assert_problem(without_scores, 422, "missing", "/test_dataset_id")
    refused = service.ask(**asked | {"score": {"kind": "noisy", "noise_multiplier": 5}})
    assert_problem(refused, 422, "missing", "/release_after_s")
    assert "99.9% of sweeps with this law make at most 18" in refused.json()["detail"]
    # Eighteen private runs take eighteen seconds at least: an end after fewer would tell their number.
    noisy = asked | {"score": {"kind": "noisy", "noise_multiplier": 5}}
    for seconds in (0, 17):
        too_soon = service.ask(**noisy, release_after_s=seconds)
        assert_problem(too_soon, 422, "out_of_range", "/release_after_s")
        assert "at least 18 s" in too_soon.json()["detail"]
    assert service.get("/v1/run-sweeps")["items"] == []


@pytest.mark.parametrize(
    ("law", "trials"),
    [
        ({"kind": "geometric", "expected_trials": 3}, TruncatedNegativeBinomial(1, 1 / 3)),
        ({"kind": "poisson", "expected_trials": 5}, PoissonTrials(5)),
    ],
    ids=["geometric", "poisson"],
)
@on_one_engine
def test_the_charge_is_that_of_the_selection(service, law, trials):
    sweep = service.paid(**BEST | {"trials": law})
    plan = service.runs_of(sweep)[0]
    events = lifecycle.read_plan(plan).events
    orders = service.get(f"/v1/budgets/{sweep['budget_id']}")["filter"]["orders"]
    expected = tuning_cost(events, NeighboringRelation.ADD_OR_REMOVE_ONE, trials, 1e-5, orders=orders)
    stated = sweep["guarantee"]["epsilon"]["upper"]
    assert 0.0 <= stated - expected.epsilon.value.upper < 1e-6
    reservation = service.get(f"/v1/reservations/{sweep['reservation_id']}")
    [event] = reservation["events"]
    assert (event["mechanism"]["kind"], event["count"]) == ("renyi_dp", 1)
    assert event["mechanism"]["orders"] == orders
    for charged, needed in zip(event["mechanism"]["epsilons"], expected.moments.epsilons, strict=True):
        assert 0.0 < charged - needed < 1e-6
    assert sweep["trials"]["expected_trials"] == pytest.approx(law["expected_trials"])


@on_one_engine
def test_a_noisy_score_is_charged_with_each_trial(service, draws):
    draws.trials = 2
    plain = service.paid(**BEST)
    noisy = service.paid(**BEST | {"score": {"kind": "noisy", "noise_multiplier": 2.0}})
    assert noisy["guarantee"]["epsilon"]["upper"] > plain["guarantee"]["epsilon"]["upper"] + 0.05
    events = (*lifecycle.read_plan(service.runs_of(noisy)[0]).events, Event(Gaussian(2.0)))
    law = TruncatedNegativeBinomial(1, 1 / 3)
    expected = tuning_cost(events, NeighboringRelation.ADD_OR_REMOVE_ONE, law, 1e-5)
    assert 0.0 <= noisy["guarantee"]["epsilon"]["upper"] - expected.epsilon.value.upper < 1e-3
    service.work_all()
    best = service.sweep(noisy)["best"]
    accuracy = best["metrics"][0]["accuracy"]
    assert 0.0 < abs(best["noisy_score"] - accuracy) < 6 * 2.0 / 569


@on_one_engine
def test_other_budgets_have_their_own_price_or_none(service):
    deltas = {"kind": "approximate_dp", "epsilon": 20, "delta": 1e-4}
    sweep = service.swept(**BEST, budget_id=service.budget(filter=deltas)["id"])
    [event] = service.get(f"/v1/reservations/{sweep['reservation_id']}")["events"]
    assert event["mechanism"] == {
        "kind": "approximate_dp",
        "epsilon": sweep["guarantee"]["epsilon"]["upper"],
        "delta": 1e-5,
    }
    for other in ({"kind": "zcdp", "rho": 5}, {"kind": "gaussian_dp", "mu": 5}):
        assert_problem(service.ask(**BEST, budget_id=service.budget(filter=other)["id"]), 422, "no_cost_in_filter")
    pure = service.budget(filter={"kind": "pure_dp", "epsilon": 20})
    assert_problem(service.ask(**BEST, budget_id=pure["id"]), 422, "no_cost_in_filter", "/target/kind")


def test_a_trial_whose_worker_is_lost_goes_on_and_counts_once(service, draws):
    draws.trials = 3
    sweep = service.paid(**BEST | {"iterations": 20})
    assert worker.work_once(service.context, "wrk_first", stopping_after(7))
    assert worker.work_once(service.context, "wrk_second", stopping_after(9))
    claimed = lifecycle.claim(service.context, "wrk_gone")
    assert lifecycle.give_up_runs_of(service.context, "wrk_gone") == 1
    assert claimed.id == service.runs_of(sweep)[0].id
    service.work_all()
    rows = service.runs_of(sweep)
    assert len(rows) == 3
    assert len({row.stream_id for row in rows}) == 3
    assert service.sweep(sweep)["state"] == "succeeded"
    assert service.kinds(sweep) == ["reserve", "start", "commit"]


@on_one_engine
def test_a_sweep_that_cannot_go_on_stands_in_nobodys_way(service, draws, monkeypatch):
    """A file that cannot be removed is one sweep's trouble: not its worker's, the supervisor's, or another sweep's."""
    stuck, other = sorted((service.paid(**BEST) for _ in range(2)), key=lambda sweep: sweep["id"])
    settle = progression._settle

    def cannot(session, context, sweep, *rest, **more):
        if sweep.id == stuck["id"]:
            raise PermissionError("the folder of models is read only")
        settle(session, context, sweep, *rest, **more)

    monkeypatch.setattr(progression, "_settle", cannot)
    assert service.work_all() == 2
    progression.advance_all(service.context)
    assert [service.sweep(each)["state"] for each in (stuck, other)] == ["running", "succeeded"]
    monkeypatch.setattr(progression, "_settle", settle)
    progression.advance_all(service.context)
    assert (service.sweep(stuck)["state"], service.kinds(stuck)) == ("succeeded", ["reserve", "start", "commit"])


@on_one_engine
@pytest.mark.parametrize("asked", [BEST, {}], ids=["best", "all"])
def test_a_charge_that_is_lowered_is_not_entered_and_releases_nothing(service, draws, monkeypatch, asked):
    """What is held stays held, and the sweep goes on once the row says again what was entered."""
    sweep, database = service.paid(**asked), service.context.database
    with monkeypatch.context() as patch:
        patch.setattr(lifecycle, "advance", lambda *_: None)
        service.work_all()
    with database.read() as session:
        entered = session.execute(select(RESERVATIONS.c.cost)).scalar_one()
    of_it = update(RESERVATIONS).where(RESERVATIONS.c.id == sweep["reservation_id"])
    with attacks.attack(database) as connection:
        connection.execute(of_it.values(cost=tuple(amount // 2 for amount in entered)))
    progression.advance_all(service.context)
    assert (service.sweep(sweep)["state"], service.kinds(sweep)) == ("running", ["reserve", "start"])
    if asked:
        assert models(service), "they are kept"
        assert all(".withheld" in name for name in models(service))
    with attacks.attack(database) as connection:
        connection.execute(of_it.values(cost=entered))
    progression.advance_all(service.context)
    assert (service.sweep(sweep)["state"], service.kinds(sweep)) == ("succeeded", ["reserve", "start", "commit"])


@on_one_engine
def test_a_hold_that_ran_out_ends_it_without_a_charge(service, draws):
    draws.trials = 3
    sweep = service.paid(**BEST | {"release_after_s": 100})
    assert worker.work_once(service.later(QUEUE_HOLD_S + 1), "wrk_test")
    ended = service.sweep(sweep)
    assert (ended["state"], ended["best"]) == ("failed", None)
    assert len(service.runs_of(sweep)) == 1
    assert service.get(f"/v1/budgets/{sweep['budget_id']}")["amounts"]["spent"]["epsilon"] == 0.0


@on_one_engine
def test_cancelled_in_the_queue_it_costs_nothing(service):
    sweep = service.paid(**BEST | {"release_after_s": 1000})
    cancelled = service.post(f"/v1/run-sweeps/{sweep['id']}/cancel").json()
    assert (cancelled["state"], service.kinds(sweep)) == ("cancelled", ["reserve", "void"])


@on_one_engine
def test_cancelled_between_trials_it_makes_no_more(service, draws):
    draws.trials = 5
    sweep = service.paid(**BEST)
    service.work()
    assert service.post(f"/v1/run-sweeps/{sweep['id']}/cancel").status_code == 200
    assert service.work_all() == 0
    ended = service.sweep(sweep)
    assert (ended["state"], ended["best"]) == ("cancelled", None)
    assert service.kinds(sweep) == ["reserve", "start", "commit"]
    assert models(service) == []


@on_one_engine
def test_trials_do_not_fill_the_queue_of_a_key(service, draws):
    settings = service.context.settings.model_copy(update={"queued_runs_per_key": 2})
    object.__setattr__(service.context, "settings", settings)
    draws.trials = 3
    service.swept(**BEST)
    service.work()  # the next trial waits now
    service.queued(dataset_id="ds_breast_cancer")
    assert_problem(service.ask(**BEST), 429, "queue_full")


@on_one_engine
def test_the_card_has_the_guarantee_of_the_selection(service, draws):
    draws.trials = 2
    sweep = service.paid(**BEST)
    service.work_all()
    run = service.sweep(sweep)["best"]["run_id"]
    card = service.get(f"/v1/runs/{run}/report")
    assert card["achieved"] == sweep["guarantee"]
    assert card["sweep"]["trials"]["gamma"] == pytest.approx(1 / 3)
    assert "Papernot" in card["sweep"]["theorem"]
    assert "(1, 0.00001)" not in card["statement"]
    assert "secret number of trials" in card["statement"]


def test_no_column_tells_a_reader_of_the_database_which_trials_count(service, draws):
    """Sweeps that make three trials each, of which none, one and three count, differ in nothing that is stored."""
    seen = []
    for trials in (0, 1, 3):
        draws.trials, draws.cells = trials, [0, 1, 2]
        sweep = service.paid(**BEST | {"trials": FEW, "release_after_s": 1000})
        assert service.work_all() == 3
        assert service.counted(sweep).count(True) == trials
        with service.context.database.read() as session:
            row = session.get_one(RunSweep, sweep["id"])
        # Ids, what holds an id, times, and what training gave.
        own = {"id", "sweep_id", "budget_id", "reservation_id", "request", "cells_hash", "stream_id", "result"}
        own |= {"created_at", "started_at", "finished_at", "release_at"}
        runs = sorted(service.runs_of(sweep), key=lambda each: each.sweep_cell)
        stored = [
            {name: value for name, value in vars(each).items() if name not in own and name[0] != "_"}
            for each in (row, *runs)
        ]
        seen.append(json.dumps(stored, default=str, sort_keys=True))
    assert len(set(seen)) == 1, seen


@on_one_engine
def test_another_process_finds_the_same_trials(service):
    """Nothing of them is stored; a secret of the server and the id of the sweep make them."""
    sweep = service.paid(**BEST)
    first, again = (service.trials(sweep) for _ in range(2))
    assert (first.drawn, first.id_of(0), first.cell_of(0)) == (again.drawn, again.id_of(0), again.cell_of(0))
    assert [row.id for row in service.runs_of(sweep)] == [first.id_of(0)]
    service.work_all()
    assert {row.id: row.sweep_cell for row in service.runs_of(sweep)} == {
        first.id_of(number): first.cell_of(number) for number in range(first.most)
    }


@on_one_engine
def test_a_budget_of_the_default_kind_prices_the_moments_of_the_selection(service, draws):
    draws.trials = 2
    budget = service.budget(filter={"epsilon": 20, "delta": 1e-5})
    body = service.request(**BEST, budget_id=budget["id"])
    price = service.client.post("/v1/run-sweeps?dry_run=true", json=body).json()["price"]
    assert price["charged"] > price["kinds"]["renyi_dp"] > price["tight"]["upper"], "and says where it costs less"
    sweep = service.swept(**BEST, budget_id=budget["id"])
    [event] = service.get(f"/v1/reservations/{sweep['reservation_id']}")["events"]
    assert event["mechanism"]["kind"] == "renyi_dp"
    tight, use = sweep["guarantee"]["epsilon"]["upper"], service.get(f"/v1/budgets/{budget['id']}")["epsilon"]
    assert 0 < tight <= use["reserved"] < use["limit"]
    service.work_all()
    use = service.get(f"/v1/budgets/{budget['id']}")["epsilon"]
    assert (use["spent"] > 0, use["reserved"]) == (True, 0)
