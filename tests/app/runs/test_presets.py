"""Runs that name little: data, model and target are enough, and every algorithm takes the shortest request it can."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from accounting.errors import InvalidValue
from accounting.targets import ApproximateDpTarget
from app.algorithms.constants import Derivation
from app.algorithms.questions import Question
from calibrators.draft import Draft
from calibrators.geometry import L2Penalty
from calibrators.presets import Objective
from calibrators.registry import ALGORITHMS
from calibrators.spec import Spec
from calibrators.work import PATIENCE, WORK, work_of
from tests.app.problem_assertions import assert_problem
from tests.app.runs.test_algorithms import LEFT_OUT
from tests.databases import on_one_engine
from trainer.algorithms import EXECUTIONS
from trainer.models import MeanModel, logistic_regression
from trainer.scaling import NumberColumn

TARGET = {"kind": "approximate_dp", "epsilon": 3, "delta": 1e-5}
#: Facts that no declared bound implies, and that the theorem cannot do without.
FACTS: dict[str, dict[str, Any]] = {
    "clipped_prox_sgd": {"assumptions": {"pl_constant": 0.5}},
    "clipped_sgd_strongly_convex": {"penalty": {"kind": "l2", "strength": 2}},
    "dp_svrg": {"penalty": {"kind": "l2", "strength": 0.5}},
    "dp_svrg_pp": {"assumptions": {"initial_distance": 5}},
    "localized_clipped_strongly_convex": {"penalty": {"kind": "l2", "strength": 0.5}},
}


#: Facts with which the theorem needs few steps.
FEW_STEPS: dict[str, dict[str, Any]] = {
    "dp_svrg": {"penalty": {"kind": "l2", "strength": 20}},
    "dp_svrg_pp": {"assumptions": {"initial_distance": 0.1}},
}


def shortest(algorithm: str | None, **changes: Any) -> dict[str, Any]:
    """Return data, model and target, without all that the tests' usual request has."""
    named = {} if algorithm is None else {"algorithm": algorithm}
    trained = EXECUTIONS[algorithm or "dp_adam"].models
    model = {"kind": "logistic_regression" if "logistic_regression" in trained else "mean"}
    return {**LEFT_OUT, "dataset_id": "ds_breast_cancer", "model": model, "target": TARGET, **named, **changes}


def test_data_model_and_target_are_enough_for_a_good_model(quick):
    run = quick.trained(**shortest(None), test_dataset_id="ds_breast_cancer", seed=1)
    assert run["algorithm"] == "dp_adam"
    chosen = {choice["name"]: choice for choice in run["choices"]}
    assert chosen["sampling"]["value"] == "full_batch"
    assert chosen["iterations"]["value"] == run["progress"]["total"]
    assert all(choice["reason"] and choice["source"] for choice in run["choices"])
    # A model that knows the larger class alone has 0.63; one without privacy 0.98.
    assert run["result"]["metrics"][0]["accuracy"] > 0.93
    report = quick.report(run)
    assert report["choices"] == run["choices"]
    card = quick.client.get(f"/v1/runs/{run['id']}/report", params={"format": "markdown"}).text
    assert "Chosen from public numbers" in card


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_takes_the_shortest_request_that_its_theorem_allows(quick, algorithm):
    """Without what declared bounds do not imply, the refusal names just that."""
    facts = FACTS.get(algorithm, {})
    answer = quick.run(**shortest(algorithm, **facts))
    assert answer.status_code == 202, answer.text
    run = answer.json()
    assert run["algorithm"] == algorithm
    assert "algorithm" not in {choice["name"] for choice in run["choices"]}
    assert all(choice["theorem_reason"].endswith(".") for choice in run["choices"])
    has_steps = ALGORITHMS[algorithm].step_rule is not None
    said = "would have chosen" if has_steps else "The theorem itself chose"
    assert (said if ALGORITHMS[algorithm].example.bounded else "No theorem bounds") in run["theorem_note"]
    assert quick.report(run)["theorem_note"] == run["theorem_note"]
    if facts:
        refused = quick.run(**shortest(algorithm))
        problem = assert_problem(refused, 422, "missing", None)
        missing = facts.get("assumptions", ["strong_convexity"])
        assert all(name in problem["detail"] for name in missing), problem["detail"]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_defaults_take_no_more_time_than_a_worker_has(algorithm):
    """On 60000 rows of 784 values: else the request is refused with the number of steps, or warned of it."""
    facts = FACTS.get(algorithm, {})
    kind = "logistic_regression" if "logistic_regression" in EXECUTIONS[algorithm].models else "mean"
    model = logistic_regression(784) if kind != "mean" else MeanModel(784)
    penalty = L2Penalty(facts["penalty"]["strength"]) if "penalty" in facts else None
    derivation = Derivation(model, (NumberColumn(0.0, 1.0),) * 784, None, penalty)
    spec = Spec(
        60_000,
        ApproximateDpTarget(3.0, 1e-5),
        dimension=model.num_parameters,
        penalty=penalty,
        assumptions=facts.get("assumptions", {}),
        judge_published=False,
    )
    draft = Draft(algorithm, spec, None, Objective(derivation, is_convex=kind != "mean"))
    if algorithm == "localized_clipped_subgradient":
        with pytest.raises(
            InvalidValue, match=r"chooses \d{6} steps, .* minutes of one core.* the preset theorem"
        ) as caught:
            draft.calibrate()
        assert caught.value.code == "too_much_work"
        return
    found = draft.calibrate()
    assert found.plan.is_executable
    work = work_of(found, model.num_parameters)
    assert work <= WORK or (
        work <= PATIENCE * WORK and any(f"{found.plan.iterations} steps" in each for each in found.warnings)
    )


@pytest.mark.one_in(4)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_is_trained_from_its_shortest_request(quick, algorithm):
    run = quick.trained(**shortest(algorithm, **FEW_STEPS.get(algorithm, FACTS.get(algorithm, {}))))
    assert run["algorithm"] == algorithm
    assert run["progress"]["done"] == run["progress"]["total"] > 0
    assert run["charge"] is None
    parameters = [np.asarray(value) for value in quick.model(run)["parameters"].values()]
    assert all(np.isfinite(value).all() for value in parameters)
    # A random point may be the first one, which is zero.
    assert run["plan"].get("release") == {"kind": "random"} or any(value.any() for value in parameters)


@pytest.mark.one_in(7)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_is_trained_on_private_rows_from_its_shortest_request(quick, algorithm):
    """The budget pays for it what its plan costs."""
    relation = str(ALGORITHMS[algorithm].relations[0])
    budget = quick.budget(neighboring_relation=relation, filter={"kind": "approximate_dp", "epsilon": 10, "delta": 0.1})
    # Rows of their own: private rows have one budget for ever.
    place = list(ALGORITHMS).index(algorithm) / 100
    rows = [f"{1 + index % 9},{0.1 * (index % 5) + place},red,{'no' if index % 2 else 'yes'}" for index in range(120)]
    data = quick.dataset("\n".join(["a,b,color,y", *rows]), budget_id=budget["id"], declared_size=120)
    facts = FEW_STEPS.get(algorithm, FACTS.get(algorithm, {}))
    run = quick.trained(**shortest(algorithm, **facts) | {"dataset_id": data["id"], "budget_id": budget["id"]})
    assert run["progress"]["done"] == run["progress"]["total"] > 0
    assert (run["plan"]["neighboring_relation"], run["plan"]["dataset_size"]) == (relation, 120)
    assert 0 < run["charge"]["epsilon"] <= 10
    assert quick.reservation_state(run) == "committed"


@pytest.mark.one_in(4)
@pytest.mark.parametrize("algorithm", [name for name, each in ALGORITHMS.items() if each.step_rule is not None])
def test_algorithms_with_practical_steps_learn(quick, algorithm):
    run = quick.trained(**shortest(algorithm), test_dataset_id="ds_breast_cancer", seed=3)
    assert run["result"]["metrics"][0]["accuracy"] > 0.85


@pytest.mark.parametrize("kind", ["linear_regression", "huber_regression", "mean"])
def test_other_models_need_no_more(quick, kind):
    data = "ds_breast_cancer" if kind == "mean" else "ds_diabetes"
    run = quick.trained(**shortest(None, dataset_id=data, model={"kind": kind}))
    assert run["algorithm"] == ("clipped_mean" if kind == "mean" else "dp_adam")
    assert all(np.isfinite(value).all() for value in quick.model(run)["parameters"].values())


def test_a_network_needs_no_more(quick):
    run = quick.queued(**shortest(None, dataset_id="ds_digits", model={"kind": "mlp", "hidden": [16]}))
    assert run["algorithm"] == "dp_adam"


@on_one_engine
def test_a_private_run_is_charged_what_its_chosen_plan_costs(service):
    """The preset looks at no row: another table of the same declared size has the same plan."""
    plans = []
    for rows in ("1,0.5,red,no\n", "9,-0.5,green,yes\n2,0.25,red,no\n"):
        budget = service.budget()
        data = service.dataset("a,b,color,y\n" + rows, budget_id=budget["id"], declared_size=100)
        run = service.queued(
            **LEFT_OUT
            | {"model": {"kind": "logistic_regression"}, "target": TARGET | {"epsilon": 0.2}}
            | {"dataset_id": data["id"], "budget_id": budget["id"]}
        )
        assert run["charge"]
        assert run["plan"]["neighboring_relation"] == budget["neighboring_relation"]
        plans.append(run["plan_hash"])
    assert plans[0] == plans[1]


#: None is the preset's own algorithm.
UNDER = [
    (algorithm, str(relation))
    for algorithm in (None, *ALGORITHMS)
    for relation in ALGORITHMS[algorithm or "dp_adam"].relations
]


@pytest.mark.parametrize(("algorithm", "relation"), UNDER)
@pytest.mark.one_in(6)
def test_defaults_agree_with_the_relation_that_a_budget_counts_under(quick, algorithm, relation):
    """A default sampling is never the reason why a relation is refused that the algorithm is accounted under."""
    answer = quick.run(**shortest(algorithm, neighboring_relation=relation, **FACTS.get(algorithm or "", {})))
    assert answer.status_code == 202, answer.text


def test_the_theorem_is_asked_for_by_name(quick):
    run = quick.queued(**shortest("dp_sgd", preset="theorem"))
    practical = quick.queued(**shortest("dp_sgd"))
    beside = {choice["name"]: choice["theorem"] for choice in practical["choices"]}
    assert beside["hyperparameters.step_size"] == run["plan"]["phases"][0]["step_size"]
    assert beside["gradient_bound"] == run["plan"]["phases"][0]["gradient_bound"]
    problem = assert_problem(quick.run(**shortest("dp_adam", preset="theorem")), 422, "missing", None)
    assert "preset practical" in problem["detail"]
    assert_problem(quick.run(**shortest(None, preset="theorem")), 422, "missing", "/algorithm")


def test_a_calibration_chooses_where_it_is_asked_to(quick):
    """And its plan is that of a run with the same numbers."""
    run = quick.queued(**shortest(None))
    size, dimension = run["plan"]["dataset_size"], 31
    body = {"dataset_size": size, "dimension": dimension, "target": TARGET}
    answer = quick.post("/v1/calibrate", body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["plan_hash"] == run["plan_hash"]
    assert answer.json()["choices"] == run["choices"]
    assert quick.run(**shortest(None, expected_plan_hash=run["plan_hash"])).status_code == 202
    named = quick.post("/v1/calibrate", body | {"algorithm": "dp_adam"})
    assert_problem(named, 422, "missing", "/gradient_bound")
    assert quick.post("/v1/calibrate", body | {"algorithm": "dp_adam", "preset": "practical"}).status_code == 200


def test_an_average_is_of_algorithms_without_a_release_of_their_own(quick):
    run = quick.queued(**shortest("dp_adam", hyperparameters={"step_size": 0.1, "averaged_share": 0.25}, iterations=8))
    assert run["plan"]["release"] == {"kind": "weighted_average", "weights": [0] * 6 + [0.5] * 2}
    refused = quick.run(**shortest("dp_gd", hyperparameters={"averaged_share": 0.25}))
    assert_problem(refused, 422, "unsupported", "/hyperparameters/averaged_share")


def test_what_is_sent_to_a_process_loads_nothing_of_the_service():
    """Whoever reads it there would wait for the framework, and the time of a calibration has a limit."""
    columns = (NumberColumn(0.0, 1.0),)
    facts = Objective(Derivation(logistic_regression(1), columns, None, None), is_convex=True)
    draft = Draft("dp_sgd", Spec(100, ApproximateDpTarget(1.0, 1e-5), sampling="poisson"), None, facts)
    sent = pickle.dumps(Question(draft.algorithm, draft.spec, draft=draft).work())
    script = (
        "import pickle, sys; work = pickle.loads(sys.stdin.buffer.read()); "
        "print([name for name in ('pydantic', 'fastapi', 'sqlalchemy') if name in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", script], input=sent, capture_output=True, check=True)
    assert loaded.stdout.decode().strip() == "[]"
