"""A run whose model is evaluated on held-out rows: charged before it is drawn, drawn once, shown with intervals."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from app.runs import artifacts, evaluating, execution, lifecycle, worker
from app.runs.checkpoint_files import CheckpointFiles
from app.runs.evaluating import held_out_body
from app.runs.executors import paces
from app.runs.executors.paces import MeasuredPaces
from app.runs.job import Job
from app.runs.schemas import HeldOutBody
from app.runs.score_keys import kept_score_key
from app.runs.work import work_of
from calibrators.plan import plan_from_canonical
from tests.app.problem_assertions import assert_problem
from tests.app.runs.conftest import HEADER, Service
from tests.app.runs.interrupted import check_released_once, kinds, stopping_after
from tests.databases import on_one_engine
from trainer.held_out import noisy_sums

SIZE = 800
NUMBERS = [
    {"name": "a", "type": "number", "lower": 0, "upper": 10},
    {"name": "y", "type": "number", "lower": -20, "upper": 60},
]


def rows() -> str:
    random = np.random.default_rng(2)
    lines = []
    for _ in range(SIZE):
        a, b = random.uniform(0, 10), random.uniform(-1, 1)
        color = random.choice(["red", "green"])
        lines.append(f"{a:.3f},{b:.3f},{color},{'yes' if a + 3 * b > 5 else 'no'}")
    return HEADER + "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def ids(quick: Service) -> dict[str, Any]:
    """A private data set that holds a quarter of its rows out, and its budget, as a run names them."""
    return ids_in(quick)


def ids_in(service: Service) -> dict[str, Any]:
    budget = service.budget(filter={"kind": "renyi_dp", "epsilon": 100, "delta": 1e-5})
    dataset = service.dataset(rows(), declared_size=SIZE, held_out_share=0.25, budget_id=budget["id"])
    return {"budget_id": budget["id"], "dataset_id": dataset["id"]}


def job_of(service: Service, run: dict[str, Any]) -> Job:
    stored = service.stored(run)
    return execution.load_job(service.context, stored, lifecycle.read_plan(stored))


def charged_events(service: Service, run: dict[str, Any]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = service.get(f"/v1/reservations/{run['reservation_id']}")["events"]
    return events


def test_the_evaluation_is_in_the_plan_and_charged_from_the_beginning(quick: Service, ids: dict[str, Any]) -> None:
    run = quick.queued(**ids, evaluation={})
    plan, noise = run["plan"], run["plan"]["evaluation"]["noise_multiplier"]
    assert charged_events(quick, run)[-1]["mechanism"] == {"kind": "gaussian", "noise_multiplier": noise}
    assert charged_events(quick, run)[-1].get("count", 1) == 1
    assert len(charged_events(quick, run)) == len(plan["phases"]) + 1
    assert plan["dataset_size"] == 600, "what is trained on"
    assert [choice["name"] for choice in run["choices"]][-1] == "evaluation.noise_multiplier"
    card = quick.report(run)
    assert len(card["events"]) == 2
    assert (card["data"]["declared_size"], card["data"]["held_out_size"]) == (600, 200)
    findings = {point["point"]: point["finding"] for point in card["evaluation"]}
    assert "noisy vector of its scores on held-out rows" in findings["Query model"]
    assert "only on public rows" not in findings["Utility"]
    [tuning] = [field["value"] for field in card["registry"] if field["field"].endswith("hyperparameter_tuning")]
    assert "The service chose from public numbers alone: " in tuning
    assert "evaluation.noise_multiplier" in tuning
    assert card["held_out"] is None
    assert card["achieved"]["epsilon"]["upper"] <= 1.0


def test_every_metric_has_an_interval_and_is_shown_wherever_the_run_is(quick: Service, ids: dict[str, Any]) -> None:
    target = {"kind": "approximate_dp", "epsilon": 30, "delta": 1e-5}
    run = quick.trained(**ids, evaluation={}, target=target, iterations=100)
    found = run["result"]["held_out"]
    job = job_of(quick, run)
    assert job.training.held_out is not None
    true = len(job.training.held_out[1])
    assert found["records"]["lower"] - 5 <= true <= found["records"]["upper"] + 5
    for name in ("accuracy", "balanced_accuracy", "log_loss", "auc", "calibration_error"):
        each = found[name]
        assert each["lower"] <= each["estimate"] <= each["upper"], name
    assert found["accuracy"]["lower"] > 0.5
    assert np.shape(found["confusion_matrix"]) == (2, 2)
    assert found["mean_absolute_error"] is found["r_squared"] is None
    assert run["result"]["metrics"] == [], "no score on private rows beside it"
    card = quick.report(run)
    assert card["held_out"] == found
    markdown = quick.client.get(f"/v1/runs/{run['id']}/report?format=markdown").text
    assert "## Metrics on held-out rows" in markdown
    assert f"{found['accuracy']['estimate']:.6g}"[:5] in markdown
    page = quick.client.get(f"/dashboard/runs/{run['id']}").text
    assert "Metrics on held-out rows" in page
    assert f"{found['accuracy']['estimate']:.4g}" in page


def test_errors_are_in_the_labels_unit(quick: Service) -> None:
    random = np.random.default_rng(3)
    table = "a,y\n" + "".join(f"{a:.3f},{8 * a - 20:.3f}\n" for a in random.uniform(0, 10, SIZE))
    budget = quick.budget(filter={"kind": "renyi_dp", "epsilon": 500, "delta": 1e-5})
    dataset = quick.dataset(table, columns=NUMBERS, declared_size=SIZE, held_out_share=0.5, budget_id=budget["id"])
    run = quick.trained(
        budget_id=budget["id"],
        dataset_id=dataset["id"],
        evaluation={"noise_multiplier": 0.05},
        model={"kind": "linear_regression"},
        target={"kind": "approximate_dp", "epsilon": 400, "delta": 1e-5},
        iterations=200,
    )
    found, job = run["result"]["held_out"], job_of(quick, run)
    features, labels = job.held_out_rows
    parameters = {name: np.array(value) for name, value in quick.model(run)["parameters"].items()}
    errors = 40.0 * (np.clip(job.model.predict(parameters, features), -1, 1) - labels)
    near = 6.0 * found["noise_stddev"] / len(labels) * 2 * 40.0
    assert found["mean_absolute_error"]["estimate"] == pytest.approx(np.abs(errors).mean(), abs=near)
    assert near < 0.2
    assert found["root_mean_squared_error"]["upper"] < 3.0
    assert found["accuracy"] is None


def test_a_run_without_an_evaluation_tells_nothing_of_held_out_rows(quick: Service, ids: dict[str, Any]) -> None:
    run = quick.trained(**ids)
    assert "evaluation" not in run["plan"]
    assert run["result"]["held_out"] is None
    findings = {point["point"]: point["finding"] for point in quick.report(run)["evaluation"]}
    assert findings["Query model"].startswith("One release of one model;")
    assert len(charged_events(quick, run)) == 1


def test_held_out_rows_have_no_part_in_training(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the rows that the trainer is given, nor in their number."""
    seen: list[np.ndarray] = []
    scaled_rows = Job.scaled_rows

    def watched(job: Job) -> Any:
        seen.append(scaled_rows(job)[0])
        return scaled_rows(job)

    monkeypatch.setattr(Job, "scaled_rows", watched)
    run = service.trained(**ids_in(service), evaluation={})
    job = job_of(service, run)
    held_out = {tuple(row) for row in job.held_out_rows[0].tolist()}
    assert len(seen) == 1
    assert len(seen[0]) + len(job.held_out_rows[0]) == SIZE
    assert not held_out & {tuple(row) for row in seen[0].tolist()}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[HeldOutBody]:
    """What was drawn of held-out rows, in order."""
    found: list[HeldOutBody] = []

    def watched(*arguments: Any) -> HeldOutBody:
        found.append(held_out_body(*arguments))
        return found[-1]

    monkeypatch.setattr(execution, "held_out_body", watched)
    return found


def test_the_charge_stands_before_anything_is_drawn(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that dies as it draws leaves the whole charge, the evaluation's part among it."""
    run = service.queued(**ids_in(service), evaluation={})
    states = []

    def dies(*_: Any) -> None:
        states.append(service.reservation_state(run))
        raise RuntimeError("killed")

    monkeypatch.setattr(execution, "held_out_body", dies)
    service.work()
    assert states == ["started"]
    ended = service.get(f"/v1/runs/{run['id']}")
    assert ended["state"] == "failed"
    assert kinds(service, run) == ["reserve", "start", "commit"]
    assert service.get(f"/v1/budgets/{run['budget_id']}")["amounts"]["spent"] == ended["charge"]
    events = service.get(f"/v1/budgets/{run['budget_id']}/entries")["items"][-1]
    assert events["kind"] == "commit"


#: Where a worker is lost: between the charge and the draw, the draw and the model's file, the file and the books.
KILLED_AT: dict[str, tuple[Any, str, int]] = {
    "draw": (execution, "held_out_body", 0),
    "file": (artifacts, "write_model", 1),
    "books": (lifecycle, "end", 1),
}


@on_one_engine
@pytest.mark.parametrize("place", KILLED_AT)
def test_a_run_that_goes_on_draws_the_same_vector(service: Service, drawn: list[HeldOutBody], place: str) -> None:
    """The charge stands and its key is kept before anything is drawn. The next worker draws with it, the same noise."""
    run = service.queued(**ids_in(service), evaluation={})
    module, name, drawn_before = KILLED_AT[place]

    def lost(*_: Any) -> None:
        raise SystemExit("lost")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, name, lost)
        with pytest.raises(SystemExit):
            service.work()
    assert (len(drawn), service.reservation_state(run)) == (drawn_before, "started")
    stream, key_files = service.stored(run).stream_id, CheckpointFiles(service.context)
    key = kept_score_key(key_files, run["id"], stream or "")
    assert key is not None
    assert lifecycle.give_up_runs_of(service.context, "wrk_test") == 1
    assert service.get(f"/v1/runs/{run['id']}")["result"] is None, "what was drawn shows nowhere"
    service.work()
    check_released_once(service, run)
    parameters = {name: np.array(value) for name, value in service.model(run)["parameters"].items()}
    assert all(each == held_out_body(job_of(service, run), parameters, key) for each in drawn)
    assert len(drawn) == drawn_before + 1
    assert service.get(f"/v1/runs/{run['id']}")["result"]["held_out"] == drawn[-1].model_dump(mode="json")


@on_one_engine
def test_another_run_has_other_noise(service: Service, drawn: list[HeldOutBody]) -> None:
    ids = ids_in(service)
    for _ in range(2):
        service.trained(**ids, evaluation={})
    assert drawn[0].records.estimate != drawn[1].records.estimate


@on_one_engine
def test_nothing_is_drawn_of_a_run_that_stops(service: Service, drawn: list[HeldOutBody]) -> None:
    service.queued(**ids_in(service), evaluation={})
    assert worker.work_once(service.context, "wrk_first", stopping_after(3))
    assert drawn == []


def test_steps_that_are_given_up_take_the_evaluation_with_them(quick: Service, ids: dict[str, Any]) -> None:
    run = quick.queued(**ids, evaluation={})
    stored = quick.stored(run)
    plan = plan_from_canonical(stored.plan, stored.plan_hash)
    assert plan.evaluation is not None
    assert plan.evaluation.event not in plan.cost_of_prefix(plan.iterations - 1)
    assert plan.evaluation.event in plan.cost_of_prefix(plan.iterations)


def test_what_cannot_be_evaluated_is_refused(quick: Service, ids: dict[str, Any]) -> None:
    budget = quick.budget()
    plain = quick.dataset(budget_id=budget["id"])
    without = {"dataset_id": plain["id"], "budget_id": budget["id"]}
    assert_problem(quick.run(**without, evaluation={}), 422, "no_held_out_rows", "/evaluation")
    assert_problem(quick.run(dataset_id="ds_breast_cancer", evaluation={}), 422, "no_held_out_rows", "/evaluation")
    small = quick.run(**ids, evaluation={"noise_multiplier": 0.5})
    assert_problem(small, 422, "unreachable_target", "/evaluation/noise_multiplier")
    pure = quick.run(**ids, evaluation={}, target={"kind": "pure_dp", "epsilon": 1.0})
    assert_problem(pure, 422, "unsupported", "/target/kind")
    mean = {"algorithm": "clipped_mean", "model": {"kind": "mean"}}
    assert quick.run(**ids, **mean, evaluation={}).status_code == 422


def test_the_time_of_an_evaluation_is_in_the_schedule(
    quick: Service, ids: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is measured on dummy rows, as many as there are slots, whatever the rows are."""

    def slow(*arguments: Any) -> Any:
        time.sleep(0.2)
        return noisy_sums(*arguments)

    monkeypatch.setattr(paces, "noisy_sums", slow)
    with quick.context.database.read() as session:
        with_it, without = (
            work_of(session, quick.stored(quick.queued(**ids, **more))) for more in ({"evaluation": {}}, {})
        )
    assert with_it.shape != without.shape
    measured = MeasuredPaces()
    assert measured.of(with_it).scoring_s > 0.2 > measured.of(without).scoring_s


def test_one_key_is_one_vector(quick: Service, ids: dict[str, Any]) -> None:
    run = quick.queued(**ids, evaluation={})
    job = job_of(quick, run)
    parameters = job.model.parameters(np.zeros(job.model.num_parameters))
    one, again, other = (evaluating.held_out_body(job, parameters, key) for key in (5, 5, 6))
    assert one == again != other
