"""Plans of every algorithm in `/v1/calibrate`: the hash is of what is shown, and defaults are the paper's."""

from __future__ import annotations

import itertools
import math
import secrets
from dataclasses import replace
from typing import Any

import pytest

from accounting.canonical import canonical_bytes
from accounting.events import CyclicPoisson, FullBatch, Poisson
from accounting.relations import NeighboringRelation
from calibrators.algorithm import Algorithm
from calibrators.plan import BoundedSteps, Plan, plan_from_canonical
from calibrators.registry import ALGORITHMS, calibrate
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine

CLIP = {"kind": "clip", "max_grad_norm": 2.0}
LONG = {"step_size": 2}
#: Small requests of those algorithms of which single numbers are tested.
SMALL: dict[str, dict[str, Any]] = {
    "dp_sgd": {"batch_size": 1000, "sampling": "full_batch", "iterations": 10, "gradient_bound": CLIP},
    "dp_nsgd": {
        "sampling": "full_batch",
        "iterations": 10,
        "gradient_bound": {"kind": "normalize", "regularizer": 0.5},
        "hyperparameters": {"step_size": 0.25},
    },
    "dp_sgd_gradient": {
        "iterations": 1,
        "assumptions": {"radius": 1, "lipschitz": 2},
        "hyperparameters": {"step_size": 0.25},
    },
    "dp_gd": {"iterations": 10, "gradient_bound": CLIP, "assumptions": {"smoothness": 1, "initial_gap": 2}},
    "clipped_sgd_strongly_convex": {
        "iterations": 3,
        "assumptions": {
            "smoothness": 4,
            "strong_convexity": 1,
            "diameter": 2,
            "moment_order": 2,
            "moment_bound": 3,
        },
    },
    "dp_fw": {"iterations": 6, "assumptions": {"radius": 1, "lipschitz": 2, "smoothness": 0.5}},
    "poly_sfw": {"iterations": 6, "assumptions": {"radius": 1, "lipschitz": 2, "smoothness": 0.5}},
    "private_sfw_nonconvex_l1": {"iterations": 6, "assumptions": {"radius": 1, "lipschitz": 2, "smoothness": 0.5}},
    "tree_sfw_l1": {"iterations": 3, "assumptions": {"radius": 1, "lipschitz": 2, "smoothness": 0.5}},
}


def request_of(algorithm: Algorithm) -> dict[str, Any]:
    """The record's example as a request, with all records in every step where the algorithm takes that: it is quick."""
    spec = algorithm.example.spec
    body: dict[str, Any] = {"dataset_size": spec.dataset_size, "dimension": spec.dimension}
    body |= {name: getattr(spec, name) for name in ("batch_size", "iterations") if getattr(spec, name) is not None}
    if spec.assumptions:
        body["assumptions"] = dict(spec.assumptions)
    if spec.gradient_bound is not None:
        body["gradient_bound"] = spec.gradient_bound.to_json()
    if spec.step_size is not None:
        body["hyperparameters"] = {"step_size": spec.step_size}
    if spec.correlation is not None:
        body["correlation"] = {"bands": spec.correlation.bands}
    if FullBatch in algorithm.samplings:
        body.pop("batch_size", None)
        body["sampling"] = "full_batch"
    return body


#: Of every algorithm that there is.
MINIMAL: dict[str, dict[str, Any]] = {
    name: {"dataset_size": 1000, "dimension": 7, **SMALL[name]} if name in SMALL else request_of(algorithm)
    for name, algorithm in ALGORITHMS.items()
}


def plan_of_example(algorithm: Algorithm) -> Plan:
    """The plan of the record's example, with all records in every step where the algorithm takes that."""
    spec = algorithm.example.spec
    if FullBatch in algorithm.samplings:
        spec = replace(spec, sampling="full_batch", batch_size=spec.dataset_size)
    return calibrate(algorithm.name, spec).plan


PLANS: dict[str, Plan] = {name: plan_of_example(algorithm) for name, algorithm in ALGORITHMS.items()}
#: Whose noise is that of selections, with scales in loss units; alone they reach pure DP.
SELECTIONS = [name for name, algorithm in ALGORITHMS.items() if "pure" in algorithm.example.variants]
#: Of whose cost a rho follows.
WITH_RHO = [name for name, plan in PLANS.items() if "zcdp" in plan.events[0].mechanism.filters]
#: Whose noise is one number that a request may give.
WITH_NOISE = [name for name, plan in PLANS.items() if "renyi_dp" in plan.events[0].mechanism.filters]
ZCDP = {"kind": "zcdp", "rho": 0.5}
APPROXIMATE = {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-6}
OTHER = {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5}
PURE = {"kind": "pure_dp", "epsilon": 2}


def body_for(algorithm: str, **changes: Any) -> dict[str, Any]:
    target = ZCDP if algorithm in WITH_RHO else OTHER
    body = {"algorithm": algorithm, "target": target, **MINIMAL[algorithm]}
    return {key: value for key, value in (body | changes).items() if value is not ...}


def ask(reader: Any, algorithm: str, **changes: Any) -> Any:
    return reader.post("/v1/calibrate", json=body_for(algorithm, **changes))


def answered(reader: Any, algorithm: str, **changes: Any) -> dict[str, Any]:
    answer = ask(reader, algorithm, **changes)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def plan_of(body: dict[str, Any]) -> Plan:
    """The plan that is shown, if it has the hash that is shown."""
    return plan_from_canonical(canonical_bytes(body["plan"]), body["plan_hash"])


L1 = {"kind": "l1", "strength": 1}
BALL = {"kind": "l2_ball", "radius": 1.0}
VARIATIONS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in MINIMAL),
    *((name, {"target": APPROXIMATE}) for name in MINIMAL),
    *(
        (name, {"neighboring_relation": "replace_special"})
        for name, algorithm in ALGORITHMS.items()
        if NeighboringRelation.REPLACE_SPECIAL in algorithm.relations
    ),
    *((name, {"target": PURE}) for name in SELECTIONS),
    ("tree_sfw_l1", {"assumptions": {"lipschitz": 1 / 3, "smoothness": 0, "diameter": 0.1}}),
    ("clipped_sgd_strongly_convex", {"neighboring_relation": "add_or_remove_one"}),
    ("clipped_sgd_strongly_convex", {"hyperparameters": {"step_size": 0.1}, "gradient_bound": CLIP}),
    ("clipped_sgd_strongly_convex", {"domain": BALL, "penalty": {"kind": "l2", "strength": 0.5}}),
    ("clipped_sgd_strongly_convex", {"assumptions": {}, "gradient_bound": CLIP}),
    ("dp_gd", {"assumptions": {"smoothness": 1, "initial_gap": 2, "pl_constant": 0.5}}),
    ("dp_gd", {"assumptions": {}, "penalty": {"kind": "l1", "strength": 0.1}}),
    ("dp_sgd", {"domain": {"kind": "lp_ball", "norm_order": 1.5, "radius": 3}}),
    ("dp_sgd", {"domain": {"kind": "simplex", "scale": 1e-3}, "hyperparameters": {"step_size": 1e-7}}),
    ("dp_nsgd", {"domain": {"kind": "box", "lower": -1, "upper": 0}, "penalty": {"kind": "l2", "strength": 1e12}}),
    ("dp_nsgd", {"domain": {"kind": "l1_ball", "radius": 2}}),
]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("algorithm", "changes"), VARIATIONS)
def test_the_hash_is_of_the_plan_that_is_shown(reader, algorithm, changes):
    body = answered(reader, algorithm, **changes)
    plan = plan_of(body)
    assert plan.algorithm == algorithm
    assert [event.count for event in plan.events] == [event["count"] for event in body["events"]]
    assert body["events"] == [phase["event"] for phase in body["plan"]["phases"]]
    for name in ("domain", "penalty"):
        if name in changes:
            assert body["plan"][name] == changes[name]


def test_the_hash_is_of_all_of_the_plan(reader):
    hashes = [answered(reader, algorithm, **changes)["plan_hash"] for algorithm, changes in VARIATIONS]
    assert len(set(hashes)) == len(hashes)


def test_what_a_plan_does_not_have_is_not_in_it(reader):
    plan = answered(reader, "dp_sgd", dtype="float64")["plan"]
    assert set(plan) == {"algorithm", "dataset_size", "neighboring_relation", "phases", "engine"}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("algorithm", MINIMAL)
def test_what_is_left_out_is_the_first_that_is_named(reader, algorithm):
    paper = ALGORITHMS[algorithm]
    relation = "add_or_remove_one" if paper.samplings[0] in (Poisson, CyclicPoisson) else "replace_one"
    changes: dict[str, Any] = {"sampling": ...}
    if FullBatch in paper.samplings[1:]:
        changes |= {"iterations": 1, "batch_size": 1000}
    body = answered(reader, algorithm, **changes)
    assert body["plan"]["neighboring_relation"] == str(paper.relations[0]) == relation
    assert body["convention"]["neighboring_relation"] == relation
    [event] = body["events"]
    if isinstance(PLANS[algorithm].phases[0], BoundedSteps):
        assert event["sampling"]["kind"] == paper.samplings[0].kind
    else:
        assert event["sampling"] == {"kind": "full_batch"}
        assert event["mechanism"]["kind"] == PLANS[algorithm].events[0].mechanism.kind
        assert PLANS[algorithm].events[0].count > 1 or event["count"] == 1
    named = answered(
        reader, algorithm, **changes | {"sampling": paper.samplings[0].kind, "neighboring_relation": relation}
    )
    assert named["plan_hash"] == body["plan_hash"]
    described = reader.get(f"/v1/algorithms/{algorithm}").json()
    assert described["samplings"][0] == paper.samplings[0].kind
    assert described["neighboring_relations"][0] == relation


@on_one_engine
@pytest.mark.one_in(2)
@pytest.mark.parametrize("relation", ["replace_one", "replace_special", "add_or_remove_one"])
@pytest.mark.parametrize("algorithm", ["dp_gd", "tree_sfw_l1"])
def test_a_budget_brings_its_relation(client, algorithm, relation):
    terms = {"name": "b", "neighboring_relation": relation, "filter": {"kind": "zcdp", "rho": 2}}
    budget = client.post("/v1/budgets", json=terms, headers={"Idempotency-Key": secrets.token_hex(8)}).json()
    for where in ({"budget_id": budget["id"]}, {"target": {"kind": "budget", "budget_id": budget["id"]}}):
        answer = ask(client, algorithm, **where)
        if algorithm == "tree_sfw_l1" and relation == "add_or_remove_one":
            assert_problem(answer, 422, "unsupported_relation", "/neighboring_relation")
            continue
        body = answer.json()
        assert body["plan"]["neighboring_relation"] == relation
        assert body["cost_in_budget"]["fits"]
        other = next(each for each in ("replace_one", "replace_special") if each != relation)
        mismatch = ask(client, algorithm, **where, neighboring_relation=other)
        assert_problem(mismatch, 422, "relation_mismatch", "/neighboring_relation")
    if answer.status_code == 200:
        assert body["achieved"]["share_of_remaining"] == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("algorithm", [name for name in WITH_NOISE if name not in SELECTIONS])
def test_gaussian_noise_has_no_pure_dp_and_the_refusal_says_so(reader, algorithm):
    problem = assert_problem(ask(reader, algorithm, target=PURE), 422, "no_cost_in_filter", "/target/kind")
    assert "gaussian" in problem["detail"].lower()


def test_pure_dp_is_reached_by_selections_and_needs_no_delta(reader):
    body = answered(reader, "tree_sfw_l1", target=PURE)
    assert body["achieved"]["epsilon"] <= 2.0
    assert body["achieved"]["epsilon"] == pytest.approx(2.0, rel=1e-8)
    assert "delta" not in body["achieved"]
    [event] = body["events"]
    assert event["mechanism"] == {"kind": "pure_dp", "epsilon": body["achieved"]["epsilon"]}
    assert body["literal"]["verdict"] == "unsound"
    unneeded = ask(reader, "tree_sfw_l1", target=PURE | {"delta": 1e-6})
    assert_problem(unneeded, 422, "invalid_request", "/target/delta", "unknown_field")


def test_noise_that_is_not_gaussian_has_a_scale_for_each_tree(reader):
    body = answered(reader, "tree_sfw_l1")
    scales = body["solution"]["noise_scale"]
    assert body["noise"] == {
        "stddev_on_sum": None,
        "stddev_on_mean": None,
        "l2_sensitivity": None,
        "noise_scale": scales,
    }
    assert scales == body["plan"]["phases"][0]["noise_scales"]
    assert len(scales) == 3
    [shown] = [number for number in body["hyperparameters"] if number["name"] == "noise_scale"]
    assert (shown["value"], shown["unit"]) == (scales, "loss")


def test_step_sizes_that_vary_are_shown_one_by_one(reader):
    body = answered(reader, "clipped_sgd_strongly_convex")
    steps = body["plan"]["phases"][0]["step_size"]
    assert len(steps) == 4
    [shown] = [number for number in body["hyperparameters"] if number["name"] == "step_size"]
    assert (shown["value"], shown["unit"]) == (steps, "parameter^2 / loss")
    assert math.fsum(body["plan"]["release"]["weights"]) == pytest.approx(1.0)


@pytest.mark.parametrize("algorithm", MINIMAL)
def test_the_papers_own_calibration_has_a_verdict_that_nothing_executes(reader, algorithm):
    body = answered(reader, algorithm, target=APPROXIMATE, judge_literal=True)
    literal = body["literal"]
    assert set(literal) == {"noise_multiplier", "noise_stddev_on_mean", "verdict", "why", "formula", "source"}
    assert literal["verdict"] in ("sound", "loose", "unsound")
    assert len(literal["why"].split()) > 5
    printed = {literal["noise_multiplier"], literal["noise_stddev_on_mean"]} - {None}
    executed = {body["noise"]["stddev_on_mean"], body["solution"].get("noise_multiplier")}
    # Noise that needs no correction may be printed, too.
    assert not printed & executed or literal["verdict"] == "sound"


@pytest.mark.parametrize("algorithm", MINIMAL)
def test_an_unknown_constant_is_pointed_at_with_those_that_there_are(reader, algorithm):
    assumptions = MINIMAL[algorithm].get("assumptions", {}) | {"lipshitz": 1.0}
    answer = ask(reader, algorithm, assumptions=assumptions)
    problem = assert_problem(answer, 422, "unknown_assumption", "/assumptions/lipshitz")
    assert all(item.name in problem["detail"] for item in ALGORITHMS[algorithm].assumptions)


def test_constants_beyond_their_ranges_are_pointed_at(reader):
    for algorithm, minimal in MINIMAL.items():
        for item in ALGORITHMS[algorithm].assumptions:
            if item.upper >= 1e30 and item.lower <= -1e30:
                continue
            value = item.upper * 2 if item.upper < 1e30 else item.lower - 1
            assumptions = minimal.get("assumptions", {}) | {item.name: value}
            answer = ask(reader, algorithm, assumptions=assumptions)
            assert_problem(answer, 422, "invalid_value", f"/assumptions/{item.name}")


@pytest.mark.parametrize(
    ("algorithm", "changes", "code", "pointer"),
    [
        ("dp_sgd", {"gradient_bound": ...}, "missing", "/gradient_bound"),
        ("dp_gd", {"gradient_bound": ...}, "missing", "/gradient_bound"),
        ("tree_sfw_l1", {"gradient_bound": CLIP}, "unsupported_gradient_bound", "/gradient_bound"),
        ("tree_sfw_l1", {"penalty": {"kind": "l2", "strength": 1}}, "unsupported", "/penalty"),
        ("tree_sfw_l1", {"hyperparameters": {"step_size": 0.1}}, "unsupported", "/hyperparameters/step_size"),
        ("tree_sfw_l1", {"domain": BALL}, "unsupported_domain", "/domain/kind"),
        ("tree_sfw_l1", {"domain": {"kind": "l1_ball", "radius": 2}}, "contradiction", "/domain/radius"),
        ("tree_sfw_l1", {"neighboring_relation": "add_or_remove_one"}, "unsupported_relation", "/neighboring_relation"),
        ("tree_sfw_l1", {"sampling": "poisson"}, "unsupported_sampling", "/sampling"),
        ("tree_sfw_l1", {"batch_size": 48}, "invalid_value", "/batch_size"),
        ("dp_fw", {"batch_size": 48}, "invalid_value", "/batch_size"),
        ("poly_sfw", {"batch_size": 48}, "overdetermined", "/batch_size"),
        ("poly_sfw", {"iterations": 700}, "too_few_records", "/iterations"),
        ("poly_sfw", {"hyperparameters": LONG}, "invalid_value", "/hyperparameters/step_size"),
        ("poly_sfw", {"dimension": ...}, "missing", "/dimension"),
        ("private_sfw_nonconvex_l1", {"iterations": 1}, "invalid_value", "/iterations"),
        ("private_sfw_nonconvex_l1", {"iterations": 501}, "too_few_records", "/iterations"),
        ("private_sfw_nonconvex_l1", {"hyperparameters": LONG}, "invalid_value", "/hyperparameters/step_size"),
        ("dp_fw", {"hyperparameters": {"step_size": 0.1}}, "unsupported", "/hyperparameters/step_size"),
        ("dp_fw", {"iterations": ..., "dimension": ...}, "missing", "/iterations"),
        ("tree_sfw_l1", {"iterations": 12}, "invalid_value", "/iterations"),
        ("tree_sfw_l1", {"iterations": ..., "dimension": ...}, "missing", "/iterations"),
        ("tree_sfw_l1", {"assumptions": {"radius": 1, "smoothness": 1}}, "missing", "/assumptions/lipschitz"),
        ("dp_gd", {"sampling": "poisson"}, "unsupported_sampling", "/sampling"),
        ("dp_gd", {"iterations": ..., "assumptions": {}}, "missing", "/iterations"),
        ("dp_sgd_gradient", {"penalty": {"kind": "l2", "strength": 1}}, "unsupported", "/penalty"),
        ("dp_sgd_gradient", {"domain": BALL | {"radius": 2}}, "overdetermined", "/domain/radius"),
        ("dp_sgd_gradient", {"domain": {"kind": "box", "lower": 0, "upper": 1}}, "unsupported_domain", "/domain/kind"),
        ("dp_sgd_gradient", {"assumptions": {}}, "missing", "/assumptions/radius"),
        ("clipped_sgd_strongly_convex", {"batch_size": 10}, "overdetermined", "/batch_size"),
        ("clipped_sgd_strongly_convex", {"iterations": 1000}, "too_few_records", "/iterations"),
        ("clipped_sgd_strongly_convex", {"penalty": L1}, "unsupported_penalty", "/penalty/kind"),
        ("dp_sgd", {"domain": {"kind": "box", "lower": 1, "upper": 0}}, "invalid_value", "/domain/upper"),
        ("dp_sgd", {"domain": {"kind": "sphere", "radius": 1}}, "invalid_request", "/domain/kind"),
        ("dp_sgd", {"domain": {"kind": "l2_ball", "radius": 0}}, "invalid_request", "/domain/radius"),
        ("dp_sgd", {"domain": BALL | {"kind": "lp_ball", "norm_order": 1}}, "invalid_request", "/domain/norm_order"),
        ("dp_sgd", {"penalty": {"kind": "l2", "strength": -1}}, "invalid_request", "/penalty/strength"),
        ("dp_sgd", {"penalty": {"kind": "l2", "strength": 1, "radius": 1}}, "invalid_request", "/penalty/radius"),
    ],
)  # fmt: skip
def test_a_part_that_an_algorithm_does_not_have_is_pointed_at(reader, algorithm, changes, code, pointer):
    assert_problem(ask(reader, algorithm, **changes), 422, code, pointer)


@pytest.mark.parametrize("algorithm", ["clipped_sgd_strongly_convex", *SELECTIONS])
@pytest.mark.parametrize("unknown", ["iterations", "batch_size"])
def test_sizes_on_which_the_cost_does_not_depend_are_not_solved_for(reader, algorithm, unknown):
    answer = ask(reader, algorithm, solve_for=unknown, noise_multiplier=2.0, **{unknown: ...})
    assert_problem(answer, 422, "unsupported", "/solve_for")


@pytest.mark.parametrize("algorithm", [name for name in WITH_NOISE if name != "dp_sgd_gradient"])
def test_epsilon_of_given_noise_is_solved_for_by_every_algorithm(reader, algorithm):
    target = {"kind": "approximate_dp", "delta": 1e-6}
    noise = answered(reader, algorithm, target=APPROXIMATE)
    multiplier = noise["solution"].get("noise_multiplier")
    if multiplier is None:
        [multiplier] = [each["value"] for each in noise["hyperparameters"] if each["name"] == "noise_multiplier"]
    given = {"solve_for": "epsilon", "noise_multiplier": multiplier, "target": target}
    [event] = noise["events"]
    if "iterations" not in MINIMAL[algorithm] and event["count"] > 1:
        given["iterations"] = event["count"]  # which the theorem chose where the noise was not given
    body = answered(reader, algorithm, **given)
    assert 0 < body["solution"]["epsilon"] <= 2.0
    assert body["plan_hash"] == noise["plan_hash"]
    plan_of(body)


def test_more_privacy_never_needs_less_noise(reader):
    for algorithm in MINIMAL:
        targets = [{"kind": "zcdp", "rho": rho} for rho in (0.01, 0.1, 1.0)]
        if algorithm not in WITH_RHO:
            targets = [{"kind": "approximate_dp", "epsilon": epsilon, "delta": 1e-6} for epsilon in (0.3, 1, 3)]
        found = [answered(reader, algorithm, target=target)["noise"] for target in targets]
        scales = [each["noise_scale"][0] if each["noise_scale"] else each["stddev_on_mean"] for each in found]
        assert all(one > other for one, other in itertools.pairwise(scales)), algorithm


@pytest.mark.parametrize("algorithm", MINIMAL)
def test_a_verdict_is_asked_for_and_changes_nothing_else(reader, algorithm):
    asked, unasked = (answered(reader, algorithm, target=APPROXIMATE, judge_literal=judged) for judged in (True, False))
    for name in ("noise_multiplier", "noise_stddev_on_mean", "formula", "source"):
        assert unasked["literal"][name] == asked["literal"][name]
    assert unasked["literal"]["verdict"] in (None, asked["literal"]["verdict"])
    assert {**unasked, "literal": None} == {**asked, "literal": None}


def test_a_calibration_does_not_judge_unless_asked(reader):
    literal = answered(reader, "dp_gd", target=APPROXIMATE)["literal"]
    assert literal["noise_stddev_on_mean"] > 0.0
    assert (literal["verdict"], literal["why"]) == (None, "The request did not ask for a verdict on the printed noise.")
