"""Every kind of model from a request to a released file, which a reader of a few lines can use; and what is refused."""

from __future__ import annotations

import hashlib
import io
import json
import time
from typing import Any

import numpy as np
import pytest

from app.datasets import service as datasets
from app.runs.report_schemas import ModelCard
from app.tables.runs import Run
from tests.app.problem_assertions import assert_problem
from trainer.models import MODELS

NUMBERS = [
    {"name": "a", "type": "number", "lower": 0, "upper": 10},
    {"name": "color", "type": "category", "categories": ["red", "green", "blue"]},
    {"name": "b", "type": "number", "lower": -1, "upper": 1},
]
NUMBER_LABEL = {"name": "y", "type": "number", "lower": -20, "upper": 60}
MANY = {"name": "y", "type": "category", "categories": ["low", "middle", "high"]}
TWO = {"name": "y", "type": "category", "categories": ["no", "yes"]}

CLASSIFIERS: dict[str, dict[str, Any]] = {
    "logistic": {"kind": "logistic_regression"},
    "no intercept": {"kind": "logistic_regression", "fit_intercept": False},
    "softmax": {"kind": "softmax_regression"},
    "hinge": {"kind": "q_norm_hinge", "q": 1.25},
    "relu": {"kind": "mlp", "hidden": [8, 5]},
    "tanh": {"kind": "mlp", "hidden": [8], "activation": "tanh"},
}
REGRESSIONS: dict[str, dict[str, Any]] = {
    "least squares": {"kind": "linear_regression"},
    "no intercept": {"kind": "linear_regression", "fit_intercept": False},
    "huber": {"kind": "huber_regression", "threshold": 0.25},
    "median": {"kind": "quantile_regression", "quantile": 0.5},
    "q norm": {"kind": "q_norm_regression", "q": 1.5},
}
#: Noise so small that what is learnt is what the data say: the tests are about the way there.
TRAINED: dict[str, Any] = {
    "target": {"kind": "zcdp", "rho": 1e6},
    "iterations": 300,
    "hyperparameters": {"step_size": 1.0},
}
#: Gradients that do not vanish at the minimum need short steps.
KINKED = TRAINED | {"iterations": 1500, "hyperparameters": {"step_size": 0.05}}


def rows(label: dict[str, Any]) -> list[list[Any]]:
    """Rows whose label is a function of them: linear, or cut into classes of it."""
    random = np.random.default_rng(3)
    found = []
    for _ in range(60):
        a, b, color = random.uniform(0, 10), random.uniform(-1, 1), random.choice(["red", "green", "blue"])
        value = 4.0 * a + 5.0 * b + {"red": 0.0, "green": 8.0, "blue": -8.0}[color]
        classes = label.get("categories")
        given = value if classes is None else classes[min(int((value + 13) / 66 * len(classes)), len(classes) - 1)]
        found.append([a, str(color), b, given])
    return found


def inline(label: dict[str, Any]) -> dict[str, Any]:
    return {"public": True, "columns": [*NUMBERS, label], "label": "y", "rows": rows(label)}


def scaled(column: dict[str, Any], value: Any) -> list[float]:
    """A value as the documented model reads it."""
    if column["type"] == "category":
        return [float(value == category) for category in column["categories"]]
    return [max(-1.0, min(1.0, 2 * (value - column["lower"]) / (column["upper"] - column["lower"]) - 1))]


def predicted(model: dict[str, Any], parameters: dict[str, Any], table: list[list[Any]]) -> list[Any]:
    """What the documented model says of rows: a class's name, or the label in its own unit."""
    features = model["features"]
    x = np.array([np.concatenate([scaled(c, v) for c, v in zip(features, row, strict=False)]) for row in table])
    names = (
        ["weights"] if "weights" in parameters else [f"weights_{n}" for n in (1, 2, 3) if f"weights_{n}" in parameters]
    )
    for name in names:
        x = x @ np.array(parameters[name]) + np.array(parameters.get(name.replace("weights", "bias"), 0.0))
        if name != names[-1]:
            x = np.maximum(x, 0.0) if model["model"]["activation"] == "relu" else np.tanh(x)
    if model["classes"]:
        return [model["classes"][int(row > 0) if np.ndim(row) == 0 else int(np.argmax(row))] for row in x]
    lower, upper = model["label"]["lower"], model["label"]["upper"]
    return [float((lower + upper) / 2 + (upper - lower) / 2 * z) for z in x]


def released(quick: Any, run: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The model as JSON, and its parameters as they are there and in the NPZ."""
    model = quick.model(run)
    content = quick.client.get(f"/v1/runs/{run['id']}/model?format=npz").content
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        npz = {name: arrays[name] for name in run["result"]["parameters"]}
        assert str(arrays["plan_hash"]) == run["plan_hash"] == model["plan_hash"]
        assert arrays["feature_names"].tolist() == ["a", "color", "b"]
        assert list(arrays["classes"]) == model["classes"]
        # The file says all that the JSON does.
        document = json.loads(arrays["document"].item())
    assert document == {name: value for name, value in model.items() if name != "parameters"}
    return model, [model["parameters"], npz]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_is_released_with_all_that_its_reader_needs(quick, name):
    choice = CLASSIFIERS[name]
    label = TWO if choice["kind"] in ("logistic_regression", "q_norm_hinge") else MANY
    run = quick.trained(dataset=inline(label), model=choice, **TRAINED)
    assert {key: run["model"][key] for key in choice} == choice
    [metric] = run["result"]["metrics"]
    assert (metric["records"], metric["mean_absolute_error"]) == (60, None)
    assert metric["accuracy"] > 0.8
    model, parameters = released(quick, run)
    labels = [row[-1] for row in rows(label)]
    for found in parameters:
        right = [one == other for one, other in zip(predicted(model, found, rows(label)), labels, strict=True)]
        assert sum(right) / len(right) == pytest.approx(metric["accuracy"], abs=1e-12)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", REGRESSIONS)
def test_a_regression_predicts_the_label_and_is_scored_in_its_unit(quick, name):
    run = quick.trained(dataset=inline(NUMBER_LABEL), model=REGRESSIONS[name], **KINKED)
    [metric] = run["result"]["metrics"]
    assert metric["accuracy"] is None
    # Labels are spread over tens of units, so it has learnt what they are.
    assert metric["mean_absolute_error"] < 4.0
    model, parameters = released(quick, run)
    assert model["classes"] == []
    labels = np.array([row[-1] for row in rows(NUMBER_LABEL)])
    for found in parameters:
        errors = np.abs(np.array(predicted(model, found, rows(NUMBER_LABEL))) - labels)
        assert np.mean(errors) == pytest.approx(metric["mean_absolute_error"], rel=1e-9)


def test_a_classifier_has_every_score_of_its_public_rows(quick):
    run = quick.trained(dataset=inline(MANY), model={"kind": "softmax_regression"}, **TRAINED)
    [metric] = run["result"]["metrics"]
    assert (metric["rows"], metric["records"], metric["dataset_id"]) == ("training", 60, None)
    table = np.array(metric["confusion_matrix"])
    assert np.trace(table) / table.sum() == metric["accuracy"]
    assert table.sum() == 60
    assert metric["auc"] > 0.9
    assert 0.0 < metric["log_loss"] < np.log(3)
    assert 0.0 < metric["calibration_error"] < 0.5
    assert (metric["r_squared"], metric["root_mean_squared_error"]) == (None, None)
    report = quick.report(run)
    assert report["scores"] == [metric]
    card = quick.client.get(f"/v1/runs/{run['id']}/report?format=markdown").text
    assert "On 60 training rows of the request" in card
    assert f"{metric['auc']!r}" in card


def test_a_run_from_before_has_fewer_scores_and_a_complete_file(quick):
    run = quick.trained(dataset=inline(TWO), model={"kind": "logistic_regression"}, **TRAINED)
    with quick.context.database.write() as session:
        row = session.get_one(Run, run["id"])
        old = [{"dataset_id": None, "records": 60, "accuracy": 0.9, "mean_absolute_error": None}]
        row.result = row.result | {"metrics": old}
    [metric] = quick.get(f"/v1/runs/{run['id']}")["result"]["metrics"]
    assert (metric["rows"], metric["accuracy"], metric["auc"]) == (None, 0.9, None)
    assert quick.report(run)["scores"] == [metric]
    assert "On 60 public rows of the request" in quick.client.get(f"/v1/runs/{run['id']}/report?format=markdown").text
    assert released(quick, run)[0]["features"] == NUMBERS


def test_a_model_says_its_guarantee_and_where_its_card_is(quick):
    run = quick.trained(dataset=inline(TWO), model={"kind": "logistic_regression"}, **TRAINED)
    model, report = quick.model(run), quick.report(run)
    assert model["guarantee"] == {
        **{name: report[name] for name in ("statement", "privacy_unit", "neighbors")},
        "card": f"/v1/runs/{run['id']}/report",
    }
    assert quick.get(model["guarantee"]["card"])["plan_hash"] == model["plan_hash"]
    assert (model["run_id"], model["algorithm"], model["format_version"]) == (run["id"], "dp_sgd", 1)
    with quick.context.database.write() as session:
        row = session.get_one(Run, run["id"])
        row.plan = row.plan.replace(b"dp_sgd", b"dp_xyz")
    altered = quick.model(run)
    assert (altered["guarantee"], altered["card"], altered["card_hash"]) == (None, None, None)


def test_a_model_holds_what_stays_of_its_card_whatever_is_said_done_or_deleted_later(quick):
    budget = quick.budget()
    dataset = quick.dataset(budget_id=budget["id"])
    run = quick.trained(dataset_id=dataset["id"], budget_id=budget["id"], iterations=2)
    model, before = quick.model(run), quick.report(run)
    assert set(model["card"]) == set(ModelCard.model_fields)
    assert model["card"] == {name: before[name] for name in model["card"]}
    text = json.dumps(model["card"], sort_keys=True, separators=(",", ":"))
    assert model["card_hash"] == hashlib.sha256(text.encode()).hexdigest()
    path = f"/v1/runs/{run['id']}/model?format=npz"
    content = quick.client.get(path).content
    said = quick.post(f"/v1/budgets/{budget['id']}/deployment", {"curator": "the clinic"})
    assert said.status_code in (200, 201), said.text
    assert quick.post("/v1/audits", {"run_id": run["id"], "trials": 20, "seed": 1}).status_code == 201
    datasets.delete(quick.context, dataset["id"])
    after = quick.report(run)
    assert {name for name in before if before[name] != after[name]} >= {"deployment", "audits", "data"}
    assert quick.client.get(path).content == content


def test_a_file_is_the_same_whenever_it_is_asked_for(quick):
    run = quick.trained(dataset=inline(TWO), model={"kind": "logistic_regression"}, **TRAINED)
    path = f"/v1/runs/{run['id']}/model?format=npz"
    first = quick.client.get(path)
    assert first.headers["content-disposition"] == f'attachment; filename="{run["id"]}.npz"'
    time.sleep(2.1)  # Archives have moments of two seconds.
    assert quick.client.get(path).content == first.content


def test_a_quantile_is_above_as_many_labels_as_asked_for(quick):
    random = np.random.default_rng(5)
    table = [[*row[:-1], float(random.uniform(-20, 60))] for row in rows(NUMBER_LABEL)]
    shares = []
    for quantile in (0.1, 0.9):
        choice = {"kind": "quantile_regression", "quantile": quantile}
        run = quick.trained(dataset=inline(NUMBER_LABEL) | {"rows": table}, model=choice, **KINKED)
        model = quick.model(run)
        found = predicted(model, model["parameters"], table)
        shares.append(np.mean([row[-1] < value for row, value in zip(table, found, strict=True)]))
    assert shares[0] < 0.3
    assert shares[1] > 0.7


def test_a_bundled_set_with_a_number_as_its_label_is_learnt(quick):
    run = quick.trained(
        dataset_id="ds_diabetes",
        test_dataset_id="ds_diabetes",
        model={"kind": "huber_regression"},
        **TRAINED | {"iterations": 100},
    )
    [test, training] = run["result"]["metrics"]
    assert (test.pop("rows"), training.pop("rows")) == ("test", "training")
    assert test == training
    assert 0.0 < test["r_squared"] < 1.0
    assert test["root_mean_squared_error"] > test["mean_absolute_error"]
    assert test["dataset_id"] == "ds_diabetes"
    # The mean is off by 66 of the label's units.
    assert test["mean_absolute_error"] < 60.0


def test_every_kind_is_tried_here():
    tried = {choice["kind"] for choice in (*CLASSIFIERS.values(), *REGRESSIONS.values())}
    assert tried | {"mean"} == set(MODELS)


@pytest.mark.parametrize("label", [TWO, NUMBER_LABEL])
def test_a_mean_is_that_of_the_scaled_features_whatever_the_label_is(quick, label):
    choice = {"algorithm": "clipped_mean", "gradient_bound": {"kind": "clip", "max_grad_norm": 4.0}, "seed": 2}
    left_out = dict.fromkeys(("sampling", "neighboring_relation", "batch_size", "iterations", "hyperparameters"), ...)
    target = {"kind": "zcdp", "rho": 1e4}
    request = {**TRAINED, **left_out, **choice, "target": target, "model": {"kind": "mean"}}
    run = quick.trained(dataset=inline(label), **request)
    assert run["result"]["metrics"] == []
    model, parameters = released(quick, run)
    features = [
        np.concatenate([scaled(c, v) for c, v in zip(model["features"], row, strict=False)]) for row in rows(label)
    ]
    for found in parameters:
        assert np.array(found["mean"]) == pytest.approx(np.mean(features, axis=0), abs=0.01)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("dataset", "kind", "code"),
    [
        ("ds_diabetes", "logistic_regression", "label_not_categorical"),
        ("ds_diabetes", "softmax_regression", "label_not_categorical"),
        ("ds_diabetes", "q_norm_hinge", "label_not_categorical"),
        ("ds_diabetes", "mlp", "label_not_categorical"),
        ("ds_digits", "linear_regression", "label_not_numeric"),
        ("ds_digits", "huber_regression", "label_not_numeric"),
        ("ds_digits", "quantile_regression", "label_not_numeric"),
        ("ds_digits", "q_norm_regression", "label_not_numeric"),
        ("ds_digits", "logistic_regression", "label_not_binary"),
        ("ds_digits", "q_norm_hinge", "label_not_binary"),
    ],
)
def test_a_label_that_the_model_cannot_learn_is_refused_with_those_that_can(quick, dataset, kind, code):
    problem = assert_problem(quick.run(dataset_id=dataset, model={"kind": kind}), 422, code, "/model/kind")
    suggested = [known for known in MODELS if known in problem["detail"].partition("use ")[2]]
    assert suggested
    for other in suggested:
        answer = quick.run(dataset_id=dataset, model={"kind": other})
        assert answer.status_code == 202 or answer.json()["code"] == "label_not_binary", (other, answer.text)


@pytest.mark.parametrize("kind", ["logistic_regression", "softmax_regression", "mlp"])
def test_a_label_of_one_category_is_nothing_to_learn(quick, kind):
    label = {"name": "y", "type": "category", "categories": ["always"]}
    answer = quick.run(dataset=inline(label), model={"kind": kind})
    assert_problem(answer, 422, "label_not_categorical", "/model/kind")


@pytest.mark.parametrize(
    ("model", "pointer", "code"),
    [
        ({"kind": "perceptron"}, "/model/kind", "unknown_value"),
        ({}, "/model/kind", "missing"),
        ({"kind": "logistic_regression", "q": 1.5}, "/model/q", "unknown_field"),
        ({"kind": "softmax_regression", "hidden": [3]}, "/model/hidden", "unknown_field"),
        ({"kind": "mlp", "fit_intercept": False}, "/model/fit_intercept", "unknown_field"),
        ({"kind": "mlp", "hidden": []}, "/model/hidden", None),
        ({"kind": "mlp", "hidden": [8] * 5}, "/model/hidden", None),
        ({"kind": "mlp", "hidden": [0]}, "/model/hidden/0", "out_of_range"),
        ({"kind": "mlp", "hidden": [4097]}, "/model/hidden/0", "out_of_range"),
        ({"kind": "mlp", "hidden": [True]}, "/model/hidden/0", "wrong_type"),
        ({"kind": "mlp", "activation": "sigmoid"}, "/model/activation", "unknown_value"),
        ({"kind": "q_norm_hinge", "q": 0.99}, "/model/q", "out_of_range"),
        ({"kind": "q_norm_hinge", "q": 2.01}, "/model/q", "out_of_range"),
        ({"kind": "q_norm_regression", "q": "1.5"}, "/model/q", "wrong_type"),
        ({"kind": "huber_regression", "threshold": 0}, "/model/threshold", "out_of_range"),
        ({"kind": "quantile_regression", "quantile": 1}, "/model/quantile", "out_of_range"),
        ({"kind": "quantile_regression", "quantile": 0}, "/model/quantile", "out_of_range"),
        ({"kind": "linear_regression", "fit_intercept": 1}, "/model/fit_intercept", "wrong_type"),
    ],
)
def test_an_option_that_a_model_does_not_have_is_pointed_at(quick, model, pointer, code):
    assert_problem(quick.run(dataset_id="ds_diabetes", model=model), 422, "invalid_request", pointer, code)


@pytest.mark.parametrize("quantile", [1 - 1e-10, 1e-320])
def test_an_option_at_its_very_edge_is_refused_or_trained_and_never_an_error(quick, quantile):
    answer = quick.run(dataset_id="ds_diabetes", model={"kind": "quantile_regression", "quantile": quantile})
    assert answer.status_code in (202, 422), answer.text
    if answer.status_code == 422:
        assert_problem(answer, 422, "invalid_value", "/model/quantile")
