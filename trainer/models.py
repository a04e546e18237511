"""Models: linear predictors whose per-record gradient is an outer product, residual x augmented input.

With the input x~ = (x, 1) (or x without an intercept) and the residual r, the derivative of a record's loss by its
logits, the gradient is the matrix x~ r^T of norm |x~| |r|. So norms and clipped sums cost two matrix products, and no
per-record gradient is ever formed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue
from accounting.numbers import read_integer, read_real
from trainer.arrays import Array, Namespace, silent
from trainer.losses import logistic, softmax

MAX_FEATURES = 10**6
MAX_CLASSES = 10**5
MAX_FEATURE_NORM = 1e150

Parameters = Mapping[str, npt.NDArray[np.float64]]


@dataclass(frozen=True)
class LinearModel(ABC):
    """Logits are x~ times a matrix of shape (num_inputs, num_outputs); its last row is the intercept, if there is one.

    Attributes:
        num_features: p, the length of x.
        fit_intercept: whether x is augmented by a constant 1.
    """

    kind: ClassVar[str]
    lipschitz: ClassVar[float]
    curvature: ClassVar[float]
    num_features: int
    fit_intercept: bool

    @property
    @abstractmethod
    def num_outputs(self) -> int:
        """Logits per record."""

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """Labels are 0 to num_classes - 1."""

    @abstractmethod
    def residuals(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        """Derivative of each record's loss by its logits: (B, num_outputs) and labels (B,) to (B, num_outputs)."""

    @abstractmethod
    def predict(self, parameters: Parameters, features: npt.ArrayLike) -> npt.NDArray[np.intp]:
        """The most probable class of each row, shape (n,)."""

    @property
    def num_inputs(self) -> int:
        """Length of the augmented input."""
        return self.num_features + self.fit_intercept

    @property
    def num_parameters(self) -> int:
        return self.num_inputs * self.num_outputs

    def initial(self) -> npt.NDArray[np.float64]:
        """The matrix that training starts from: zeros, shape (num_inputs, num_outputs)."""
        return np.zeros((self.num_inputs, self.num_outputs))

    def parameters(self, matrix: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
        """The matrix under the names it is released by: "weights", and "bias" where there is an intercept."""
        named = {"weights": matrix[: self.num_features]}
        if self.fit_intercept:
            named["bias"] = matrix[self.num_features]
        return {name: np.array(self._released(value)) for name, value in named.items()}

    def _released(self, value: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return value

    def decision_function(self, parameters: Parameters, features: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Logits of rows that are public: shape (n, p) to (n,) for one logit per row, else (n, num_outputs).

        A row with a non-finite feature is read as a row of zeros, so its logits are the intercept.

        Raises:
            InvalidValue: the features are not of shape (n, p).
        """
        rows = np.asarray(features, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.num_features:
            raise InvalidValue(f"features must be of shape (n, {self.num_features})", pointer=("features",))
        finite = np.all(np.isfinite(rows), axis=1)
        with silent():
            logits: npt.NDArray[np.float64] = np.where(finite[:, None], rows, 0.0) @ parameters["weights"]
            return logits + parameters["bias"] if self.fit_intercept else logits

    def accuracy(self, parameters: Parameters, features: npt.ArrayLike, labels: npt.ArrayLike) -> float:
        """Share of rows whose prediction is their label. A statistic of the rows: for public ones only.

        Raises:
            InvalidValue: no rows, or as many labels as there are not rows.
        """
        predicted = self.predict(parameters, features)
        if predicted.size == 0 or np.shape(labels) != predicted.shape:
            raise InvalidValue("accuracy needs at least one row, and one label for each", pointer=("labels",))
        return float(np.mean(predicted == np.asarray(labels)))

    def gradient_norm_bound(self, feature_norm_bound: float) -> float:
        """Largest l2 norm of one record's gradient, over all parameters: lipschitz * R.

        Args:
            feature_norm_bound: bound on the l2 norm of x, without the constant; R^2 = its square + 1 with intercept.

        Guarantees:
            - gradients_are_within_their_bound: for every record within the bound and all parameters.
        """
        return self.lipschitz * self._input_norm(feature_norm_bound)

    def smoothness(self, feature_norm_bound: float) -> float:
        """Lipschitz constant of one record's gradient, as a function of the parameters: curvature * R^2.

        Args:
            feature_norm_bound: bound on the l2 norm of x, without the constant; R^2 = its square + 1 with intercept.

        Guarantees:
            - hessians_are_within_their_bound: for every record within the bound and all parameters.
        """
        return self.curvature * self._input_norm(feature_norm_bound) ** 2

    def _input_norm(self, feature_norm_bound: float) -> float:
        bound = read_real("feature_norm_bound", feature_norm_bound, 0.0, MAX_FEATURE_NORM)
        return math.hypot(bound, 1.0) if self.fit_intercept else bound

    def _check(self) -> None:
        object.__setattr__(self, "num_features", read_integer("num_features", self.num_features, 1, MAX_FEATURES))
        if not isinstance(self.fit_intercept, bool):
            raise InvalidValue("fit_intercept must be true or false", pointer=("fit_intercept",))


@dataclass(frozen=True)
class LogisticRegression(LinearModel):
    """Two classes, one logit: labels 0 and 1, "weights" of shape (p,), "bias" of shape ().

    Guarantees (for the constants): gradient norm <= R, since |sigmoid(z) - y| <= 1; Hessian <= R^2 / 4.

    >>> LogisticRegression(30).num_parameters
    31
    >>> LogisticRegression(2).smoothness(1.0)
    0.5000000000000001
    """

    kind = "logistic_regression"
    lipschitz = logistic.LIPSCHITZ
    curvature = logistic.CURVATURE
    num_features: int
    fit_intercept: bool = True

    def __post_init__(self) -> None:
        self._check()

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def num_classes(self) -> int:
        return 2

    def residuals(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        return logistic.residuals(xp, logits, labels)

    def _released(self, value: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return value[..., 0]

    def predict(self, parameters: Parameters, features: npt.ArrayLike) -> npt.NDArray[np.intp]:
        return (self.decision_function(parameters, features) > 0.0).astype(np.intp)


@dataclass(frozen=True)
class SoftmaxRegression(LinearModel):
    """K classes, K logits: labels 0 to K - 1, "weights" of shape (p, K), "bias" of shape (K,).

    Guarantees (for the constants): gradient norm <= sqrt(2) R; Hessian <= R^2 / 2.

    >>> SoftmaxRegression(784, 10).num_parameters
    7850
    """

    kind = "softmax_regression"
    lipschitz = softmax.LIPSCHITZ
    curvature = softmax.CURVATURE
    num_features: int
    classes: int
    fit_intercept: bool

    def __init__(self, num_features: int, num_classes: int, fit_intercept: bool = True) -> None:
        object.__setattr__(self, "num_features", num_features)
        object.__setattr__(self, "classes", read_integer("num_classes", num_classes, 2, MAX_CLASSES))
        object.__setattr__(self, "fit_intercept", fit_intercept)
        self._check()

    @property
    def num_outputs(self) -> int:
        return self.classes

    @property
    def num_classes(self) -> int:
        return self.classes

    def residuals(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        return softmax.residuals(xp, logits, labels)

    def predict(self, parameters: Parameters, features: npt.ArrayLike) -> npt.NDArray[np.intp]:
        chosen: npt.NDArray[np.intp] = np.argmax(self.decision_function(parameters, features), axis=1)
        return chosen


Model = LinearModel
MODELS: dict[str, type[LogisticRegression] | type[SoftmaxRegression]] = {
    cls.kind: cls for cls in (LogisticRegression, SoftmaxRegression)
}
