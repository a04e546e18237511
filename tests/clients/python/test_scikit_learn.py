"""The scikit-learn estimators: private training on a real server, and scikit-learn's own checks where they apply."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow
import pytest
from epsilond_client import BudgetExceeded, Client
from epsilond_client.adapters.scikit_learn import EpsilondClassifier, EpsilondRegressor
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import estimator_checks_generator

from tests.clients.python.conftest import token_of
from tests.crash.server_process import running_server
from tests.databases import DatabaseFactory

#: Rows of two public-looking clouds; the label follows from them.
RANDOM = np.random.default_rng(2)
X = RANDOM.uniform(0, 10, size=(400, 3))
TRAINING = {
    "algorithm": "dp_sgd",
    "iterations": 60,
    "sampling": "full_batch",
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
    "hyperparameters": {"step_size": 2.0},
}
DECLARED: dict[str, Any] = {
    "epsilon": 4,
    "delta": 1e-5,
    "declared_size": 400,
    "bounds": (0, 10),
    "training": TRAINING,
}

#: The others fit on rows of their own making. Here a fit is charged to a budget, and needs bounds, classes and a size
#: that are declared for the rows to come: an estimator that took them from the rows would pass, and release them.
FITTING = ("check_fit_idempotent", "check_estimators_fit_returns_self", "check_n_features_in", "check_dict_unchanged")
#: Checks that need no fit, or none that succeeds.
APPLIES = {
    "check_estimator_cloneable",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_estimator_repr",
    "check_no_attributes_set_in_init",
    "check_estimators_unfitted",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_mixin_order",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
}


@pytest.fixture(scope="module")
def url(sqlite_databases: DatabaseFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("scikit-learn")
    with running_server(sqlite_databases.migrated(), folder, EPSILOND_WORKERS="1") as server, token_of(server):
        host, port = server.address
        yield f"http://{host}:{port}"


@pytest.fixture
def budget(client: Client, url: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The name of a budget that admits one fit."""
    monkeypatch.setenv("EPSILOND_URL", url)
    client.budgets.create(
        request.node.name,
        neighboring_relation="add_or_remove_one",
        filter={"kind": "renyi_dp", "epsilon": 7, "delta": 1e-5},
    )
    return str(request.node.name)


def test_a_classifier_is_fitted_charged_and_predicts(client: Client, budget: str) -> None:
    y = np.where(X @ [1, 1, -1] > 5, 7, -2)
    classifier = EpsilondClassifier(budget=budget, classes=[7, -2], **DECLARED)
    assert classifier.fit(X, y) is classifier
    assert classifier.classes_.tolist() == [-2, 7]
    assert classifier.score(X, y) > 0.8
    predicted, shown = classifier.predict(X), classifier.predict_proba(X)
    assert predicted.dtype == y.dtype
    assert np.array_equal(classifier.classes_[np.argmax(shown, axis=1)], predicted)
    assert np.array_equal(classifier.decision_function(X) > 0, predicted == 7)
    assert (classifier.n_features_in_, hasattr(classifier, "feature_names_in_")) == (3, False)
    run = client.runs.get(classifier.run_id_)
    assert run.charge is not None
    dataset = client.datasets.get(classifier.dataset_id_)
    assert not dataset.public
    assert [(column["lower"], column["upper"]) for column in dataset.columns[:3]] == [(0, 10)] * 3
    # What was fitted goes on without the service; a clone is not fitted.
    copy = pickle.loads(pickle.dumps(classifier))
    assert np.array_equal(copy.predict(X), predicted)
    with pytest.raises(NotFittedError):
        clone(classifier).predict(X)
    with pytest.raises(ValueError, match=r"shape \(n, 3\)"):
        classifier.predict(X[:, :2])
    # Each fit is charged, so the second one finds the budget spent.
    with pytest.raises(BudgetExceeded):
        classifier.fit(X, y)


def test_a_regression_on_a_table_with_categories(client: Client, budget: str) -> None:
    columns = {"file": X[:, 0], "target": np.where(X[:, 1] > 5, "high", "low"), "b": X[:, 2]}
    table = pyarrow.table(columns)
    y = 2 * X[:, 0] - X[:, 2] + 3 * (X[:, 1] > 5)
    training = TRAINING | {"hyperparameters": {"step_size": 0.3}}
    declared = DECLARED | {"training": training, "bounds": {"b": (0, 10), "target": ["low", "high"], "file": (0, 10)}}
    regressor = EpsilondRegressor(budget=budget, target_bounds=(-10, 25), **declared)
    regressor.fit(table, y)
    assert regressor.score(table, y) > 0.5
    assert regressor.model_.feature_names == ("b", "target", "file")
    assert client.datasets.get(regressor.dataset_id_).label == "target_"
    assert np.array_equal(regressor.predict(table), regressor.predict(columns))


@pytest.mark.parametrize(
    ("changes", "rows", "labels", "said"),
    [
        ({"classes": None}, X, X[:, 0] > 5, "needs classes, which you must declare"),
        ({"bounds": None}, X, X[:, 0] > 5, "needs bounds, which you must declare"),
        ({"declared_size": None}, X, X[:, 0] > 5, "needs declared_size"),
        ({"epsilon": None}, X, X[:, 0] > 5, "needs epsilon"),
        ({"budget": None}, X, X[:, 0] > 5, "needs budget"),
        ({"bounds": (0, 1, 2)}, X, X[:, 0] > 5, "bounds of 'x0' must be two numbers"),
        ({"bounds": {"a": "text"}}, X, X[:, 0] > 5, "bounds of 'a' must be two numbers"),
        ({"classes": [True]}, X, X[:, 0] > 5, "at least two classes"),
        ({"classes": [1, 2]}, X, X[:, 0] > 5, "a label in row"),
        ({}, X[:3], X[:, 0] > 5, "the same number of rows"),
        ({}, X, X > 5, r"y must be of shape \(n,\)"),
        ({}, np.where(X > 9, np.nan, X), X[:, 0] > 5, "NaN or infinity"),
        ({"bounds": {"a": (0, 10)}}, X, X[:, 0] > 5, r"shape \(n, 1\)"),
        ({}, X[:, 0], X[:, 0] > 5, "reshape your data"),
        (
            {"bounds": {"a": ["low"]}},
            [["high"]],
            [True],
            "'a' has a cell in row 0 that is not one of its declared categories",
        ),
    ],
)
def test_what_is_not_declared_is_refused_before_anything_is_sent(changes, rows, labels, said) -> None:
    declared = {"budget": "b", "classes": [False, True], "url": "http://127.0.0.1:1", **DECLARED}
    with pytest.raises(ValueError, match=said):
        EpsilondClassifier(**declared | changes).fit(rows, labels)


def test_a_regression_needs_the_bounds_of_its_label() -> None:
    with pytest.raises(ValueError, match="needs target_bounds"):
        EpsilondRegressor(budget="b", **DECLARED).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="NaN or infinity"):
        EpsilondRegressor(budget="b", target_bounds=(0, 1), **DECLARED).fit(X, np.full(400, np.nan))


def test_a_budget_has_an_id_or_a_name_of_its_own(client: Client, budget: str) -> None:
    for _ in range(2):
        client.budgets.create("twice", neighboring_relation="add_or_remove_one", filter={"kind": "zcdp", "rho": 1})
    y = X[:, 0] > 5
    for name, said in (
        ("twice", "2 budgets that this key reaches have the name"),
        ("none has it", "this key reaches no budget"),
    ):
        with pytest.raises(ValueError, match=said):
            EpsilondClassifier(budget=name, classes=[False, True], **DECLARED).fit(X, y)


@pytest.mark.parametrize("estimator", [EpsilondClassifier(), EpsilondRegressor()], ids=["classifier", "regressor"])
def test_the_checks_of_scikit_learn_pass_where_they_apply(estimator) -> None:
    passed = set()
    for tested, check in estimator_checks_generator(estimator):
        name = check.func.__name__
        if name in APPLIES:
            check(tested)
            passed.add(name)
    assert passed == APPLIES


def test_the_checks_that_do_not_apply_are_refused_for_what_nobody_declared() -> None:
    others = [each for each in estimator_checks_generator(EpsilondRegressor()) if each[1].func.__name__ not in APPLIES]
    fitting = [(tested, check) for tested, check in others if check.func.__name__ in FITTING]
    assert len(others) > 20
    assert fitting
    for tested, check in fitting:
        with pytest.raises((ValueError, AssertionError), match="you must declare"):
            check(tested)
