"""Every algorithm under every target, from a request to its model and report, and what pays for it."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from accounting.canonical import canonical_bytes
from accounting.relations import NeighboringRelation
from app.runs.examples import RUN_EXAMPLES
from calibrators.plan import plan_from_canonical
from calibrators.registry import ALGORITHMS
from tests.app.problem_assertions import assert_problem
from tests.app.runs.conftest import REQUEST
from trainer.algorithms import EXECUTIONS

LEFT_OUT: dict[str, Any] = dict.fromkeys(REQUEST, ...)
CLIP = {"kind": "clip", "max_grad_norm": 1.0}
#: What full batches and aggregates are asked for, which are calibrated in closed form.
QUICK: dict[str, dict[str, Any]] = {
    "dp_sgd": {
        "sampling": "full_batch",
        "iterations": 5,
        "gradient_bound": CLIP,
        "hyperparameters": {"step_size": 0.5},
    },
    "dp_nsgd": {
        "sampling": "full_batch",
        "iterations": 5,
        "gradient_bound": {"kind": "normalize", "regularizer": 0.5},
    },
    "dp_adam": {
        "sampling": "full_batch",
        "iterations": 5,
        "gradient_bound": CLIP,
        "hyperparameters": {"step_size": 0.05},
    },
    "dp_nadam": {
        "sampling": "full_batch",
        "iterations": 5,
        "gradient_bound": {"kind": "normalize", "regularizer": 0.5},
        "hyperparameters": {"step_size": 0.05},
    },
    "dp_bandmf": {
        "sampling": "fixed_order_epochs",
        "iterations": 20,
        "batch_size": 57,
        "gradient_bound": CLIP,
        "hyperparameters": {"step_size": 0.5, "momentum": 0.5},
        "correlation": {"bands": 3},
    },
    "dp_sgd_gradient": {
        "sampling": "full_batch",
        "iterations": 40,
        "assumptions": {"radius": 2, "failure_probability": 0.1},
    },
    "dp_gd": {"iterations": 5, "gradient_bound": CLIP, "assumptions": {"pl_constant": 0.01}},
    "dp_sgd_output": {"iterations": 400, "assumptions": {"radius": 1, "failure_probability": 0.1}},
    "dp_accmd": {"iterations": 5, "gradient_bound": CLIP, "assumptions": {"radius": 2}},
    "dp_svrg": {
        "iterations": 2,
        "gradient_bound": CLIP,
        "batch_size": 50,
        "penalty": {"kind": "l2", "strength": 0.5},
        "assumptions": {"inner_iterations": 5},
    },
    "dp_svrg_pp": {"iterations": 2, "gradient_bound": CLIP, "batch_size": 50, "assumptions": {"inner_iterations": 2}},
    "clipped_acsa": {"iterations": 4, "assumptions": {"diameter": 4}},
    "clipped_mean": {"model": {"kind": "mean"}},
    "shuffle_vector_mean": {"model": {"kind": "mean"}},
    "shuffle_coordinatewise_mean": {"model": {"kind": "mean"}},
    "coordinatewise_mean": {"model": {"kind": "mean"}},
    "clipped_prox_sgd": {"iterations": 4, "assumptions": {"pl_constant": 0.01}},
    "clipped_sgd_strongly_convex": {
        "iterations": 4,
        "penalty": {"kind": "l2", "strength": 0.5},
        "assumptions": {"diameter": 4},
    },
    "localized_clipped_subgradient": {
        "gradient_bound": CLIP,
        "assumptions": {"diameter": 4, "localization_power": 1},
        "hyperparameters": {"step_size": 4},
    },
    "localized_clipped_strongly_convex": {
        "gradient_bound": CLIP,
        "penalty": {"kind": "l2", "strength": 0.5},
        "assumptions": {"diameter": 4, "localization_power": 1},
        "hyperparameters": {"step_size": 4},
    },
    "dp_fw": {"iterations": 5, "assumptions": {"radius": 2}},
    "generalized_linear_l1": {"iterations": 5, "assumptions": {"radius": 2}},
    "noisy_mirror_descent": {"iterations": 4, "assumptions": {"norm_order": 1.5, "radius": 2}},
    "noisy_sfw_lp": {"iterations": 3, "assumptions": {"norm_order": 1.5, "radius": 2}},
    "noisy_sfw_nonconvex_lp": {"iterations": 250, "assumptions": {"norm_order": 1.5, "radius": 2}},
    "poly_sfw": {"iterations": 5, "assumptions": {"radius": 2}},
    "private_sfw_nonconvex_l1": {"iterations": 20, "assumptions": {"radius": 2}},
    "proximal_weakly_convex": {
        "iterations": 20,
        "assumptions": {"radius": 2, "weak_convexity": 0.5, "inner_iterations": 3},
    },
    "tree_sfw_l1": {"iterations": 2, "assumptions": {"radius": 2}},
}


def choice_of(algorithm: str) -> dict[str, Any]:
    """Return the request for a run: the quick choice above, or else the first example in the algorithm's record."""
    own = next(iter(EXECUTIONS[algorithm].requests.values())).body
    left_out = ("dataset_id", "target", "neighboring_relation")
    return QUICK.get(algorithm, {name: value for name, value in own.items() if name not in left_out})


#: By algorithm. No request names its relation or dimension.
CHOICES = {name: choice_of(name) for name in ALGORITHMS}
#: Whose noise is that of selections: they have pure differential privacy, and finitely many models.
SELECTIONS = ("dp_fw", "generalized_linear_l1", "poly_sfw", "private_sfw_nonconvex_l1", "tree_sfw_l1")
#: Generalised Gaussian noise, of which no Gaussian DP is proved.
ZCDP_ALONE = ("noisy_mirror_descent", "noisy_sfw_lp", "noisy_sfw_nonconvex_lp")
#: Charged by Renyi divergences at some orders, of which (epsilon, delta) follows alone, or by that itself.
APPROXIMATE_ALONE = ("dp_svrg", "dp_svrg_pp", "dp_sgd_output", "shuffle_vector_mean", "shuffle_coordinatewise_mean")
#: Of them, by Renyi divergences.
RENYI_ALONE = ("dp_svrg", "dp_svrg_pp")
TARGETS: dict[str, dict[str, Any]] = {
    "approximate_dp": {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-5},
    # Numbers that no six digits are: what is printed is rounded up.
    "zcdp": {"kind": "zcdp", "rho": 1 / 3},
    "gaussian_dp": {"kind": "gaussian_dp", "mu": 1 / 3},
    "pure_dp": {"kind": "pure_dp", "epsilon": 3},
    "advantage": {"kind": "attack_risk", "advantage": 1 / 3},
    "true_positive_rate": {"kind": "attack_risk", "tpr": 1 / 3, "fpr": 0.1},
    "bayes_risk": {"kind": "attack_risk", "bayes_risk": 1 / 3, "prior": 0.5},
}
RISKS = {name for name, target in TARGETS.items() if target["kind"] == "attack_risk"}
STATEMENTS = {
    "approximate_dp": r"is \((?P<cost>[0-9.]+), 0\.00001\)-differentially private where",
    "zcdp": r"is (?P<cost>[0-9.]+)-zCDP where",
    "gaussian_dp": r"is (?P<cost>[0-9.]+)-Gaussian differentially private where",
    "pure_dp": r"is (?P<cost>[0-9.]+)-differentially private where",
    "advantage": r"limits every membership attack \(advantage at most (?P<cost>[0-9.]+)\) where",
    "true_positive_rate": r"limits every membership attack "
    r"\(true positive rate at most (?P<cost>[0-9.]+), false positive rate 0\.1\) where",
    "bayes_risk": r"limits every membership attack "
    r"\(Bayes risk at least (?P<cost>[0-9.]+), prior probability 0\.5\) where",
}
FIELDS = {
    "approximate_dp": "epsilon",
    "zcdp": "rho",
    "gaussian_dp": "mu",
    "pure_dp": "epsilon",
    "advantage": "advantage",
    "true_positive_rate": "tpr",
    "bayes_risk": "bayes_risk",
}


def request_for(algorithm: str, target: str | None = None, **changes: Any) -> dict[str, Any]:
    """A run on public data, with nothing that the algorithm would choose itself."""
    target = target or ("approximate_dp" if algorithm in APPROXIMATE_ALONE else "zcdp")
    return {
        **LEFT_OUT,
        "algorithm": algorithm,
        "dataset_id": "ds_breast_cancer",
        "model": {"kind": "logistic_regression"},
        "target": TARGETS[target],
        **CHOICES[algorithm],
        **changes,
    }


def calibrated(quick: Any, request: dict[str, Any], run: dict[str, Any], dimension: int) -> dict[str, Any]:
    """Return the answer of `/v1/calibrate` to the request with the data set's size and the run's constants."""
    names = ("algorithm", "iterations", "batch_size", "sampling", "neighboring_relation", "gradient_bound", "domain")
    names = (*names, "penalty", "hyperparameters", "target", "correlation")
    body = {name: request[name] for name in names if request.get(name, ...) is not ...}
    assumptions = run["result"]["assumptions"] | request.get("assumptions", {})
    answer = quick.post(
        "/v1/calibrate",
        body
        | {"dataset_size": run["plan"]["dataset_size"], "dimension": dimension, "assumptions": assumptions}
        | {"judge_literal": True},
    )
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def has_hash(plan: dict[str, Any], plan_hash: str) -> bool:
    return plan_from_canonical(canonical_bytes(plan), plan_hash).plan_hash == plan_hash


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("algorithm", CHOICES)
@pytest.mark.one_in(18)
def test_every_algorithm_runs_under_every_guarantee_that_its_noise_has(quick, algorithm, target):
    request = request_for(algorithm, target)
    without = {"pure_dp"} - ({"pure_dp"} if algorithm in SELECTIONS else set())
    without |= {"gaussian_dp"} if algorithm in ZCDP_ALONE else set()
    without |= {"gaussian_dp", "zcdp"} if algorithm in APPROXIMATE_ALONE else set()
    without |= RISKS if algorithm in APPROXIMATE_ALONE and algorithm not in RENYI_ALONE else set()
    if target in without:
        problem = assert_problem(quick.run(**request), 422, "no_cost_in_filter", "/target/kind")
        assert any(noise in problem["detail"].lower() for noise in ("gaussian", "shuffled counts"))
        return
    run = quick.trained(**request)
    report = quick.report(run)
    found = re.match(f"The released model {STATEMENTS[target]}", report["statement"])
    assert found, report["statement"]
    asked, achieved = TARGETS[target][FIELDS[target]], report["achieved"][FIELDS[target]]
    if target == "bayes_risk":
        end = achieved["lower"]
        assert end >= asked
        assert Decimal(repr(end)) * Decimal("0.99999") <= Decimal(found["cost"]) <= Decimal(repr(end))
    else:
        end = achieved["upper"] if isinstance(achieved, dict) else achieved
        assert end <= asked
        assert Decimal(repr(end)) <= Decimal(found["cost"]) <= Decimal(repr(end)) * Decimal("1.00001")
    assert report["target"] == TARGETS[target]
    assert report["events"] == [phase["event"] for phase in run["plan"]["phases"]]
    assert report["source"] == ALGORITHMS[algorithm].source
    assert run["progress"]["done"] == run["progress"]["total"] > 0
    assert has_hash(run["plan"], run["plan_hash"])


@pytest.mark.parametrize("algorithm", CHOICES)
@pytest.mark.one_in(6)
def test_a_run_is_the_calibration_of_its_declared_size_and_derived_constants(quick, algorithm):
    request = request_for(algorithm, "approximate_dp")
    run = quick.trained(**request)
    dimension = sum(math.prod(shape) for shape in run["result"]["parameters"].values())
    calibration = calibrated(quick, request, run, dimension=dimension)
    assert calibration["plan_hash"] == run["plan_hash"]
    assert calibration["plan"] == run["plan"]
    assert quick.run(**request, expected_plan_hash=calibration["plan_hash"]).status_code == 202
    report = quick.report(run)
    assert report["literal"] == calibration["literal"]
    assert report["literal"]["verdict"] in ("sound", "loose", "unsound")
    assert report["literal"]["why"]
    assert report["noise"] == calibration["noise"]
    for numbers in ("hyperparameters", "utility"):
        assert report[numbers] == calibration[numbers]
    assert report["hyperparameters"] or algorithm == "dp_sgd", "dp_sgd was given its step size and derives nothing"
    assert all("unit" in number for number in report["utility"])


def soak(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.soak)


@pytest.mark.parametrize("algorithm", CHOICES)
@pytest.mark.one_in(16)
def test_the_papers_own_relation_is_meant_where_none_is_named(quick, algorithm):
    run = quick.trained(**request_for(algorithm))
    sampling = plan_from_canonical(canonical_bytes(run["plan"]), run["plan_hash"]).events[0].sampling
    first = next(each for each in ALGORITHMS[algorithm].relations if each in sampling.relations)
    assert run["plan"]["neighboring_relation"] == str(first)
    statement = quick.report(run)["statement"]
    assert ("one patient is replaced by another" in statement) == (first is NeighboringRelation.REPLACE_ONE)


@pytest.mark.parametrize("algorithm", [name if name in ("dp_sgd", "tree_sfw_l1") else soak(name) for name in CHOICES])
@pytest.mark.one_in(3)
def test_seeded_runs_repeat_and_unseeded_ones_do_not(quick, algorithm):
    """This is about the service, for any algorithm. A conformance test shows that each trainer repeats."""

    def parameters(**changes: Any) -> Any:
        return quick.model(quick.trained(**request_for(algorithm, **changes)))["parameters"]

    assert parameters(seed=11) == parameters(seed=11) != parameters(seed=12)
    if algorithm not in SELECTIONS:
        assert parameters() != parameters()


def test_a_report_of_a_run_that_has_not_run_says_so_for_every_guarantee(quick):
    for target in TARGETS.keys() - {"pure_dp"}:
        run = quick.queued(**request_for("dp_gd", target))
        statement = quick.report(run)["statement"]
        assert re.match(f"Nothing was released so far. The plan {STATEMENTS[target]}", statement)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("domain", "within"),
    [
        ({"kind": "l2_ball", "radius": 0.05}, lambda w: np.linalg.norm(w) <= 0.05),
        ({"kind": "l1_ball", "radius": 0.05}, lambda w: np.abs(w).sum() <= 0.05),
        ({"kind": "lp_ball", "norm_order": 1.5, "radius": 0.05}, lambda w: (np.abs(w) ** 1.5).sum() <= 0.05**1.5),
        ({"kind": "simplex", "scale": 0.05}, lambda w: np.all(w >= 0) and math.isclose(w.sum(), 0.05, rel_tol=1e-6)),
        ({"kind": "box", "lower": -0.01, "upper": 0.02}, lambda w: np.all(w >= -0.01) and np.all(w <= 0.02)),
    ],
)
def test_a_model_lies_in_the_domain_that_was_asked_for(quick, domain, within):
    run = quick.trained(**request_for("dp_sgd", domain=domain))
    assert run["plan"]["domain"] == domain
    parameters = quick.model(run)["parameters"]
    weights = np.array([*parameters["weights"], parameters["bias"]])
    assert np.any(weights != 0.0)
    assert within(weights / (1 + 1e-9))
    assert has_hash(run["plan"], run["plan_hash"])


def test_a_penalty_pulls_the_model_to_zero_and_costs_nothing(quick):
    lengths, events = [], []
    for penalty in (..., {"kind": "l2", "strength": 100}, {"kind": "l1", "strength": 100}):
        run = quick.trained(**request_for("dp_gd", hyperparameters={"step_size": 0.5}, penalty=penalty, seed=4))
        lengths.append(float(np.linalg.norm(quick.model(run)["parameters"]["weights"])))
        events.append(run["plan"]["phases"][0]["event"])
        assert run["plan"].get("penalty", ...) == penalty
    assert events[0] == events[1] == events[2]
    assert lengths[1] < 0.1 * lengths[0]
    assert lengths[2] == 0.0


@pytest.mark.parametrize(
    ("algorithm", "release"),
    [
        ("dp_sgd", None),
        ("dp_sgd_gradient", "average"),
        ("clipped_sgd_strongly_convex", "weighted_average"),
        ("tree_sfw_l1", None),
        ("private_sfw_nonconvex_l1", "random"),
    ],
)
def test_which_point_is_released_is_in_the_plan(quick, algorithm, release):
    plan = quick.queued(**request_for(algorithm))["plan"]
    assert plan.get("release", {}).get("kind") == release
    if release == "weighted_average":
        assert math.fsum(plan["release"]["weights"]) == pytest.approx(1.0)
        assert len(plan["release"]["weights"]) == plan["phases"][0]["event"]["count"]


def test_a_random_point_is_released_where_nothing_but_smoothness_is_known(quick):
    plan = quick.queued(**request_for("dp_gd", assumptions={}))["plan"]
    assert plan["release"] == {"kind": "random"}


def test_constants_of_the_requests_own_stand_before_derived_ones(quick):
    given = {"radius": 2, "failure_probability": 0.1, "lipschitz": 0.25}
    run = quick.trained(**request_for("dp_sgd_gradient", assumptions=given))
    assert run["plan"]["phases"][0]["gradient_bound"] == {"kind": "clip", "max_grad_norm": 0.25}
    assert "lipschitz" not in run["result"]["assumptions"]


def test_constants_are_derived_in_the_norm_of_the_algorithm(quick):
    """Thirty features in [-1, 1] and a constant: as long as sqrt(31) in l2, as 1 in the dual of l1.

    In a ball of radius 2 logits are at most twice as large, and the loss is a little less steep than without bound.
    """
    lipschitz = {}
    for algorithm in ("dp_sgd_gradient", "tree_sfw_l1"):
        found = quick.trained(**request_for(algorithm))["result"]["assumptions"]
        lipschitz[algorithm] = found["lipschitz"]
    longest = {"dp_sgd_gradient": math.sqrt(31), "tree_sfw_l1": 1.0}
    assert lipschitz == {name: pytest.approx(bound / (1.0 + math.exp(-2.0 * bound))) for name, bound in longest.items()}
    assert found["smoothness"] == 0.25


def test_an_unknown_constant_is_pointed_at(quick):
    for algorithm, choice in CHOICES.items():
        request = request_for(algorithm, assumptions=choice.get("assumptions", {}) | {"smoothnes": 1})
        problem = assert_problem(quick.run(**request), 422, "unknown_assumption", "/assumptions/smoothnes")
        assert all(item.name in problem["detail"] for item in ALGORITHMS[algorithm].assumptions)


RELATIONS = {"replace_one": "replaced by another", "replace_special": "replaced by a null record"}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("algorithm", CHOICES)
@pytest.mark.one_in(96)
def test_a_run_is_meant_under_the_relation_of_the_budget_that_pays(quick, algorithm, relation):
    kind = {"kind": "pure_dp", "epsilon": 10} if algorithm in SELECTIONS else {"kind": "zcdp", "rho": 1}
    target = "pure_dp" if algorithm in SELECTIONS else "zcdp"
    if algorithm in APPROXIMATE_ALONE:
        kind, target = {"kind": "approximate_dp", "epsilon": 10, "delta": 1e-3}, "approximate_dp"
    if algorithm in RENYI_ALONE:
        kind = {"kind": "renyi_dp", "epsilon": 10, "delta": 1e-5}
    budget = quick.budget(neighboring_relation=relation, filter=kind)
    run = quick.trained(**request_for(algorithm, target, budget_id=budget["id"]))
    assert run["plan"]["neighboring_relation"] == relation
    field, charged = FIELDS[target], run["charge"][FIELDS[target]]
    achieved = quick.report(run)["achieved"][field]
    upper = achieved["upper"] if isinstance(achieved, dict) else achieved
    assert Decimal(str(charged)) >= Decimal(repr(upper))
    # A filter's own orders are fewer, and hold for whatever else is charged to it.
    assert float(charged) <= TARGETS[target][field] * (1.5 if algorithm in RENYI_ALONE else 1.0 + 1e-6)
    spent = quick.get(f"/v1/budgets/{budget['id']}")["amounts"]["spent"]
    assert spent == run["charge"]
    report = quick.report(run)
    assert RELATIONS[relation] in report["statement"]
    assert report["convention"]["sensitivity"] == (2.0 if relation == "replace_one" else 1.0)


def test_replacing_a_record_takes_twice_the_noise_of_removing_it(quick):
    noise = []
    for relation in ("replace_one", "add_or_remove_one"):
        budget = quick.budget(neighboring_relation=relation, filter={"kind": "zcdp", "rho": 1})
        run = quick.queued(**request_for("dp_gd", budget_id=budget["id"]))
        noise.append(run["plan"]["phases"][0]["event"]["mechanism"]["noise_multiplier"])
    assert noise[0] == pytest.approx(2 * noise[1])


@pytest.mark.parametrize(
    ("algorithm", "relation", "kind", "status", "code", "pointer"),
    [
        ("tree_sfw_l1", "add_or_remove_one", {"kind": "zcdp", "rho": 1}, 422, "unsupported_relation", None),
        ("dp_gd", "replace_one", {"kind": "pure_dp", "epsilon": 9}, 422, "no_cost_in_filter", None),
        ("clipped_sgd_strongly_convex", "replace_one", {"kind": "zcdp", "rho": 0.2}, 409, "budget_exceeded", None),
    ],
)
def test_a_budget_that_cannot_pay_for_a_run_is_left_alone(quick, algorithm, relation, kind, status, code, pointer):
    budget = quick.budget(neighboring_relation=relation, filter=kind)
    assert_problem(quick.run(**request_for(algorithm, budget_id=budget["id"])), status, code, pointer)
    assert quick.get(f"/v1/budgets/{budget['id']}") == budget
    assert [entry["kind"] for entry in quick.get(f"/v1/budgets/{budget['id']}/entries")["items"]] == ["create"]


def test_a_relation_that_is_named_and_is_not_the_budgets_is_refused(quick):
    budget = quick.budget(neighboring_relation="replace_one", filter={"kind": "zcdp", "rho": 1})
    request = request_for("dp_gd", budget_id=budget["id"], neighboring_relation="add_or_remove_one")
    assert_problem(quick.run(**request), 422, "relation_mismatch")


LARGE = {
    "name": "large",
    "declared_size": 10**9,
    "public": True,
    "columns": [
        {"name": "a", "type": "number", "lower": 0, "upper": 10},
        {"name": "y", "type": "category", "categories": ["no", "yes"]},
    ],
}


TINY = {"kind": "clip", "max_grad_norm": 1e-200}
GIVEN = {"radius": 1, "lipschitz": 1, "smoothness": 1}
#: No logistic loss has these constants.
OTHER_LOSS = {"radius": 1, "failure_probability": 0.1, "holder_exponent": 0.5, "holder_constant": 1}


@pytest.mark.parametrize(
    ("algorithm", "changes", "code", "pointer"),
    [
        ("tree_sfw_l1", {"model": {"kind": "mlp"}}, "unsupported_model", "/model/kind"),
        ("tree_sfw_l1", {"model": {"kind": "mlp"}, "assumptions": GIVEN}, "unsupported_model", "/model/kind"),
        ("tree_sfw_l1", {"assumptions": GIVEN | {"lipschitz": 1e-200}}, "invalid_value", "/assumptions/lipschitz"),
        ("dp_fw", {"assumptions": GIVEN | {"lipschitz": 1e-200}}, "invalid_value", "/assumptions/lipschitz"),
        ("dp_sgd_output", {"model": {"kind": "mlp"}}, "unsupported_model", "/model/kind"),
        ("dp_sgd_output", {"assumptions": OTHER_LOSS}, "invalid_value", "/assumptions/holder_exponent"),
        (
            "noisy_sfw_lp",
            {"assumptions": GIVEN | {"norm_order": 1.5, "lipschitz": 1e-200}},
            "invalid_value",
            "/assumptions/lipschitz",
        ),
        ("dp_sgd", {"gradient_bound": TINY}, "invalid_value", "/gradient_bound/max_grad_norm"),
        (
            "localized_clipped_subgradient",
            {"assumptions": {"diameter": 4, "localization_power": 4}},
            "invalid_value",
            "/assumptions/localization_power",
        ),
        (
            "proximal_weakly_convex",
            {"assumptions": {"weak_convexity": 1, "inner_iterations": 1e8}},
            "invalid_value",
            "/assumptions/inner_iterations",
        ),
    ],
)
@pytest.mark.one_in(12)
def test_what_the_trainer_does_not_carry_out_is_refused_before_it_is_charged(
    service, algorithm, changes, code, pointer
):
    budget = service.budget(neighboring_relation="replace_one")
    refused = service.run(**request_for(algorithm, budget_id=budget["id"], **changes))
    assert_problem(refused, 422, code, pointer)
    assert [entry["kind"] for entry in service.get(f"/v1/budgets/{budget['id']}/entries")["items"]] == ["create"]
    assert service.get("/v1/runs")["items"] == []


def test_slots_that_no_memory_holds_are_refused_before_anything_is_charged(quick):
    """A run has as many slots as the data set's capacity, however few records there are."""
    dataset = quick.dataset("a,y\n1,no\n", **LARGE)
    roomy = quick.dataset("a,y\n1,no\n", **LARGE | {"declared_size": 1000, "capacity": 10**9})
    for algorithm in ("tree_sfw_l1", "dp_fw", "dp_sgd"):
        for large in (dataset, roomy):
            refused = quick.run(**request_for(algorithm, dataset_id=large["id"]))
            assert_problem(refused, 422, "too_many_slots", "/dataset_id")


@pytest.mark.thorough  # test_models.py and the refusals above are shorter
def test_the_models_that_are_listed_for_an_algorithm_are_those_that_a_run_takes(quick):
    listed = {item["name"]: item["models"] for item in quick.get("/v1/algorithms")["items"]}
    assert set(listed) == set(ALGORITHMS)
    for algorithm, models in listed.items():
        answer = quick.run(**request_for(algorithm, model={"kind": "mlp"}))
        is_refused = answer.status_code == 422 and answer.json()["code"] == "unsupported_model"
        assert is_refused == ("mlp" not in models), answer.text
        if models != ["mean"]:
            assert {"logistic_regression", "linear_regression"} < set(models)
            mean = quick.run(**request_for(algorithm, model={"kind": "mean"}))
            assert_problem(mean, 422, "unsupported_model", "/model/kind")


def test_the_examples_are_of_every_algorithm():
    assert {example["value"].get("algorithm") for example in RUN_EXAMPLES.values()} - {None} == set(ALGORITHMS)
