"""Linear models have the logits x W + b; a loss of logits decides the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue
from accounting.numbers import read_integer, read_real
from trainer.arrays import Array, silent
from trainer.gradients import Layer, OuterProducts
from trainer.keystream import Keystream
from trainer.losses import Loss, Weighted
from trainer.models.model import MAX_FEATURES, Model, Parameters, public_rows
from trainer.records import Block

MAX_FEATURE_NORM = 1e150


@dataclass(frozen=True, slots=True)
class Holder:
    """Constants of one record's loss as a function of the parameters.

    Attributes:
        exponent: The exponent alpha, in [0, 1].
        constant: The constant L in |g(w) - g(w')| <= L |w - w'|^alpha for all w, w'.
        gradient_at_zero: The bound M on the gradient at 0, the longest gradient at w = 0.
        loss_at_zero: The bound M_0 on the loss at 0, the largest loss at w = 0.
    """

    exponent: float
    constant: float
    gradient_at_zero: float
    loss_at_zero: float


@dataclass(frozen=True)
class LinearModel(Model):
    """A linear model. Its parameters are the matrix W of shape (p, K), row by row, and then b of shape (K,), if it has
    an intercept.

    Attributes:
        loss: A loss of K logits.
        features: The number p of features.
        fit_intercept: Whether the model has an intercept b.

    >>> from trainer.losses import Logistic, Softmax
    >>> LinearModel(Logistic(), 30).num_parameters, LinearModel(Softmax(10), 784).num_parameters
    (31, 7850)
    >>> LinearModel(Logistic(), 2).smoothness(1.0)
    0.5000000000000001
    """

    loss: Loss
    features: int
    fit_intercept: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", read_integer("num_features", self.features, 1, MAX_FEATURES))
        if not isinstance(self.fit_intercept, bool):
            raise InvalidValue("fit_intercept must be true or false", pointer=("fit_intercept",))

    @property
    def kind(self) -> str:  # type: ignore[override]  # every loss makes a kind of its own
        return self.loss.kind

    @property
    def num_features(self) -> int:
        return self.features

    @property
    def num_classes(self) -> int:
        return self.loss.num_classes

    @property
    def num_outputs(self) -> int:
        """The number K of outputs, which are the logits of a record."""
        return self.loss.num_outputs

    @property
    def num_parameters(self) -> int:
        return (self.features + self.fit_intercept) * self.num_outputs

    def initial(self, stream: Keystream) -> npt.NDArray[np.float64]:
        """Return zeros."""
        return np.zeros(self.num_parameters)

    def gradients(self, point: Array, block: Block) -> OuterProducts:
        residuals = self.loss.residuals(block.xp, self._logits(point, block), block.labels)
        return OuterProducts(block.xp, (Layer(block.features, residuals, self.fit_intercept, block.squares),))

    def losses(self, point: Array, block: Block) -> Array:
        return self.loss.values(block.xp, self._logits(point, block), block.labels)

    def record_weights(self, block: Block) -> Array | None:
        return self.loss.of_records(block.xp, block.labels) if isinstance(self.loss, Weighted) else None

    def _logits(self, point: Array, block: Block) -> Array:
        split, shape = self.features * self.num_outputs, (self.features, self.num_outputs)
        logits = block.features @ block.xp.reshape(point[:split], shape)
        if self.fit_intercept:
            logits += point[split:]
        return logits

    def parameters(self, point: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
        """Return the arrays "weights", of shape (p,) for one logit and else (p, K), and "bias", of shape () or (K,)."""
        split = self.features * self.num_outputs
        one = self.num_outputs == 1
        named = {"weights": np.array(point[:split] if one else point[:split].reshape(self.features, -1))}
        if self.fit_intercept:
            named["bias"] = np.array(point[split] if one else point[split:])
        return named

    def decision_function(self, parameters: Parameters, features: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the logits of public rows: shape (n, p) to (n,) for one logit per row, else (n, K).

        A row with a non-finite feature is read as a row of zeros, so its logits are the intercept.

        Raises:
            InvalidValue: If the features are not of shape (n, p).
        """
        rows = public_rows(features, self.features)
        with silent():
            logits: npt.NDArray[np.float64] = rows @ parameters["weights"]
            return logits + parameters["bias"] if self.fit_intercept else logits

    def predict(self, parameters: Parameters, features: npt.ArrayLike) -> npt.NDArray[np.generic]:
        logits = self.decision_function(parameters, features)
        if not self.num_classes:
            return logits
        return (logits > 0.0).astype(np.intp) if self.num_outputs == 1 else np.asarray(np.argmax(logits, axis=1))

    def probabilities(self, parameters: Parameters, features: npt.ArrayLike) -> npt.NDArray[np.float64] | None:
        with silent():
            return self.loss.probabilities(self.decision_function(parameters, features))

    def gradient_norm_bound(self, feature_norm_bound: float) -> float | None:
        """Return the largest l2 norm of one record's gradient, over all parameters: lipschitz * R; None if it has no
        bound.

        Args:
            feature_norm_bound: bound on the l2 norm of x, without the constant; R^2 = its square + 1 with intercept.

        Guarantees:
            - gradients_are_within_their_bound: for every record within the bound and all parameters.
        """
        longest = self._input_norm(feature_norm_bound)
        return None if self.loss.lipschitz is None else self.loss.lipschitz * longest

    def smoothness(self, feature_norm_bound: float) -> float | None:
        """Return the Lipschitz constant of one record's gradient in the parameters: curvature * R^2; None if it has
        none.

        Args:
            feature_norm_bound: bound on the l2 norm of x, without the constant; R^2 = its square + 1 with intercept.

        Guarantees:
            - hessians_are_within_their_bound: for every record within the bound and all parameters.
        """
        longest = self._input_norm(feature_norm_bound)
        return None if self.loss.curvature is None else self.loss.curvature * longest**2

    def holder(self, feature_norm_bound: float) -> Holder:
        """Return the Hoelder constants of one record's loss.

        Args:
            feature_norm_bound: bound on the l2 norm of x, without the constant; R^2 = its square + 1 with intercept.

        Guarantees:
            - gradients_change_within_holder: for every record within the bound whose label is in [-1, 1] or is a class.

        Source: Wang, Lei, Ying & Zhang 2022 (arXiv 2101.08925) for the q-norm losses.

        >>> from trainer.losses import QNormHinge
        >>> LinearModel(QNormHinge(1.5), 3, fit_intercept=False).holder(4.0)
        Holder(exponent=0.5, constant=12.0, gradient_at_zero=6.0, loss_at_zero=1.0)
        """
        longest, loss = self._input_norm(feature_norm_bound), self.loss
        return Holder(
            exponent=loss.holder_exponent,
            constant=loss.holder_constant * longest ** (1.0 + loss.holder_exponent),
            gradient_at_zero=loss.slope_at_zero * longest,
            loss_at_zero=loss.value_at_zero,
        )

    def _input_norm(self, feature_norm_bound: float) -> float:
        bound = read_real("feature_norm_bound", feature_norm_bound, 0.0, MAX_FEATURE_NORM)
        return math.hypot(bound, 1.0) if self.fit_intercept else bound
