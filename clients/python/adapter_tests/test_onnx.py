"""The graph of each kind of model, run by onnxruntime and compared with the model itself."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from epsilond_client.adapters.onnx import to_onnx
from epsilond_client.models import Model

NUMBERS = [
    {"name": "a", "type": "number", "lower": -3.0, "upper": 7.5},
    {"name": "fixed", "type": "number", "lower": 2.0, "upper": 2.0},
    {"name": "b", "type": "number", "lower": 1e6, "upper": 3e6},
]
COLORS = {"name": "color", "type": "category", "categories": ["red", "grün", "blue"]}
SIZES = {"name": "size", "type": "category", "categories": ["s", "m"]}
COLUMNS = {
    "numbers": NUMBERS,
    "categories": [COLORS, SIZES],
    "mixed": [COLORS, *NUMBERS[:2], SIZES, NUMBERS[2]],
}
CLASSES = ["no", "yes", "perhaps"]
RANDOM = np.random.default_rng(4)


def model_of(kind: str, features: list[dict[str, Any]], **options: Any) -> Model:
    """Return a model with random parameters."""
    inputs = sum(len(each.get("categories", "1")) for each in features)
    classes = {"logistic_regression": CLASSES[:2], "q_norm_hinge": CLASSES[:2], "softmax_regression": CLASSES}
    named = CLASSES if kind == "mlp" else classes.get(kind, [])
    parameters: dict[str, Any] = {}
    if kind == "mlp":
        widths = [inputs, 5, 4, len(CLASSES)]
        for number in range(1, 4):
            parameters[f"weights_{number}"] = RANDOM.normal(size=(widths[number - 1], widths[number]))
            parameters[f"bias_{number}"] = RANDOM.normal(size=widths[number])
    else:
        width = len(CLASSES) if kind == "softmax_regression" else None
        parameters["weights"] = RANDOM.normal(size=inputs if width is None else (inputs, width))
        if options.get("fit_intercept", True):
            parameters["bias"] = RANDOM.normal(size=() if width is None else width)
    label = {"name": "y", "type": "number", "lower": -10.0, "upper": 40.0}
    if named:
        label = {"name": "y", "type": "category", "categories": named}
    document = {
        "format_version": 1,
        "run_id": "run_1",
        "kind": kind,
        "model": {"kind": kind, **options},
        "features": features,
        "classes": named,
        "label": label,
        "plan_hash": "0" * 64,
        "guarantee": {"statement": "said"},
    }
    return Model(document, parameters)


def rows_for(features: list[dict[str, Any]], rows: int = 200) -> dict[str, Any]:
    """Return rows by column, with some numbers beyond their bounds."""
    columns: dict[str, Any] = {}
    for column in features:
        if column["type"] == "category":
            columns[column["name"]] = RANDOM.choice(column["categories"], size=rows).astype(object)
        else:
            spread = column["upper"] - column["lower"] + 1.0
            columns[column["name"]] = RANDOM.uniform(column["lower"] - spread / 4, column["upper"] + spread / 4, rows)
    return columns


def run(made: Any, features: list[dict[str, Any]], columns: dict[str, Any]) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {}
    for name, kind in (("numbers", "number"), ("categories", "category")):
        of_kind = [columns[each["name"]] for each in features if each["type"] == kind]
        if of_kind:
            given[name] = np.stack(of_kind, axis=1)
    names = [output.name for output in session.get_outputs()]
    assert {each.name for each in session.get_inputs()} == set(given)
    return dict(zip(names, session.run(names, given), strict=True))


@pytest.mark.parametrize("features", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("logistic_regression", {}),
        ("logistic_regression", {"fit_intercept": False}),
        ("softmax_regression", {}),
        ("q_norm_hinge", {"q": 1.5}),
        ("mlp", {"activation": "relu", "hidden": [5, 4]}),
        ("mlp", {"activation": "tanh", "hidden": [5, 4]}),
        ("linear_regression", {}),
        ("huber_regression", {"threshold": 1.0}),
        ("quantile_regression", {"quantile": 0.5}),
        ("q_norm_regression", {"q": 1.5}),
    ],
)
def test_a_graph_predicts_as_its_model_does(kind: str, options: dict[str, Any], features: list[dict[str, Any]]) -> None:
    model = model_of(kind, features, **options)
    columns = rows_for(features)
    if last := [name for name in model.parameters if name.startswith("bias")]:
        # This makes every class the prediction for some row.
        model.parameters[last[-1]] = model.parameters[last[-1]] - model.decision_function(columns).mean(axis=0)
    found = run(to_onnx(model), features, columns)
    expected = model.predict(columns)
    if model.classes:
        assert found["label"].tolist() == expected.tolist()
        assert not last or len(set(expected)) > 1
    else:
        np.testing.assert_allclose(found["label"], expected, rtol=1e-12)
    assert ("probabilities" in found) == model.has_probabilities
    if model.has_probabilities:
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(columns), rtol=1e-12, atol=1e-300)


def test_a_graph_says_where_it_comes_from() -> None:
    made = to_onnx(model_of("softmax_regression", COLUMNS["mixed"]))
    told = {each.key: each.value for each in made.metadata_props}
    assert json.loads(told["numbers"]) == ["a", "fixed", "b"]
    assert json.loads(told["categories"]) == ["color", "size"]
    document = json.loads(told["epsilond"])
    assert (document["plan_hash"], document["guarantee"]["statement"]) == ("0" * 64, "said")
    assert onnx.load_from_string(made.SerializeToString()) == made


def test_a_mean_has_no_graph() -> None:
    with pytest.raises(TypeError, match="predicts nothing"):
        to_onnx(Model({"format_version": 1, "features": [], "classes": [], "kind": "mean", "run_id": "run_1"}, {}))
