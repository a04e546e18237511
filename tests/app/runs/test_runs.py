"""`/v1/runs` over the whole application; the worker's loop is called in this process, one run at a time."""

from __future__ import annotations

import io
import json
import secrets
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from sqlalchemy import update
from starlette.testclient import TestClient

from app.budgets.models import Reservation
from app.datasets import service as datasets
from app.kit.context import Context
from app.runs import service as runs
from app.runs import worker
from app.runs.artifacts import model_path
from app.runs.examples import RUN_EXAMPLES
from app.runs.models import Run
from app.runs.service import QUEUE_HOLD_S
from tests.app.problem_assertions import assert_problem

COLUMNS = [
    {"name": "a", "type": "number", "lower": 0, "upper": 10},
    {"name": "b", "type": "number", "lower": -1, "upper": 1},
    {"name": "color", "type": "category", "categories": ["red", "green"]},
    {"name": "y", "type": "category", "categories": ["no", "yes"]},
]
HEADER = "a,b,color,y\n"
ROWS = HEADER + "1,0.5,red,no\n9,-0.5,green,yes\n2,0.25,red,no\n8,0,green,yes\n"

#: Full batches are calibrated in closed form, so a request takes milliseconds.
REQUEST: dict[str, Any] = {
    "algorithm": "dp_sgd",
    "model": {"kind": "logistic_regression"},
    "iterations": 20,
    "sampling": "full_batch",
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
    "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5},
    "hyperparameters": {"step_size": 0.5},
}


class Service:
    """The client of one test, with the steps that most of them begin with."""

    def __init__(self, client: TestClient, context: Context) -> None:
        self.client = client
        self.context = context

    def post(self, path: str, body: object | None = None, key: str | None = None) -> Any:
        return self.client.post(path, json=body, headers={"Idempotency-Key": key or secrets.token_hex(8)})

    def get(self, path: str) -> Any:
        return self.client.get(path).json()

    def budget(self, **changes: Any) -> dict[str, Any]:
        body = {
            "name": "b",
            "neighboring_relation": "add_or_remove_one",
            "filter": {"kind": "renyi_dp", "epsilon": 1.6, "delta": 1e-5},
        }
        answer = self.post("/v1/budgets", body | changes)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def dataset(self, rows: str = ROWS, **more: Any) -> dict[str, Any]:
        metadata = {"name": "d", "declared_size": 1000, "columns": COLUMNS, "label": "y"} | more
        answer = self.client.post(
            "/v1/datasets",
            files={"file": ("d.csv", rows.encode(), "text/csv")},
            data={"metadata": json.dumps(metadata)},
            headers={"Idempotency-Key": secrets.token_hex(8)},
        )
        assert answer.status_code == 201, answer.text
        return answer.json()

    def run(self, **changes: Any) -> Any:
        body = {key: value for key, value in (REQUEST | changes).items() if value is not ...}
        return self.post("/v1/runs", body)

    def queued(self, **changes: Any) -> dict[str, Any]:
        answer = self.run(**changes)
        assert answer.status_code == 202, answer.text
        return answer.json()

    def private(self, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """A budget, and a queued run on private data that it pays for."""
        budget = self.budget()
        dataset = self.dataset(budget_id=budget["id"])
        return budget, self.queued(dataset_id=dataset["id"], budget_id=budget["id"], **changes)

    def work(self) -> None:
        assert worker.work_once(self.context, "host/1/test")


@pytest.fixture
def service(client: TestClient, context: Context) -> Service:
    return Service(client, context)


def test_a_private_run_is_reserved_started_executed_and_committed(service):
    budget, run = service.private()
    assert run["state"] == "queued"
    reservation = f"/v1/reservations/{run['reservation_id']}"
    assert service.get(reservation)["state"] == "pending"
    service.work()
    done = service.get(f"/v1/runs/{run['id']}")
    assert done["state"] == "succeeded", done
    assert done["progress"] == {"done": 20, "total": 20, "unit": "steps"}
    assert done["result"]["metrics"] == [], "private rows are never scored"
    assert service.get(reservation)["state"] == "committed"
    assert service.get(f"/v1/budgets/{budget['id']}")["reserved"] != service.get(f"/v1/budgets/{budget['id']}")["spent"]
    kinds = [entry["kind"] for entry in service.get(f"/v1/budgets/{budget['id']}/entries")["items"]]
    assert kinds[-3:] == ["reserve", "start", "commit"]


def test_the_charge_is_the_plans_events(service):
    _, run = service.private()
    reservation = service.get(f"/v1/reservations/{run['reservation_id']}")
    assert reservation["events"] == [phase["event"] for phase in run["plan"]["phases"]]


def test_sizes_come_from_the_declared_size_and_never_from_the_rows(service):
    _, run = service.private()
    assert run["plan"]["dataset_size"] == 1000
    assert run["plan"]["phases"][0]["divisor"] == 1000


def test_a_run_has_the_plan_hash_that_its_calibration_answered(service):
    calibration = service.post(
        "/v1/calibrate", {k: v for k, v in REQUEST.items() if k != "model"} | {"dataset_size": 1000}
    ).json()
    _, run = service.private(expected_plan_hash=calibration["plan_hash"])
    assert run["plan_hash"] == calibration["plan_hash"]


def test_another_plan_than_the_expected_is_refused_and_charges_nothing(service):
    budget = service.budget()
    dataset = service.dataset(budget_id=budget["id"])
    refused = service.run(dataset_id=dataset["id"], budget_id=budget["id"], expected_plan_hash="0" * 64)
    assert_problem(refused, 422, "plan_hash_mismatch", "/expected_plan_hash")
    assert service.get(f"/v1/budgets/{budget['id']}")["reserved"] == service.get(f"/v1/budgets/{budget['id']}")["spent"]


def test_a_second_run_that_does_not_fit_is_denied_and_changes_nothing(service):
    budget, run = service.private()
    service.work()
    before = service.get(f"/v1/budgets/{budget['id']}")
    denied = service.run(dataset_id=run["dataset_id"], budget_id=budget["id"])
    problem = assert_problem(denied, 409, "budget_exceeded")
    assert {"cost", "remaining", "largest_count_that_fits", "decided_at"} <= set(problem)
    assert service.get(f"/v1/budgets/{budget['id']}") == before
    assert len(service.get("/v1/runs")["items"]) == 1


def test_the_same_key_replays_and_charges_once(service):
    budget = service.budget()
    dataset = service.dataset(budget_id=budget["id"])
    body = REQUEST | {"dataset_id": dataset["id"], "budget_id": budget["id"]}
    first, again = (service.post("/v1/runs", body, key="same") for _ in range(2))
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.headers["Location"] == first.headers["Location"]
    assert len(service.get("/v1/runs")["items"]) == 1


@pytest.mark.parametrize("name", RUN_EXAMPLES)
def test_every_example_runs_as_it_stands_on_a_fresh_server(service, name):
    run = service.queued(**dict.fromkeys(REQUEST, ...) | RUN_EXAMPLES[name]["value"])
    service.work()
    done = service.get(f"/v1/runs/{run['id']}")
    assert done["state"] == "succeeded", done
    [metric] = done["result"]["metrics"]
    assert metric["accuracy"] > (0.3 if name == "digits" else 0.8)


def test_a_public_run_with_a_seed_repeats(service):
    models = []
    for _ in range(2):
        run = service.queued(dataset_id="ds_breast_cancer", seed=7)
        service.work()
        models.append(service.get(f"/v1/runs/{run['id']}/model")["parameters"])
    assert models[0] == models[1]


def test_unseeded_runs_differ(service):
    models = []
    for _ in range(2):
        run = service.queued(dataset_id="ds_breast_cancer")
        service.work()
        models.append(service.get(f"/v1/runs/{run['id']}/model")["parameters"])
    assert models[0] != models[1]


def test_inline_public_data_run_and_are_scored(service):
    rows = [[1, 0.5, "red", "no"], [9, -0.5, "green", "yes"]]
    inline = {"public": True, "columns": COLUMNS, "label": "y", "rows": rows}
    run = service.queued(dataset=inline, model={"kind": "softmax_regression", "fit_intercept": False})
    service.work()
    done = service.get(f"/v1/runs/{run['id']}")
    assert done["state"] == "succeeded", done
    assert done["result"]["parameters"] == {"weights": [4, 2]}
    assert done["result"]["metrics"][0]["records"] == 2


def test_the_step_size_comes_from_the_theorem_with_constants_of_the_declared_bounds(service):
    budget = service.budget()
    dataset = service.dataset(budget_id=budget["id"])
    run = service.queued(
        dataset_id=dataset["id"],
        budget_id=budget["id"],
        algorithm="dp_nsgd",
        gradient_bound={"kind": "normalize", "regularizer": 1.0},
        hyperparameters=...,
    )
    assert run["plan"]["phases"][0]["step_size"] > 0
    report = service.get(f"/v1/runs/{run['id']}/report")
    assert [item["name"] for item in report["hyperparameters"]] == ["step_size"]
    service.work()
    # Three declared columns and the intercept: R^2 = 4, so L_0 = R^2 / 4 = 1 and tau_0 = 2 R = 4.
    assumptions = service.get(f"/v1/runs/{run['id']}")["result"]["assumptions"]
    assert assumptions["generalized_smoothness_l0"] == pytest.approx(1.0)
    assert assumptions["deviation_tau0"] == pytest.approx(4.0)
    assert assumptions["initial_gap"] == pytest.approx(np.log(2))


def test_the_model_is_released_as_json_and_as_npz_with_the_same_numbers(service):
    _, run = service.private()
    path = f"/v1/runs/{run['id']}/model"
    assert_problem(service.client.get(path), 409, "model_not_released")
    service.work()
    as_json = service.get(path)
    assert [feature["name"] for feature in as_json["features"]] == ["a", "b", "color"]
    assert as_json["classes"] == ["no", "yes"]
    with np.load(io.BytesIO(service.client.get(f"{path}?format=npz").content), allow_pickle=False) as arrays:
        assert arrays["weights"].tolist() == as_json["parameters"]["weights"]
        assert float(arrays["bias"]) == as_json["parameters"]["bias"]
        assert str(arrays["plan_hash"]) == run["plan_hash"]


def test_the_model_file_is_for_the_service_alone(service):
    _, run = service.private()
    service.work()
    path = model_path(service.context, run["id"])
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_the_report_says_what_is_guaranteed_and_what_is_not(service):
    _, run = service.private()
    before = service.get(f"/v1/runs/{run['id']}/report")
    assert before["statement"].startswith("Nothing was released")
    service.work()
    report = service.get(f"/v1/runs/{run['id']}/report")
    assert "one record is added or removed" in report["statement"]
    assert report["achieved"]["epsilon"]["upper"] <= 1.0
    assert report["caveats"]
    assert report["plan_hash"] == run["plan_hash"]
    public = service.queued(dataset_id="ds_breast_cancer", seed=1)
    assert "protects nobody" in service.get(f"/v1/runs/{public['id']}/report")["statement"]


@pytest.mark.parametrize(
    ("changes", "code", "pointer"),
    [
        ({"seed": 1}, "seed_on_private_data", "/seed"),
        ({"budget_id": ...}, "missing", "/budget_id"),
        ({"model": {"kind": "logistic_regression"}, "hyperparameters": ...}, "clip_below_theorem", None),
        ({"sampling": "without_replacement", "batch_size": 10}, "unsupported_sampling", "/sampling"),
        ({"algorithm": "adam"}, "unknown_algorithm", "/algorithm"),
        ({"dataset": {"public": True, "columns": COLUMNS, "label": "y", "rows": []}}, "invalid_request", None),
    ],
)
def test_what_a_run_may_not_be_is_refused_and_charges_nothing(service, changes, code, pointer):
    budget = service.budget()
    dataset = service.dataset(budget_id=budget["id"])
    refused = service.run(**{"dataset_id": dataset["id"], "budget_id": budget["id"]} | changes)
    assert_problem(refused, 422, code, pointer)
    kinds = [entry["kind"] for entry in service.get(f"/v1/budgets/{budget['id']}/entries")["items"]]
    assert "reserve" not in kinds


def test_a_label_that_does_not_fit_the_model_is_refused(service):
    number = service.run(dataset_id="ds_diabetes")
    assert_problem(number, 422, "label_not_categorical", "/model/kind")
    ten = service.run(dataset_id="ds_digits")
    assert_problem(ten, 422, "label_not_binary", "/model/kind")


def test_a_test_data_set_must_be_public_and_of_the_same_columns(service):
    budget = service.budget()
    dataset = service.dataset(budget_id=budget["id"])
    choice = {"dataset_id": dataset["id"], "budget_id": budget["id"]}
    assert_problem(service.run(**choice, test_dataset_id=dataset["id"]), 422, "test_dataset_not_public")
    assert_problem(service.run(**choice, test_dataset_id="ds_breast_cancer"), 422, "columns_differ")
    test = service.dataset(HEADER + "5,0,red,no\n", public=True)
    run = service.queued(**choice, test_dataset_id=test["id"])
    service.work()
    assert service.get(f"/v1/runs/{run['id']}")["result"]["metrics"][0]["records"] == 1


def test_private_data_pay_from_their_own_budget_alone_and_under_its_relation(service):
    budget = service.budget()
    dataset = service.dataset(budget_id=budget["id"])
    other = service.budget()
    denied = service.run(dataset_id=dataset["id"], budget_id=other["id"])
    assert_problem(denied, 409, "budget_not_bound")
    mismatch = service.run(dataset_id=dataset["id"], budget_id=budget["id"], neighboring_relation="replace_one")
    assert_problem(mismatch, 422, "relation_mismatch")


def test_what_is_not_there_is_404(service):
    assert_problem(service.run(dataset_id="ds_nothing"), 404, "not_found")
    assert_problem(service.run(dataset_id="ds_breast_cancer", budget_id="bud_nothing"), 404, "not_found")
    for path in ("", "/report", "/model"):
        assert_problem(service.client.get(f"/v1/runs/run_nothing{path}"), 404, "not_found")
    assert_problem(service.post("/v1/runs/run_nothing/cancel"), 404, "not_found")


def test_a_run_without_a_key_is_400(service):
    assert_problem(service.client.post("/v1/runs", json=REQUEST), 400, "idempotency_key_missing")


def test_a_queued_run_that_is_cancelled_gives_its_hold_back(service):
    _, run = service.private()
    cancelled = service.post(f"/v1/runs/{run['id']}/cancel").json()
    assert cancelled["state"] == "cancelled"
    assert service.get(f"/v1/reservations/{run['reservation_id']}")["state"] == "voided"
    assert not worker.work_once(service.context, "host/1/test")
    assert_problem(service.post(f"/v1/runs/{run['id']}/cancel"), 409, "run_has_ended")


def test_a_queued_run_whose_hold_ran_out_can_still_be_cancelled(service):
    _, run = service.private()
    later = service.context.clock() + timedelta(seconds=QUEUE_HOLD_S + 1)
    late = Context(service.context.settings, service.context.database, lambda: later)
    with late.database.write() as session:
        assert runs.cancel(session, late, run["id"]).state == "cancelled"


def test_a_running_run_that_is_cancelled_is_charged_in_full(service, monkeypatch):
    _, run = service.private()
    monkeypatch.setattr(worker, "PROGRESS_INTERVAL_S", 0.0)
    write = worker.repository.record_progress

    def cancel_at_first_progress(session, run_id, steps):
        session.execute(update(Run).values(state="cancelling"))
        return write(session, run_id, steps)

    monkeypatch.setattr(worker.repository, "record_progress", cancel_at_first_progress)
    service.work()
    ended = service.get(f"/v1/runs/{run['id']}")
    assert ended["state"] == "cancelled"
    assert service.get(f"/v1/reservations/{run['reservation_id']}")["state"] == "committed"
    assert_problem(service.client.get(f"/v1/runs/{run['id']}/model"), 409, "model_not_released")


def test_a_lost_workers_run_fails_with_its_charge(service):
    _, run = service.private()
    claimed = worker._claim(service.context, "host/2/gone")
    assert claimed is not None
    assert worker.give_up_runs_of(service.context, "host/2/gone") == 1
    ended = service.get(f"/v1/runs/{run['id']}")
    assert (ended["state"], ended["problem"]["code"]) == ("failed", "worker_lost")
    assert service.get(f"/v1/reservations/{run['reservation_id']}")["state"] == "committed"
    assert worker.give_up_runs_of(service.context, "host/2/gone") == 0


def test_an_exception_in_training_fails_with_a_constant_text_and_the_charge(service, monkeypatch, capsys):
    _, run = service.private()

    def explode(*_args, **_options):
        raise ValueError("the secret value 8675309 of a row")

    monkeypatch.setattr(worker, "run", explode)
    service.work()
    ended = service.get(f"/v1/runs/{run['id']}")
    assert ended["problem"] == worker.FAILED
    assert service.get(f"/v1/reservations/{run['reservation_id']}")["state"] == "committed"
    printed = capsys.readouterr()
    assert "8675309" not in printed.out + printed.err


def refuse(service, run, code):
    service.work()
    with service.context.database.read() as session:
        ended = session.get(Run, run["id"])
    assert (ended.state, ended.problem["code"]) == ("failed", code)


def test_a_run_whose_stored_plan_was_changed_is_refused_and_not_charged(service):
    _, run = service.private()
    with service.context.database.write() as session:
        stored = session.get(Run, run["id"])
        stored.plan = stored.plan.replace(b'"noise_multiplier":"', b'"noise_multiplier":"0')
    refuse(service, run, "plan_hash_mismatch")
    assert service.get(f"/v1/reservations/{run['reservation_id']}")["state"] == "voided"
    assert_problem(service.client.get(f"/v1/runs/{run['id']}"), 500, "stored_plan_altered")


def test_a_run_whose_reservation_holds_other_events_is_refused(service):
    _, run = service.private()
    with service.context.database.write() as session:
        reservation = session.get(Reservation, run["reservation_id"])
        events = json.loads(json.dumps(reservation.events))
        events[0]["count"] = 1
        session.execute(update(Reservation).where(Reservation.id == reservation.id).values(events=events))
    refuse(service, run, "plan_hash_mismatch")


def test_a_run_whose_data_set_was_deleted_fails_without_a_charge(service):
    _, run = service.private()
    datasets.delete(service.context, run["dataset_id"])
    refuse(service, run, "dataset_deleted")
    assert service.get(f"/v1/reservations/{run['reservation_id']}")["state"] == "voided"


def test_a_run_that_waited_too_long_fails_without_a_charge(service):
    _, run = service.private()
    later = service.context.clock() + timedelta(seconds=QUEUE_HOLD_S + 1)
    assert worker.work_once(Context(service.context.settings, service.context.database, lambda: later), "host/1/t")
    ended = service.get(f"/v1/runs/{run['id']}")
    assert ended["problem"]["code"] == "reservation_lost"


def test_a_runs_own_reservation_refuses_other_hands(service):
    _, run = service.private()
    for command in ("start", "commit", "void"):
        answer = service.post(f"/v1/reservations/{run['reservation_id']}/{command}")
        assert_problem(answer, 409, "owned_by_run")


def test_runs_are_listed_newest_first_in_pages(service):
    made = [service.queued(dataset_id="ds_breast_cancer")["id"] for _ in range(3)]
    listed, cursor = [], ""
    while cursor is not None:
        page = service.get(f"/v1/runs?limit=2{cursor and '&cursor=' + cursor}")
        listed += [run["id"] for run in page["items"]]
        cursor = page["next_cursor"]
    assert sorted(listed) == sorted(made)
    assert len(listed) == 3


def visible(service, run) -> dict[str, Any]:
    """Everything an analyst can see of a run, without ids and times."""
    body = service.get(f"/v1/runs/{run['id']}")
    report = service.get(f"/v1/runs/{run['id']}/report")
    model = service.get(f"/v1/runs/{run['id']}/model")
    shapes = {name: np.shape(value) for name, value in model.pop("parameters").items()}
    hidden = {"id", "run_id", "dataset_id", "budget_id", "reservation_id", "created_at", "started_at", "finished_at"}
    return {key: value for part in (body, report, model) for key, value in part.items() if key not in hidden} | shapes


def test_nothing_an_analyst_sees_changes_when_one_row_does_the_model_aside(service):
    seen = []
    for rows in (
        ROWS,
        ROWS + "5,0,red,yes\n",
        HEADER + "1,0.5,red,no\n",
        HEADER + "1e9,-1e9,green,yes\n",
        HEADER,
    ):
        budget = service.budget()
        dataset = service.dataset(rows, budget_id=budget["id"])
        run = service.queued(dataset_id=dataset["id"], budget_id=budget["id"])
        service.work()
        seen.append(visible(service, run))
    assert all(one == seen[0] for one in seen)
