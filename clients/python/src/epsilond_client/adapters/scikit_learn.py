"""scikit-learn: estimators whose `fit` is a private training by the service, charged to a budget.

    classifier = EpsilondClassifier(
        budget="my project", epsilon=3, delta=1e-5, declared_size=60_000, bounds=(0, 255), classes=range(10)
    )
    classifier.fit(pixels, digits)      # uploads the rows, reserves, trains, and waits
    classifier.predict(others)          # here, without the service

Bounds, classes and the number of rows must be declared. Taking them from the rows would be a release without a charge.
**Each `fit` is charged**, so a search or a cross-validation over these estimators pays for every fit. Sweeps of the
service (`client.run_sweeps`) pay once.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from epsilond_client.client import Client
from epsilond_client.models import Model, columns_of, names_of, numbers_in

#: The declaration of a column: two bounds, or its categories.
Declaration = Sequence[float] | Sequence[str]


class _EpsilondEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The base of both estimators: it makes a released model from declarations and rows."""

    def _fit(self, rows: Any, label: dict[str, Any], values: npt.NDArray[Any], default_model: str) -> Self:
        """Upload the rows, train, and load the released model."""
        for name in ("budget", "epsilon", "delta", "declared_size", "bounds"):
            if getattr(self, name) is None:
                raise ValueError(
                    f"{type(self).__name__} needs {name}, which you must declare, because it is never computed "
                    "from rows"
                )
        columns = _declared(self.bounds, rows)
        cells = columns_of(rows, [column["name"] for column in columns])
        arrays = {column["name"]: _checked(column, cells[column["name"]]) for column in columns}
        label = {"name": _unused("target", arrays), **label}
        if any(len(array) != len(values) for array in arrays.values()):
            raise ValueError(f"X and y must have the same number of rows, but y has {len(values)}")
        with Client(self.url) as client:
            budget = client.budgets.get(self.budget)
            dataset = client.datasets.upload(
                _archive(arrays | {label["name"]: values}),
                filename="rows.npz",
                name=self.name,
                declared_size=self.declared_size,
                columns=[*columns, label],
                label=label["name"],
                budget_id=budget.id,
                privacy_unit=budget.privacy_unit,
            )
            run = client.runs.create(
                dataset_id=dataset.id,
                budget_id=budget.id,
                model={"kind": default_model} if self.model is None else dict(self.model),
                target={"kind": "approximate_dp", "epsilon": self.epsilon, "delta": self.delta},
                **(self.training or {}),
            )
            client.runs.wait(run)
            self.model_: Model = client.runs.load(run)
        self.dataset_id_, self.run_id_ = dataset.id, run.id
        self.n_features_in_ = len(columns)
        if names_of(rows) is not None:
            self.feature_names_in_ = np.array(self.model_.feature_names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return self

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predict each row, here and without the service.

        Raises:
            NotFittedError: `fit` was not called.
            ValueError: columns or cells differ from the declaration.
        """
        check_is_fitted(self, "model_")
        return self.model_.predict(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # because of the noise
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.target_tags.required = True
        return tags


class EpsilondClassifier(ClassifierMixin, _EpsilondEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A private classifier.

    Args:
        budget: Id or name of the root budget that is charged; every `fit` is.
        epsilon, delta: The guarantee of the model.
        declared_size: A public number of rows, near the true one.
        bounds: What is known about the columns without looking at rows: ``{"age": (0, 120), "smoker": ["no", "yes"]}``,
            or one pair for all columns of numbers.
        classes: The labels that may occur, two or more.
        model: The model of the run; if left out, a logistic regression for two classes and a softmax regression for
            more.
        training: Further fields of the run, as `client.runs.create` takes them: `algorithm`, `batch_size`, ...
        name: The name of the data set that is uploaded.
        url: The address of the server; if left out, `EPSILOND_URL`. The key is `EPSILOND_API_KEY` and not a parameter,
            so that no copy or representation of the estimator contains it. It needs the scope ``owner``, because it
            uploads.

    Attributes:
        model_: The released `epsilond_client.models.Model`, with its guarantee.
        classes_: The declared classes, sorted.
        run_id_, dataset_id_: Ids of the service. `client.datasets.delete(dataset_id_)` removes the rows.
        n_features_in_, feature_names_in_: The usual attributes of scikit-learn.
    """

    def __init__(
        self,
        *,
        budget: str | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        declared_size: int | None = None,
        bounds: Mapping[str, Declaration] | Sequence[float] | None = None,
        classes: Iterable[Any] | None = None,
        model: Mapping[str, Any] | None = None,
        training: Mapping[str, Any] | None = None,
        name: str = "scikit-learn",
        url: str | None = None,
    ) -> None:
        self.budget = budget
        self.epsilon = epsilon
        self.delta = delta
        self.declared_size = declared_size
        self.bounds = bounds
        self.classes = classes
        self.model = model
        self.training = training
        self.name = name
        self.url = url

    def fit(self, X: Any, y: Any) -> Self:
        """Upload rows and labels, train under a charge, and wait for the model.

        Raises:
            ValueError: a declaration is missing, or a row is not what was declared; nothing was sent.
            BudgetExceeded: the budget does not admit the training; nothing is charged, and the rows are uploaded.
            RunFailed: the run has failed.
        """
        if self.classes is None:
            raise ValueError(
                "EpsilondClassifier needs classes, which you must declare, because they are never taken from rows"
            )
        classes = np.unique(np.asarray(list(self.classes)))
        texts = {label: str(label) for label in classes.tolist()}
        if len(texts) < 2 or len(set(texts.values())) < len(texts):
            raise ValueError("there must be at least two classes, and all must differ when written as strings")
        labels = _column(y).tolist()
        unknown = [row for row, label in enumerate(labels) if label not in texts]
        if unknown:
            raise ValueError(f"y has a label in row {unknown[0]} that is not one of the declared classes")
        values = np.array([texts[label] for label in labels], dtype=np.str_)
        kind = "logistic_regression" if len(classes) == 2 else "softmax_regression"
        self._fit(X, {"type": "category", "categories": list(texts.values())}, values, kind)
        self.classes_ = classes
        return self

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predict the class of each row, as it was declared; otherwise as `EpsilondRegressor.predict`."""
        check_is_fitted(self, "model_")
        logits = self.model_.decision_function(X)
        codes = (logits > 0.0).astype(np.intp) if logits.ndim == 1 else np.argmax(logits, axis=1)
        return np.asarray(self.classes_[codes])

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the probability of each of `classes_`; shape (n, number of classes).

        Raises:
            NotFittedError, ValueError: as for `predict`.
            TypeError: `q_norm_hinge` has no probabilities.
        """
        check_is_fitted(self, "model_")
        return self.model_.predict_proba(X)

    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:
        """Return the logits: shape (n,) for two classes with one logit, else (n, number of classes)."""
        check_is_fitted(self, "model_")
        return self.model_.decision_function(X)


class EpsilondRegressor(RegressorMixin, _EpsilondEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A private regression.

    Args:
        target_bounds: The smallest and the largest label, known without looking at rows.
        model: The model of the run; least squares if it is left out.
        budget, epsilon, delta, declared_size, bounds, training, name, url: As in `EpsilondClassifier`.

    Attributes:
        model_, run_id_, dataset_id_, n_features_in_, feature_names_in_: As in `EpsilondClassifier`.
    """

    def __init__(
        self,
        *,
        budget: str | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        declared_size: int | None = None,
        bounds: Mapping[str, Declaration] | Sequence[float] | None = None,
        target_bounds: Sequence[float] | None = None,
        model: Mapping[str, Any] | None = None,
        training: Mapping[str, Any] | None = None,
        name: str = "scikit-learn",
        url: str | None = None,
    ) -> None:
        self.budget = budget
        self.epsilon = epsilon
        self.delta = delta
        self.declared_size = declared_size
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.model = model
        self.training = training
        self.name = name
        self.url = url

    def fit(self, X: Any, y: Any) -> Self:
        """Upload rows and labels, train under a charge, and wait for the model.

        Raises:
            ValueError: a declaration is missing, or a row is not what was declared; nothing was sent.
            BudgetExceeded: the budget does not admit the training; nothing is charged, and the rows are uploaded.
            RunFailed: the run has failed.
        """
        if self.target_bounds is None:
            raise ValueError(
                "EpsilondRegressor needs target_bounds, which you must declare, because they are never computed "
                "from rows"
            )
        label = _number("y", self.target_bounds)
        values = numbers_in("y", _column(y))
        del label["name"]
        return self._fit(X, label, values, "linear_regression")


def _declared(bounds: Any, rows: Any) -> list[dict[str, Any]]:
    """Return the columns as they are uploaded. They follow from the declarations; only their number is taken from the
    rows."""
    if isinstance(bounds, Mapping):
        return [_column_of(name, declared) for name, declared in bounds.items()]
    names = names_of(rows)
    if names is None:
        shape = np.shape(rows)
        if len(shape) != 2:
            raise ValueError(f"X must be a table or an array of shape (n, columns), not {shape}: reshape your data")
        names = [f"x{place}" for place in range(shape[1])]
    return [_number(str(name), bounds) for name in names]


def _column_of(name: str, declared: Any) -> dict[str, Any]:
    texts = list(declared) if isinstance(declared, Iterable) and not isinstance(declared, str) else []
    if texts and all(isinstance(each, str) for each in texts):
        return {"name": name, "type": "category", "categories": texts}
    return _number(name, declared)


def _number(name: str, bounds: Any) -> dict[str, Any]:
    pair = list(bounds) if isinstance(bounds, Iterable) and not isinstance(bounds, str) else []
    if len(pair) != 2 or not all(isinstance(each, Real) for each in pair):
        raise ValueError(
            f"bounds of {name!r} must be two numbers, (lower, upper), or the list of strings that may occur"
        )
    return {"name": name, "type": "number", "lower": float(pair[0]), "upper": float(pair[1])}


def _checked(column: Mapping[str, Any], cells: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the cells in the form in which they are uploaded. Cells that the service would refuse are refused here,
    with their rows."""
    if column["type"] == "number":
        return numbers_in(column["name"], cells)
    for row, cell in enumerate(cells):
        if cell not in column["categories"]:
            raise ValueError(
                f"the column {column['name']!r} has a cell in row {row} that is not one of its declared categories"
            )
    return cells.astype(np.str_)


def _column(y: Any) -> npt.NDArray[Any]:
    values = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    if values.ndim != 1:
        raise ValueError(f"y must be of shape (n,), not {values.shape}")
    return values


def _unused(name: str, names: Iterable[str]) -> str:
    """Return the name, with underscores appended until it differs from all others."""
    taken = set(names)
    while name in taken:
        name += "_"
    return name


def _archive(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Return the columns as an NPZ archive. Any name is possible here, while `numpy.savez` would take some for its own
    arguments."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return content.getvalue()
