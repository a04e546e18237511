"""`POST /v1/assumptions`: constants as a run derives them, true of every row within the bounds, with reasons."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app.algorithms.assumptions import ASSUMPTIONS_EXAMPLES
from app.algorithms.binding import DataDescription, build_model
from app.algorithms.constants import Derivation, derive
from app.auth.principal import Scope
from app.auth.service import create_key
from app.datasets.columns import CategoryColumn, NumberColumn
from calibrators.geometry import L2Ball, L2Penalty
from calibrators.registry import ALGORITHMS
from tests.app.problem_assertions import assert_problem
from tests.conformance.latex import faults
from tests.databases import on_one_engine
from trainer import scaling
from trainer.models import LinearModel, MeanModel, build

COLUMNS = [
    {"name": "age", "type": "number", "lower": 0, "upper": 120},
    {"name": "smoker", "type": "category", "categories": ["no", "yes"]},
    {"name": "cost", "type": "number", "lower": 0, "upper": 10000},
]
BALL = {"kind": "l2_ball", "radius": 1.5}
REQUEST = {"model": {"kind": "linear_regression"}, "columns": COLUMNS, "label": "cost", "domain": BALL}
LABELS = {"logistic_regression": "smoker", "softmax_regression": "smoker", "q_norm_hinge": "smoker", "mlp": "smoker"}


def asked(reader: Any, **changes: Any) -> dict[str, Any]:
    body = {key: value for key, value in (REQUEST | changes).items() if value is not None}
    answer = reader.post("/v1/assumptions", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def refused(reader: Any, **changes: Any) -> tuple[int, str, set[str]]:
    body = {key: value for key, value in (REQUEST | changes).items() if value is not None}
    answer = reader.post("/v1/assumptions", json=body)
    problem = answer.json()
    return answer.status_code, problem["code"], {error["pointer"] for error in problem.get("errors", [])}


@pytest.mark.parametrize("name", ASSUMPTIONS_EXAMPLES)
def test_every_example_runs_as_it_stands_and_every_constant_has_its_reason(reader, name):
    answer = reader.post("/v1/assumptions", json=copy.deepcopy(ASSUMPTIONS_EXAMPLES[name]["value"]))
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["constants"]
    assert body["assumptions"] == {item["name"]: item["value"] for item in body["constants"]}
    for item in body["constants"]:
        assert faults(item["formula"]) == [], item
        assert item["reason"].endswith(".")
        assert item["unit"]
    for item in body["not_derivable"]:
        assert item["reason"].endswith(".")
        assert item["name"] not in body["assumptions"]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_numbers_are_those_that_a_run_derives(reader, algorithm):
    """For every algorithm, beside what the domain implies; and what is missing is what the theorem lacks."""
    penalty = {"kind": "l2", "strength": 0.25}
    details = ALGORITHMS[algorithm]
    kind = reader.get(f"/v1/algorithms/{algorithm}").json()["models"][0]
    model = {"kind": kind}
    request = {"model": model, "label": LABELS.get(kind, "cost"), "algorithm": algorithm, "penalty": penalty}
    body = asked(reader, **request)
    features = [column for column in COLUMNS if column["name"] != request["label"]]
    data = DataDescription.model_validate(
        {
            "declared_size": 100,
            "privacy_unit": "record",
            "features": features,
            "label": next(column for column in COLUMNS if column["name"] == request["label"]),
        }
    )
    chosen = SimpleNamespace(kind=kind, model_dump=lambda: model)
    built = build_model(chosen, data)  # type: ignore[arg-type]
    derivation = Derivation(built, tuple(data.scaled_columns), L2Ball(1.5), L2Penalty(0.25))
    taken = {assumption.name for assumption in details.assumptions}
    expected = {name: value for name, value in derivation(details.norm_order, {}).items() if name in taken}
    further = {"diameter", "radius"} & {assumption.name for assumption in details.assumptions}
    assert {name: value for name, value in body["assumptions"].items() if name not in further} == expected
    required = {each.name for each in details.assumptions if each.required and each.default is None}
    assert {item["name"] for item in body["missing"]} == required - set(body["assumptions"])
    assert all(item["meaning"] and item["unit"] for item in body["missing"])
    names = {assumption.name for assumption in details.assumptions}
    assert {item["name"] for item in body["not_derivable"]} <= names - set(body["assumptions"])


@pytest.mark.parametrize(
    ("kind", "domain", "norm_order"),
    [
        ("linear_regression", BALL, 2),
        ("linear_regression", {"kind": "l1_ball", "radius": 2}, 1),
        ("logistic_regression", {"kind": "box", "lower": -0.5, "upper": 1}, 2),
        ("q_norm_regression", BALL, 2),
    ],
)
def test_no_row_within_the_bounds_exceeds_the_constants(reader, kind, domain, norm_order):
    """Gradients, their differences and their moments at random points of the domain, on random and extreme rows."""
    label = LABELS.get(kind, "cost")
    body = asked(reader, model={"kind": kind}, label=label, domain=domain, norm_order=norm_order)
    found, rng = body["assumptions"], np.random.default_rng(5)
    columns = [
        NumberColumn.model_validate(column) if column["type"] == "number" else CategoryColumn.model_validate(column)
        for column in COLUMNS
        if column["name"] != label
    ]
    scaled = [
        scaling.NumberColumn(each.lower, each.upper)
        if isinstance(each, NumberColumn)
        else scaling.CategoryColumn(len(each.categories))
        for each in columns
    ]
    count = 300
    values = [
        rng.choice([each.lower, each.upper, 7.0, 1e6], count)
        if isinstance(each, NumberColumn)
        else rng.integers(0, 2, count)
        for each in columns
    ]
    rows = np.hstack([scaling.scale_features(scaled, values), np.ones((count, 1))])
    model = build(rows.shape[1] - 1, kind=kind, num_classes=2)
    assert isinstance(model, LinearModel)
    assert body["dimension"] == model.num_parameters == rows.shape[1]
    labels = rng.integers(0, 2, count) if model.num_classes else rng.choice([-1.0, 0.0, 1.0], count)
    points = corners(domain, rows.shape[1], rng)
    dual = np.inf if norm_order == 1 else 2
    lengths = np.linalg.norm(rows, ord=dual, axis=1)
    assert lengths.max() <= body["feature_bound"] * (1 + 1e-12)
    gradients = [rows * model.loss.residuals(np, (rows @ point)[:, None], labels) for point in points]
    longest = [np.linalg.norm(each, ord=dual, axis=1) for each in gradients]
    assert max(each.max() for each in longest) <= found["lipschitz"] * (1 + 1e-12)
    assert max(each.max() for each in longest) > 0.3 * found["lipschitz"]
    order = found["moment_order"]
    assert max(np.mean(each**order) ** (1 / order) for each in longest) <= found["moment_bound"]
    apart = []
    for one, here in zip(points, gradients, strict=True):
        for other, there in zip(points, gradients, strict=True):
            distance = float(np.linalg.norm(one - other, ord=norm_order))
            change = np.linalg.norm(here - there, ord=dual, axis=1).max()
            apart.append(distance)
            assert change <= found["holder_constant"] * distance ** found["holder_exponent"] * (1 + 1e-9)
            assert "smoothness" not in found or change <= found["smoothness"] * distance * (1 + 1e-9)
    assert max(apart) <= found["diameter"] * (1 + 1e-12)


def corners(domain: dict[str, Any], dimension: int, rng: Any) -> list[np.ndarray]:
    """Points of the domain, many of them at its border."""
    if domain["kind"] == "box":
        return [
            *rng.uniform(domain["lower"], domain["upper"], (8, dimension)),
            *rng.choice([-0.5, 1.0], (8, dimension)),
        ]
    order = 1 if domain["kind"] == "l1_ball" else 2
    some = [*np.eye(dimension), *-np.eye(dimension), *rng.normal(size=(10, dimension))]
    return [domain["radius"] * each / np.linalg.norm(each, ord=order) for each in some]


def test_moments_of_coordinates_become_moments_of_the_norm(reader):
    """Lemma 21 with 2 for the paper's 4; on records whose coordinates have these moments it holds."""
    order, bound = 3.0, 2.0 ** (1 / 3)
    columns = [{"name": f"x{i}", "type": "number", "lower": -1, "upper": 1} for i in range(9)]
    request = {
        "model": {"kind": "linear_regression", "fit_intercept": False},
        "columns": [*columns, COLUMNS[2]],
        "domain": None,
        "assumptions": {"moment_order": order, "coordinate_moment_bound": bound},
    }
    body = asked(reader, **request)
    [item] = [each for each in body["constants"] if each["name"] == "moment_bound"]
    assert item["value"] == pytest.approx(7.559526299)
    assert "15.1190526" in item["reason"]
    assert "Lemma 21" in item["source"]
    drawn = np.random.default_rng(3).standard_t(4.0, size=(20_000, 9))
    drawn *= bound / np.mean(np.abs(drawn) ** order, axis=0) ** (1 / order)
    shifted = drawn - drawn.mean(axis=0) + bound
    assert np.mean(np.linalg.norm(shifted, axis=1) ** order) ** (1 / order) <= item["value"]
    # A bound that the declarations imply is taken where it is the smaller one, and holds at every order.
    near = asked(
        reader, **(request | {"domain": BALL, "assumptions": {"moment_order": 3, "coordinate_moment_bound": 50}})
    )
    assert near["assumptions"]["moment_bound"] == near["assumptions"]["lipschitz"]
    assert "moment_order" not in near["assumptions"]
    assert refused(reader, **(request | {"assumptions": {"moment_order": 1, "coordinate_moment_bound": 1}}))[1:] == (
        "invalid_value",
        {"/assumptions"},
    )


def test_the_numbers_calibrate_as_they_stand(reader):
    """With the domain and the penalty of the same request, where an algorithm takes them."""
    for name, body in (
        ("clipped_sgd_strongly_convex", {"penalty": {"kind": "l2", "strength": 0.5}}),
        ("dp_fw", {"domain": {"kind": "l1_ball", "radius": 2}}),
        ("noisy_sfw_lp", {"domain": {"kind": "lp_ball", "norm_order": 1.5, "radius": 2}}),
        ("dp_gd", {"domain": None}),
    ):
        found = asked(reader, model={"kind": "logistic_regression"}, label="smoker", algorithm=name, **body)
        assert {item["name"] for item in found["missing"]} <= {"norm_order"}
        request = {key: value for key, value in (REQUEST | body).items() if key in ("domain", "penalty") and value}
        calibrated = reader.post(
            "/v1/calibrate",
            json={
                "algorithm": name,
                "dataset_size": 50_000,
                "dimension": found["dimension"],
                "target": {"kind": "zcdp", "rho": 0.5},
                "assumptions": found["assumptions"],
                **request,
                **({"gradient_bound": {"kind": "clip", "max_grad_norm": 1}} if name == "dp_gd" else {}),
                **({"iterations": 20} if name in ("dp_fw", "dp_gd") else {}),
            },
        )
        assert calibrated.status_code == 200, calibrated.text
        assert calibrated.json()["missing_assumptions"] == []


def reasons(body: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["reason"] for item in body["not_derivable"]}


def test_what_is_not_derivable_says_what_would_be_right(reader):
    unbounded = reasons(asked(reader, domain=None))
    assert "give a domain" in unbounded["lipschitz"]
    assert "l2 penalty" in unbounded["strong_convexity"]
    assert "not a fact about the records" in unbounded["diameter"]
    assert "release" in unbounded["coordinate_moment_bound"]
    bounded = asked(reader, penalty={"kind": "l2", "strength": 1})
    assert not {"lipschitz", "strong_convexity", "diameter"} & {item["name"] for item in bounded["not_derivable"]}
    kink = reasons(asked(reader, model={"kind": "quantile_regression"}))
    assert "holder_exponent" in kink["smoothness"]
    paired = reasons(asked(reader, assumptions={"lipschitz": 1}))
    assert "belongs together" in paired["link_lipschitz"]
    network = asked(reader, model={"kind": "mlp"}, label="smoker")
    assert set(network["assumptions"]) == {"diameter", "radius"}
    assert {"lipschitz", "smoothness", "initial_gap", "strong_convexity"} <= {
        item["name"] for item in network["not_derivable"] if "etwork" in item["reason"]
    }
    away = asked(reader, domain={"kind": "box", "lower": 1, "upper": 2})
    assert "starts elsewhere" in reasons(away)["initial_gap"]


def test_a_means_constants_hold_for_its_records(reader):
    found = asked(reader, model={"kind": "mean"}, domain=None)["assumptions"]
    rows = scaling.scale_features(
        [scaling.NumberColumn(0, 120), scaling.CategoryColumn(2)], [[0.0, 120.0, 60.0, 0.0], [0, 1, 0, 0]]
    )
    assert np.linalg.norm(rows, axis=1).max() == pytest.approx(found["moment_bound"])
    assert np.linalg.norm(rows.mean(axis=0)) <= found["mean_bound"]
    rare = np.where(np.arange(500) < 7, 1.0, -1.0)  # the worst share at this order
    moment = np.mean(np.abs(rare - rare.mean()) ** found["moment_order"]) ** (1 / found["moment_order"])
    assert 0.9 * found["coordinate_moment_bound"] < moment <= found["coordinate_moment_bound"]
    assert {each.name for each in derive(MeanModel(3), [scaling.CategoryColumn(3)], {}, 2.0)} == set(found)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model": {"kind": "forest"}}, (422, None, {"/model/kind"})),
        ({"model": {"kind": "logistic_regression"}}, (422, "label_not_categorical", {"/model/kind"})),
        ({"columns": None, "label": None, "dataset_id": "ds_none"}, (404, "not_found", set())),
        ({"columns": None, "label": None}, (422, "missing", {"/dataset_id"})),
        ({"dataset_id": "ds_diabetes"}, (422, "missing", {"/dataset_id"})),
        ({"columns": None, "dataset_id": "ds_diabetes"}, (422, None, {"/label"})),
        ({"label": None}, (422, "missing", {"/label"})),
        ({"label": "height"}, (422, None, {"/label"})),
        ({"algorithm": "dp_magic"}, (422, "unknown_algorithm", {"/algorithm"})),
        ({"algorithm": "clipped_mean"}, (422, "unsupported_model", {"/model/kind"})),
        ({"assumptions": {"lipschits": 1}}, (422, "unknown_assumption", {"/assumptions/lipschits"})),
        ({"norm_order": 3}, (422, None, {"/norm_order"})),
        ({"norm_order": 1, "algorithm": "dp_gd"}, (422, "overdetermined", {"/norm_order"})),
        ({"domain": {"kind": "box", "lower": 2, "upper": 1}}, (422, None, {"/domain/upper"})),
        ({"rows": [[1, "no", 2]]}, (422, None, {"/rows"})),
    ],
)
def test_faults_are_pointed_at(reader, changes, expected):
    status, code, pointers = refused(reader, **changes)
    assert status == expected[0]
    assert expected[1] in (None, code)
    assert pointers == expected[2] or (not expected[2] and status == 404)


@on_one_engine
def test_a_data_sets_constants_are_those_of_its_declaration_and_it_takes_the_scopes_of_a_run(connect, context):
    seen = {}
    for scope in Scope:
        created = create_key(context, str(scope), [scope])
        assert created is not None
        client = connect(headers={"Authorization": f"Bearer {created.token}"})
        body = {"model": {"kind": "linear_regression"}, "dataset_id": "ds_diabetes", "domain": BALL}
        answer = client.post("/v1/assumptions", json=body)
        seen[scope] = answer.status_code
        if answer.status_code == 200:
            declared = client.get("/v1/datasets/ds_diabetes").json()
            inline = {"columns": declared["columns"], "label": declared["label"]}
            same = client.post("/v1/assumptions", json={"model": body["model"], "domain": BALL} | inline)
            assert same.json() == answer.json()
        else:
            assert_problem(answer, 403, "forbidden")
    assert {scope for scope, status in seen.items() if status == 200} == {Scope.OWNER, Scope.ANALYST, Scope.ADMIN}
