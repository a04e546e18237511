"""Predictions of the client beside those of the trainer, bit for bit, and what it says of rows that do not fit."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pyarrow
import pytest
from epsilond_client import load
from epsilond_client.models import Model

from app.algorithms.binding import DataDescription, build_model
from app.algorithms.model_choice import MODEL_CHOICE
from app.datasets.inline import load_inline
from app.datasets.schemas import InlineDataset
from tests.app.runs.conftest import quick  # noqa: F401 (a fixture)
from tests.app.runs.test_models import CLASSIFIERS, MANY, NUMBER_LABEL, REGRESSIONS, TRAINED, TWO, inline

NAMES = ("a", "color", "b")
#: A few steps: weights are what they are.
SHORT = TRAINED | {"iterations": 5, "target": {"kind": "zcdp", "rho": 10}, "hyperparameters": {"step_size": 0.05}}
#: Ends of the ranges, what lies just beside and far beyond them, and what divides badly.
HARD = (0.0, -0.0, 10.0, 1.0, -1.0, np.nextafter(10.0, 11.0), 9.999999999999998, 1 / 3, 1e-310, 1e300, -1e300, 7.1)


def table(label: dict[str, Any]) -> dict[str, Any]:
    """Public rows, hard ones among them."""
    dataset = inline(label)
    colors = ["red", "green", "blue"]
    given = label.get("categories", [1.0])[0]
    return dataset | {
        "rows": [*dataset["rows"], *([value, colors[n % 3], HARD[-1 - n], given] for n, value in enumerate(HARD))]
    }


def as_dicts(dataset: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(NAMES, row, strict=False)) for row in dataset["rows"]]


def downloaded(quick: Any, run: dict[str, Any]) -> Model:  # noqa: F811
    content = quick.client.get(f"/v1/runs/{run['id']}/model?format=npz").content
    return Model.from_bytes(content)


@pytest.fixture(scope="module")
def trained(quick):  # noqa: F811
    """A classifier of three classes, a regression, and their data sets."""
    found = {}
    for name, label, choice in (
        ("classes", MANY, "softmax_regression"),
        ("numbers", NUMBER_LABEL, "linear_regression"),
    ):
        dataset = table(label)
        run = quick.trained(dataset=dataset, model={"kind": choice}, **SHORT)
        found[name] = downloaded(quick, run)
    return found


@pytest.mark.one_in(4)
@pytest.mark.parametrize("choice", [*CLASSIFIERS.values(), *REGRESSIONS.values()], ids=json.dumps)
def test_predictions_are_those_of_the_trainer_to_the_bit(quick, choice):  # noqa: F811
    is_binary = choice["kind"] in ("logistic_regression", "q_norm_hinge")
    label = TWO if is_binary else MANY if choice in CLASSIFIERS.values() else NUMBER_LABEL
    dataset = table(label)
    run = quick.trained(dataset=dataset, model=choice, **SHORT)
    model, rows = downloaded(quick, run), as_dicts(dataset)

    loaded = load_inline(InlineDataset.model_validate(dataset))
    description = DataDescription.of_inline(loaded)
    theirs = build_model(MODEL_CHOICE.validate_python(choice), description)
    features = description.scale(loaded.features)
    parameters = {each: model.parameters[each] for each in run["result"]["parameters"]}
    assert np.array_equal(model.scale(rows), features)
    predicted = theirs.predict(parameters, features)
    if model.classes:
        assert model.predict(rows).tolist() == [label["categories"][code] for code in predicted]
    else:
        assert np.array_equal(model.decision_function(rows), predicted)
        assert model.predict(rows) == pytest.approx(20.0 + 40.0 * predicted.astype(float), rel=1e-15)
    shown = theirs.probabilities(parameters, features)
    assert model.has_probabilities == (shown is not None)
    if shown is not None:
        assert np.array_equal(model.predict_proba(rows), shown)

    # The worker's own evaluation of the same rows.
    [metric] = run["result"]["metrics"]
    labels = [row[-1] for row in dataset["rows"]]
    if model.classes:
        assert np.mean(model.predict(rows) == np.array(labels)) == metric["accuracy"]
    else:
        errors = np.abs(model.predict(rows) - np.array(labels))
        assert np.mean(errors) == pytest.approx(metric["mean_absolute_error"], rel=1e-13)


@pytest.mark.parametrize("name", ["classes", "numbers"])
def test_every_form_of_the_same_rows_has_the_same_predictions(trained, name):
    model = trained[name]
    rows = as_dicts(table(MANY))
    columns = {each: [row[each] for row in rows] for each in reversed(NAMES)}
    expected = model.predict(rows)
    forms = [
        columns,
        {each: np.array(cells) for each, cells in columns.items()},
        [[row[each] for each in NAMES] for row in rows],
        np.array([[row[each] for each in NAMES] for row in rows], dtype=object),
        pyarrow.table(columns),
    ]
    for form in forms:
        assert np.array_equal(model.predict(form), expected)
    assert np.array_equal(model.predict(rows[:1]), expected[:1])
    assert model.predict([]).shape == (0,)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"a": 1, "b": 0}], "row 0 lacks the columns 'color'"),
        ([{"a": 1, "b": 0, "color": "red", "c": 1}], "no columns 'c', which row 0 has"),
        (
            {"a": [1], "b": [0], "color": ["red"], "y": ["low"]},
            "leave them out; 'y' is the column that the model predicts",
        ),
        ([{"a": 1, "b": 0, "color": "red"}, {"a": 1}], "row 1 lacks the columns 'color', 'b'"),
        ({"a": [1, 2], "b": [0], "color": ["red"]}, "as long as the others"),
        ({"a": [[1]], "b": [[0]], "color": [["red"]]}, "one-dimensional"),
        ([[1, "red"]], r"shape \(n, 3\), one column for each feature, not \(1, 2\)"),
        ([1, "red", 0], r"reshape\(1, -1\)"),
        ([[1, "red", 0], [1, "red"]], "every row must have as many cells"),
        (
            [[1, "pink", 0]],
            "'color' has a cell in row 0 that is not one of its declared categories, which are the strings 'red'",
        ),
        ([[1, 2, 0]], "'color' has a cell in row 0"),
        ([["1", "red", 0]], "'a' needs numbers, but the cell in row 0 is not a number"),
        ([[1, "red", None]], "'b' needs numbers"),
        ([[1, "red", 0], [float("nan"), "red", 0]], "'a' has NaN or infinity in row 1"),
        ([[10**400, "red", 0]], "too large"),
        (np.array([["1", "red", "0"]]), "'a' needs numbers, but these cells have the type <U3"),
        (np.zeros((2, 3)), "'color' has a cell"),
        (np.zeros((2, 3, 1)), r"not \(2, 3, 1\)"),
        (pyarrow.table([[1], [2]], names=["a", "a"]), "the table has the columns 'a' more than once"),
    ],
)
def test_rows_that_do_not_fit_are_refused_with_what_would(trained, rows, said):
    with pytest.raises(ValueError, match=said):
        trained["classes"].predict(rows)


@pytest.mark.parametrize("rows", ["a text", 3, {1, 2}])
def test_what_is_no_table_is_refused(trained, rows):
    with pytest.raises(TypeError, match="a list of dicts"):
        trained["classes"].predict(rows)


def test_a_regression_has_no_probabilities(trained):
    with pytest.raises(TypeError, match="linear_regression has no probabilities; use predict"):
        trained["numbers"].predict_proba([])
    assert "linear_regression" in repr(trained["numbers"])


def test_a_mean_predicts_nothing():
    document = {"format_version": 1, "features": [], "classes": [], "kind": "mean", "run_id": "run_1"}
    with pytest.raises(TypeError, match="parameters\\['mean'\\]"):
        Model(document, {}).predict([])


def test_a_file_is_read_without_a_server_and_says_what_it_is(quick, tmp_path):  # noqa: F811
    run = quick.trained(dataset=table(TWO), model={"kind": "logistic_regression"}, **SHORT)
    content = quick.client.get(f"/v1/runs/{run['id']}/model?format=npz").content
    file = tmp_path / "model.npz"
    file.write_bytes(content)
    model = load(file)
    assert load(str(file)).feature_names == model.feature_names == NAMES
    assert (model.kind, model.classes) == ("logistic_regression", ("no", "yes"))
    assert model.document.plan_hash == run["plan_hash"]
    assert model.document.guarantee.card == f"/v1/runs/{run['id']}/report"
    card = quick.report(run)
    assert (model.card.plan_hash, model.card.statement) == (run["plan_hash"], card["statement"])
    assert model.card.achieved.rho == card["achieved"]["rho"]
    assert set(model.parameters) == set(run["result"]["parameters"])
    assert model.predict_proba(as_dicts(table(TWO))).sum(axis=1) == pytest.approx(1.0)


def test_a_card_that_was_altered_is_told_and_a_file_without_one_is_read(quick):  # noqa: F811
    run = quick.trained(dataset=table(TWO), model={"kind": "logistic_regression"}, **SHORT)
    document = quick.model(run)
    weights = {name: np.array(array) for name, array in document.pop("parameters").items()}
    assert Model(document, weights).card["run_id"] == run["id"]
    better = document | {"card": document["card"] | {"statement": "The released model is (0, 0)-private."}}
    with pytest.raises(ValueError, match=f"it was altered: download the model of {run['id']} again"):
        Model(better, weights)
    older = {name: value for name, value in document.items() if not name.startswith("card")}
    assert Model(older, weights).card is None
    rows = as_dicts(table(TWO))
    assert np.array_equal(Model(older, weights).predict(rows), Model(document, weights).predict(rows))


def test_files_of_other_versions_are_told_apart(tmp_path):
    def saved(**arrays: Any) -> bytes:
        content = io.BytesIO()
        np.savez(content, **arrays)
        return content.getvalue()

    with pytest.raises(ValueError, match="Download the model of run_7 again"):
        Model.from_bytes(saved(weights=np.zeros(3), run_id=np.array("run_7")))
    newer = json.dumps({"format_version": 2, "features": [], "classes": []}).encode()
    with pytest.raises(ValueError, match="format_version 2, and this package reads 1"):
        Model.from_bytes(saved(document=np.array(newer)))
    (tmp_path / "other.npz").write_bytes(b"not an archive")
    with pytest.raises(ValueError, match="not a model file of epsilond"):
        load(tmp_path / "other.npz")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "absent.npz")
