"""Sweeps that release every run: one charge, nothing lost, nothing charged twice."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from accounting.accountant import epsilon_for_delta
from accounting.events import Event, Gaussian
from accounting.relations import NeighboringRelation
from app.auth.principal import Scope
from app.runs import failures, lifecycle, worker
from app.runs.preparation import QUEUE_HOLD_S
from app.tables.runs import Run
from tests.app.problem_assertions import assert_problem
from tests.app.run_sweeps.conftest import STEP_SIZES, TEST_ROWS
from tests.app.runs.conftest import HEADER
from tests.app.runs.interrupted import stopping_after
from tests.databases import on_one_engine


def test_a_grid_is_run_cell_by_cell_under_one_charge(service):
    sweep = service.paid()
    assert (sweep["state"], sweep["shape"], len(sweep["cells"])) == ("queued", [3], 3)
    assert service.work_all() == 3
    ended = service.sweep(sweep)
    assert ended["state"] == "succeeded"
    assert [cell["values"] for cell in ended["cells"]] == [[each] for each in STEP_SIZES]
    assert service.kinds(sweep) == ["reserve", "start", "commit"]
    budget = service.get(f"/v1/budgets/{sweep['budget_id']}")
    assert budget["amounts"]["spent"] == ended["charge"]
    for cell in ended["cells"]:
        run = service.get(f"/v1/runs/{cell['run_id']}")
        assert (run["state"], run["sweep_id"], run["reservation_id"]) == (
            "succeeded",
            sweep["id"],
            sweep["reservation_id"],
        )
        assert run["charge"] == ended["charge"]
        assert run["plan_hash"] == cell["plan_hash"]
        assert cell["metrics"][0]["accuracy"] > 0.3
        assert service.client.get(f"/v1/runs/{run['id']}/model").status_code == 200
    listed = service.get("/v1/runs")["items"]
    assert {run["id"] for run in listed} == {cell["run_id"] for cell in ended["cells"]}
    assert [each["id"] for each in service.get("/v1/run-sweeps")["items"]] == [sweep["id"]]


def test_the_charge_is_that_of_all_events_together(service):
    sweep = service.paid()
    reservation = service.get(f"/v1/reservations/{sweep['reservation_id']}")
    [event] = reservation["events"]
    assert event["count"] == 3 * 2
    assert (reservation["plan_hash"], reservation["run_id"]) == (sweep["sweep_hash"], sweep["id"])
    noise = event["mechanism"]["noise_multiplier"]
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    expected = epsilon_for_delta([Event(Gaussian(noise), count=6)], relation, 1e-5).value.upper
    assert sweep["guarantee"]["epsilon"]["upper"] == pytest.approx(expected, rel=1e-12)
    assert sweep["guarantee"]["delta"] == 1e-5
    alone = sweep["cells"][0]["achieved"]["epsilon"]["upper"]
    assert alone <= 1.0 < expected


def test_a_budget_without_room_denies_the_whole_sweep(service):
    budget = service.budget()  # which one run fits
    assert service.run(dataset_id="ds_breast_cancer", budget_id=budget["id"], iterations=2).status_code == 202
    refused = service.ask(budget_id=budget["id"])
    assert_problem(refused, 409, "budget_exceeded")
    assert {"cost", "remaining", "decided_at"} <= set(refused.json())
    assert len(service.get("/v1/runs")["items"]) == 1
    assert service.get("/v1/run-sweeps")["items"] == []


def test_a_repeated_request_is_answered_and_charged_once(service):
    budget = service.budget(filter={"kind": "renyi_dp", "epsilon": 20, "delta": 1e-5})
    body = service.request(budget_id=budget["id"])
    first = service.post("/v1/run-sweeps", body, key="once")
    again = service.post("/v1/run-sweeps", body, key="once")
    assert (first.status_code, again.status_code, again.headers["Idempotency-Replayed"]) == (202, 202, "true")
    assert first.json() == again.json()
    assert len(service.get("/v1/runs")["items"]) == 3
    assert service.kinds(first.json()) == ["reserve"]


def test_runs_that_were_never_started_lower_the_charge(service):
    sweep = service.paid()
    service.work()
    rest = [cell["run_id"] for cell in service.sweep(sweep)["cells"] if cell["state"] == "queued"]
    assert len(rest) == 2
    for run_id in rest:
        assert service.sweep(sweep)["state"] == "running"
        assert service.post(f"/v1/runs/{run_id}/cancel").json()["state"] == "cancelled"
    assert service.sweep(sweep)["state"] == "succeeded"
    assert service.kinds(sweep) == ["reserve", "start", "commit"]
    reservation = service.get(f"/v1/reservations/{sweep['reservation_id']}")
    assert [event["count"] for event in reservation["charged_events"]] == [2]
    spent, cost = reservation["charged"], reservation["cost"]
    assert 0.3 < spent["epsilons"][0] / cost["epsilons"][0] < 0.34


def test_a_cancelled_sweep_that_was_never_started_gives_its_hold_back(service):
    sweep = service.paid()
    cancelled = service.post(f"/v1/run-sweeps/{sweep['id']}/cancel").json()
    assert (cancelled["state"], {cell["state"] for cell in cancelled["cells"]}) == ("cancelled", {"cancelled"})
    assert service.kinds(sweep) == ["reserve", "void"]
    assert not service.work_all()
    assert_problem(service.post(f"/v1/run-sweeps/{sweep['id']}/cancel"), 409, "run_sweep_has_ended")


@on_one_engine
def test_a_sweep_is_cancelled_by_whoever_made_it_or_by_an_owner(service):
    sweep = service.paid()
    path = f"/v1/run-sweeps/{sweep['id']}/cancel"
    stranger, owner = service.with_key(Scope.ANALYST), service.with_key(Scope.OWNER)
    assert_problem(stranger.post(path), 403, "not_your_run")
    (run, *_) = [cell["run_id"] for cell in stranger.get(f"/v1/run-sweeps/{sweep['id']}")["cells"]]
    assert_problem(stranger.post(f"/v1/runs/{run}/cancel"), 403, "not_your_run")
    assert owner.post(path).json()["state"] == "cancelled"


@on_one_engine
def test_a_cancelled_sweep_waits_for_the_workers_that_have_its_runs(service):
    sweep = service.paid()
    assert lifecycle.claim(service.context, "wrk_slow")
    cancelled = service.post(f"/v1/run-sweeps/{sweep['id']}/cancel").json()
    assert (cancelled["state"], sorted(cell["state"] for cell in cancelled["cells"])) == (
        "cancelling",
        ["cancelled", "cancelled", "cancelling"],
    )
    assert service.kinds(sweep) == ["reserve"]
    assert lifecycle.give_up_runs_of(service.context, "wrk_slow") == 1
    assert (service.sweep(sweep)["state"], service.kinds(sweep)) == ("cancelled", ["reserve", "void"])


@on_one_engine
def test_a_dry_run_releases_no_hold_that_is_due(service):
    """What would fit once it is released is said all the same, and nothing is written."""
    sweep = service.paid(epsilon=3.0)
    body = service.request(budget_id=sweep["budget_id"])
    full = service.client.post("/v1/run-sweeps?dry_run=true", json=body)
    assert_problem(full, 409, "budget_exceeded")
    object.__setattr__(service.context, "clock", service.later(QUEUE_HOLD_S + 1).clock)
    assert service.client.post("/v1/run-sweeps?dry_run=true", json=body).status_code == 200
    assert service.kinds(sweep) == ["reserve"]


@on_one_engine
def test_private_data_are_charged_to_their_own_budget_alone(service):
    own, other = service.budget(), service.budget()
    private = service.dataset(budget_id=own["id"])
    body = service.request(dataset_id=private["id"], budget_id=other["id"])
    for asked in (service.post("/v1/run-sweeps", body), service.client.post("/v1/run-sweeps?dry_run=true", json=body)):
        assert_problem(asked, 409, "budget_not_bound")
    assert_problem(service.ask(dataset_id=private["id"]), 422, "missing", "/budget_id")
    assert service.get("/v1/runs")["items"] == []


@on_one_engine
def test_a_sweep_that_waited_too_long_fails_without_a_charge(service):
    sweep = service.paid()
    late = service.later(QUEUE_HOLD_S + 1)
    while worker.work_once(late, "wrk_test"):
        pass
    ended = service.sweep(sweep)
    assert ended["state"] == "failed"
    assert {cell["problem"]["code"] for cell in ended["cells"]} == {"reservation_lost"}
    assert "charged" not in ended["cells"][0]["problem"]["detail"]
    assert service.get(f"/v1/budgets/{sweep['budget_id']}")["amounts"]["spent"]["epsilon"] == 0.0


def test_a_sweep_whose_worker_is_lost_goes_on_with_the_same_noise(service):
    seeds = {"seed": 7, "iterations": 20}
    undisturbed = service.swept(**seeds)
    service.work_all()
    models = [service.model({"id": cell["run_id"]})["parameters"] for cell in service.sweep(undisturbed)["cells"]]
    sweep = service.paid(**seeds)
    for steps in (7, 3, 11):
        assert worker.work_once(service.context, "wrk_first", stopping_after(steps))
    assert service.sweep(sweep)["state"] == "running"
    service.work_all()
    ended = service.sweep(sweep)
    assert [service.model({"id": cell["run_id"]})["parameters"] for cell in ended["cells"]] == models
    assert service.kinds(sweep) == ["reserve", "start", "commit"]


@on_one_engine
def test_a_run_of_a_sweep_is_one_stream(service):
    sweep = service.paid()
    claimed = lifecycle.claim(service.context, "wrk_gone")
    plan = lifecycle.read_plan(claimed)
    lifecycle.start(service.context, claimed, plan, "stream")
    lifecycle.start(service.context, claimed, plan, "stream")  # its answer was lost
    with pytest.raises(failures.RefusedError, match="worker_lost"):
        lifecycle.start(service.context, claimed, plan, "other")
    # Without a checkpoint it cannot go on; the others can be started still.
    assert lifecycle.give_up_runs_of(service.context, "wrk_gone") == 1
    assert service.work_all() == 2
    ended = service.sweep(sweep)
    assert sorted(cell["state"] for cell in ended["cells"]) == ["failed", "succeeded", "succeeded"]
    assert service.kinds(sweep) == ["reserve", "start", "commit"]
    assert service.get(f"/v1/reservations/{sweep['reservation_id']}")["charged_events"][0]["count"] == 6


@on_one_engine
@pytest.mark.parametrize("what", ["plan", "score", "cell", "events"])
def test_a_run_that_is_not_what_was_charged_is_refused(service, what):
    from app.tables.ledger import Reservation
    from app.tables.runs import RunSweepCell

    sweep = service.paid(hyperparameters={"step_size": [0.5]}, iterations=[2, 3])
    with service.context.database.write() as session:
        first, second = sorted(service.runs_of(sweep), key=lambda run: run.sweep_cell)
        if what == "plan":  # another plan of the same sweep
            session.execute(update(Run).where(Run.id == first.id).values(plan=second.plan, plan_hash=second.plan_hash))
        elif what == "score":  # which nobody is charged for
            session.execute(update(Run).where(Run.id == first.id).values(score_noise_multiplier=1e-6))
        elif what == "cell":
            session.execute(update(RunSweepCell).values(plan_hash="0" * 64))
        else:
            reservation = session.get_one(Reservation, sweep["reservation_id"])
            reservation.events = reservation.events[:1]
    service.work_all()
    states = [cell["problem"] and cell["problem"]["code"] for cell in service.sweep(sweep)["cells"]]
    # The register says what a run and its sweep are, and entries what is charged.
    both = ["declaration_altered"] * 2
    assert states == (both if what in ("cell", "events") else ["declaration_altered", None])


@on_one_engine
def test_a_step_that_was_lost_with_its_process_is_made_up_for(service, monkeypatch):
    from app.runs import sweep_progression as progression

    sweep = service.paid()
    advance = lifecycle.advance
    monkeypatch.setattr(lifecycle, "advance", lambda *_: None)
    service.work_all()
    assert service.sweep(sweep)["state"] == "running"
    assert service.kinds(sweep) == ["reserve", "start"]
    monkeypatch.setattr(lifecycle, "advance", advance)
    progression.advance_all(service.context)
    progression.advance_all(service.context)
    assert service.sweep(sweep)["state"] == "succeeded"
    assert service.kinds(sweep) == ["reserve", "start", "commit"]


@on_one_engine
def test_more_cells_than_may_wait_are_429(service):
    settings = service.context.settings.model_copy(update={"queued_runs_per_key": 2})
    object.__setattr__(service.context, "settings", settings)
    assert_problem(service.ask(), 429, "queue_full")
    assert service.get("/v1/runs")["items"] == []
    service.swept(hyperparameters={"step_size": [0.5, 1.0]})


def test_the_card_of_a_run_says_what_all_of_them_cost(service):
    sweep = service.paid()
    service.work_all()
    run = service.sweep(sweep)["cells"][0]["run_id"]
    card = service.get(f"/v1/runs/{run}/report")
    upper = sweep["guarantee"]["epsilon"]["upper"]
    assert "It is one of 3 runs" in card["statement"]
    assert f"together they are ({upper:.3f}"[:-2] in card["statement"]
    assert (card["sweep"]["id"], card["sweep"]["select"]) == (sweep["id"], "all")
    assert card["ledger"]["reservation_state"] == "committed"
    for media_type in ("text/markdown", "text/html"):
        page = service.client.get(f"/v1/runs/{run}/report", headers={"Accept": media_type}).text
        assert sweep["id"] in page


@on_one_engine
def test_a_budget_of_epsilon_and_delta_prices_all_at_the_cells_delta(service):
    budget = service.budget(filter={"kind": "approximate_dp", "epsilon": 20, "delta": 1e-4})
    asked = service.request(budget_id=budget["id"], target={"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6})
    quoted = service.post("/v1/run-sweeps?dry_run=true", asked).json()
    sweep = service.swept(**asked)
    assert quoted["cost"] == sweep["charge"]
    assert sweep["charge"]["delta"] == 1e-6
    assert sweep["charge"]["epsilon"] == pytest.approx(sweep["guarantee"]["epsilon"]["upper"], abs=1e-8)
    assert_problem(
        service.ask(budget_id=budget["id"], target={"kind": "zcdp", "rho": 0.1}),
        422,
        "missing_charge_delta",
        "/target/kind",
    )
    deltas = {"kind": "approximate_dp", "epsilon": 1, "delta": [1e-7, 1e-6]}
    of_two_deltas = service.swept(budget_id=budget["id"], target=deltas, hyperparameters={"step_size": 1})
    assert of_two_deltas["charge"]["delta"] == 1e-6


@on_one_engine
def test_batches_cut_from_all_slots_are_planned_charged_and_drawn_in_every_cell(service):
    """Where the number of records is private, slots are what is truncated: the charge is that of all of them."""
    rows = HEADER + "".join(f"{i % 9},0.25,red,{'yes' if i % 2 else 'no'}\n" for i in range(40))
    budget = service.budget(filter={"kind": "approximate_gaussian_dp", "epsilon": 30, "delta": 1e-4})
    private = service.dataset(rows, budget_id=budget["id"], declared_size=40)
    public = service.dataset(TEST_ROWS, public=True, declared_size=10, name="test")
    sweep = service.swept(
        dataset_id=private["id"],
        test_dataset_id=public["id"],
        budget_id=budget["id"],
        sampling={"kind": "truncated_poisson", "max_batch_size": 16},
        batch_size=10,
        iterations=20,
    )
    reservation = service.get(f"/v1/reservations/{sweep['reservation_id']}")
    [event] = reservation["events"]
    drawn = event["sampling"]
    assert (drawn["kind"], drawn["truncation"], drawn["max_batch_size"]) == ("truncated_poisson", "random_slots", 16)
    assert drawn["dataset_size"] > 40, "slots, of which there are more than records"
    assert event["count"] == 3 * 20
    asked = {"events": [event], "delta": sweep["guarantee"]["delta"], "neighboring_relation": "add_or_remove_one"}
    account = service.post("/v1/account", asked).json()
    assert sweep["guarantee"]["epsilon"]["upper"] == pytest.approx(account["epsilon"]["upper"], rel=1e-9)

    assert service.work_all() == 3
    ended = service.sweep(sweep)
    assert ended["state"] == "succeeded"
    assert service.kinds(sweep) == ["reserve", "start", "commit"]
    spent = service.get(f"/v1/budgets/{budget['id']}")["amounts"]["spent"]
    assert spent == ended["charge"]
    for cell in ended["cells"]:
        run = service.get(f"/v1/runs/{cell['run_id']}")
        assert (run["state"], run["plan_hash"]) == ("succeeded", cell["plan_hash"])
        assert service.client.get(f"/v1/runs/{run['id']}/model").status_code == 200
