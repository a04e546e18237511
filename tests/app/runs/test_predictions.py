"""Predictions of a released model over HTTP: the same as the file's, for whoever may have it; rows leave no trace."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
from epsilond_client.models import Model
from sqlalchemy import inspect

from app.auth.principal import Scope
from app.runs import artifacts, predictions
from app.tables.runs import Run
from tests.app.problem_assertions import assert_problem
from tests.app.runs.test_models import CLASSIFIERS, MANY, NUMBER_LABEL, REGRESSIONS, TRAINED, TWO, inline, rows
from tests.databases import on_one_engine

SHORT = TRAINED | {"iterations": 5, "target": {"kind": "zcdp", "rho": 10}, "hyperparameters": {"step_size": 0.05}}
#: Beyond a bound, too.
ROWS = [row[:-1] for row in rows(TWO)] + [[1e6, "blue", -7]]
#: A number and a text that stand nowhere else.
SECRET_NUMBER, SECRET_TEXT = 7.123456789, "a-word-of-one-person"


@pytest.fixture(scope="module")
def run(quick):
    return quick.trained(dataset=inline(TWO), model={"kind": "logistic_regression"}, **SHORT)


def predict(service, run, body):
    """Post rows without an idempotency key."""
    return service.client.post(f"/v1/runs/{run['id']}/predictions", json=body)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("choice", [*CLASSIFIERS.values(), *REGRESSIONS.values()], ids=json.dumps)
def test_the_service_predicts_as_the_file_does(quick, choice, monkeypatch):
    # Blocks of 32 rows.
    monkeypatch.setattr("trainer.scores._BLOCK_NUMBERS", 32 * 1024)
    is_binary = choice["kind"] in ("logistic_regression", "q_norm_hinge")
    label = TWO if is_binary else MANY if choice in CLASSIFIERS.values() else NUMBER_LABEL
    run = quick.trained(dataset=inline(label), model=choice, **SHORT)
    answer = predict(quick, run, {"rows": ROWS})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    model = Model.from_bytes(quick.client.get(f"/v1/runs/{run['id']}/model?format=npz").content)
    assert (found["run_id"], found["plan_hash"]) == (run["id"], run["plan_hash"])
    assert found["classes"] == list(model.classes) == label.get("categories", [])
    if model.classes:
        assert found["predictions"] == model.predict(ROWS).tolist()
    else:
        assert found["predictions"] == pytest.approx(model.predict(ROWS).tolist(), rel=1e-13)
    assert (found["probabilities"] is not None) == model.has_probabilities
    if model.has_probabilities:
        assert np.array(found["probabilities"]) == pytest.approx(model.predict_proba(ROWS), rel=1e-12)


def test_columns_may_stand_in_another_order(quick, run):
    expected = predict(quick, run, {"rows": ROWS}).json()
    turned = {"columns": ["b", "a", "color"], "rows": [[b, a, color] for a, color, b in ROWS]}
    assert predict(quick, run, turned).json() == expected
    assert predict(quick, run, {"columns": ["a", "color", "b"], "rows": ROWS}).json() == expected


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (["a", "b"], "It lacks 'color'"),
        (["a", "b", "c"], "It lacks 'color'"),
        (["a", "b", "color", "y"], "the 3 columns of the model's features, each once"),
        (["a", "b", "color", "color"], "each once"),
    ],
)
def test_columns_that_are_not_the_models_are_refused(quick, run, columns, said):
    problem = assert_problem(predict(quick, run, {"columns": columns, "rows": ROWS}), 422, "columns_differ", "/columns")
    assert said in problem["detail"]


def test_every_cell_at_fault_is_told_and_none_is_shown(quick, run):
    table = [*ROWS[:2], [SECRET_TEXT, SECRET_TEXT, SECRET_NUMBER], [1, "red"], [1, SECRET_NUMBER, 0]]
    answer = predict(quick, run, {"rows": table})
    problem = assert_problem(answer, 422, "invalid_request")
    assert [(fault["pointer"], fault["code"]) for fault in problem["errors"]] == [
        ("/rows/2/0", "not_a_number"),
        ("/rows/2/1", "unknown_category"),
        ("/rows/3", "ragged_row"),
        ("/rows/4/1", "unknown_category"),
    ]
    assert SECRET_TEXT not in answer.text
    assert str(SECRET_NUMBER) not in answer.text
    assert len(assert_problem(predict(quick, run, {"rows": [[0]] * 80}), 422, "invalid_request")["errors"]) == 50


@pytest.mark.parametrize("cell", [True, None, [1], {"a": 1}])
def test_cells_are_numbers_and_texts(quick, run, cell):
    assert_problem(predict(quick, run, {"rows": [[cell, "red", 0]]}), 422, "invalid_request")


def test_a_row_by_names_is_told_what_a_row_is(quick, run):
    row = dict(zip(["a", "color", SECRET_TEXT], ROWS[0], strict=True))
    answer = predict(quick, run, {"rows": [ROWS[0], row]})
    (fault,) = assert_problem(answer, 422, "invalid_request", "/rows/1")["errors"]
    assert fault["detail"] == "A row is an array of cells, not an object; `columns` gives their order."
    assert SECRET_TEXT not in answer.text


def test_batches_are_small(quick, run, monkeypatch):
    assert len(predict(quick, run, {"rows": [ROWS[0]] * 1000}).json()["predictions"]) == 1000
    assert_problem(predict(quick, run, {"rows": [ROWS[0]] * 1001}), 422, "invalid_request", "/rows")
    assert_problem(predict(quick, run, {"rows": []}), 422, "invalid_request", "/rows")
    assert_problem(predict(quick, run, {"rows": [[1, "red" + " " * 2**20, 1]]}), 413, "body_too_large")
    monkeypatch.setattr(predictions, "MOST_PROBABILITIES", 20)
    problem = assert_problem(predict(quick, run, {"rows": [ROWS[0]] * 11}), 422, "out_of_range", "/rows")
    assert "at most 10 rows" in problem["detail"]


def test_a_mean_predicts_nothing(quick):
    left_out = dict.fromkeys(("sampling", "neighboring_relation", "batch_size", "iterations", "hyperparameters"), ...)
    bound = {"gradient_bound": {"kind": "clip", "max_grad_norm": 4.0}}
    request = {**SHORT, **left_out, **bound, "algorithm": "clipped_mean", "model": {"kind": "mean"}}
    mean = quick.trained(dataset=inline(TWO), **request)
    assert_problem(predict(quick, mean, {"rows": ROWS}), 422, "unsupported_model")


def test_numbers_that_overflow_are_no_prediction(quick):
    run = quick.trained(dataset=inline(NUMBER_LABEL), model={"kind": "linear_regression"}, **SHORT)
    with quick.context.database.read() as session:
        file = artifacts.model_path(quick.context, session.get_one(Run, run["id"]))
    with np.load(file) as stored:
        arrays = dict(stored)
    np.savez(file, **arrays | {"weights": np.full(5, 1e308)})
    assert_problem(predict(quick, run, {"rows": ROWS}), 422, "not_finite", "/rows")


@on_one_engine
def test_whoever_may_have_the_model_may_predict_and_nobody_else(service):
    budget = service.budget()
    dataset = service.dataset(budget_id=budget["id"])
    queued = service.queued(dataset_id=dataset["id"], budget_id=budget["id"])
    body = {"rows": [[1, 0.5, "red"]]}
    assert_problem(predict(service, queued, body), 409, "model_not_released")
    service.work()
    assert service.get(f"/v1/runs/{queued['id']}")["state"] == "succeeded"
    assert predict(service, queued, body).json()["predictions"][0] in ("no", "yes")
    for scope in (Scope.ANALYST, Scope.OWNER, Scope.AUDITOR):
        assert predict(service.with_key(scope), queued, body).status_code == 200
    assert_problem(predict(service.with_key(Scope.METRICS), queued, body), 403, "forbidden")
    assert_problem(predict(service, queued, body), 401, "unauthenticated")
    assert_problem(predict(service.with_key(Scope.OWNER), {"id": "run_none"}, body), 404, "not_found")


@on_one_engine
def test_rows_leave_no_trace(service, caplog, capsys):
    run = service.trained(dataset_id="ds_breast_cancer")
    engine = service.context.database.read

    def rows_of_every_table():
        with engine() as session:
            bind = session.connection()
            names = sorted(inspect(bind).get_table_names())
            return {name: bind.exec_driver_sql(f'SELECT * FROM "{name}"').all() for name in names}

    def files():
        folder = service.context.settings.data_dir
        return {
            path: path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and "sqlite" not in path.name
        }

    row = [15.0] * 29
    before, stored = rows_of_every_table(), files()
    capsys.readouterr()
    with caplog.at_level(logging.DEBUG):
        for last in (SECRET_NUMBER, SECRET_TEXT):
            headers = {"Idempotency-Key": "the-same"}
            path = f"/v1/runs/{run['id']}/predictions"
            service.client.post(path, json={"rows": [[*row, last]]}, headers=headers)
        assert predict(service, run, {"rows": [[*row, SECRET_NUMBER]]}).status_code == 200
    assert (rows_of_every_table(), files()) == (before, stored)
    told = caplog.text + "".join(capsys.readouterr())
    assert "/v1/runs/{run_id}/predictions" in told
    assert str(SECRET_NUMBER) not in told
    assert SECRET_TEXT not in told
