"""This module has the interface of losses of logits: derivative, value, and the constants that theorems need."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from trainer.arrays import Array, Namespace


class Loss(ABC):
    """A loss of K logits and a label, convex in the logits.

    Attributes:
        kind: The name of a linear model with this loss.
        num_classes: The number of classes, which are 0 to num_classes - 1; 0 for real labels in [-1, 1].
        num_outputs: The number K of outputs.
        lipschitz: Largest l2 norm of the derivative by the logits; None if it has no bound.
        curvature: Largest eigenvalue of the second derivative by the logits; None if it has no bound.
        holder_exponent: The exponent alpha in |r(z) - r(z')| <= holder_constant |z - z'|^alpha, with the derivative r.
        holder_constant: The constant in this inequality.
        slope_at_zero: Largest l2 norm of the derivative at logits of zero, over all labels.
        value_at_zero: Largest loss at logits of zero, over all labels.

    Guarantees:
        - constants_are_the_least: some logits and labels reach or approach them; for the softmax in a ball, up to a few
          per cent. Constants are rounded up.
    """

    kind: ClassVar[str]

    @property
    @abstractmethod
    def num_classes(self) -> int: ...

    @property
    def num_outputs(self) -> int:
        return 1

    @abstractmethod
    def steepest(self, largest_logit: float, norm_order: float = 2.0) -> float:
        """Return the largest norm of the derivative, over all labels and all logits of at most this norm.

        Args:
            largest_logit: A bound on the l_p norm of the logits, at least 0; infinity for all logits.
            norm_order: The order p in [1, 2]; the derivative is measured in the dual norm.

        Returns:
            Infinity if there is no bound.
        """

    @property
    def lipschitz(self) -> float | None:
        steepest = self.steepest(math.inf)
        return steepest if math.isfinite(steepest) else None

    @property
    def curvature(self) -> float | None:
        return self.holder_constant if self.holder_exponent == 1.0 else None

    @property
    def holder_exponent(self) -> float:
        return 1.0

    @property
    def holder_constant(self) -> float:
        return self.largest_change(2.0)

    @abstractmethod
    def largest_change(self, norm_order: float) -> float:
        """Return `holder_constant` with logits in the l_p norm, p in [1, 2], and derivatives in its dual."""

    @property
    def slope_at_zero(self) -> float:
        return self.steepest(0.0)

    @property
    @abstractmethod
    def value_at_zero(self) -> float: ...

    def probabilities(self, logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64] | None:
        """Return the probability of each class, of shape (n, classes), for logits of shape (n,) if there is one, else
        (n, K).

        Return None if the loss does not belong to a law of the classes.
        """
        return None

    @abstractmethod
    def residuals(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        """Return the derivative by the logits: (B, K) and labels (B,) to (B, K), in the logits' dtype."""

    @abstractmethod
    def values(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        """Return the losses: (B, K) and labels (B,) to (B,), in the logits' dtype."""


def rounded_up(value: float) -> float:
    """Return a number that is no less than the exact value, of which a few operations computed ``value``.

    >>> rounded_up(1.5) - 1.5
    2.6645352591003757e-15
    """
    return value * (1.0 + 2.0**-49) if value else value


def column(xp: Namespace, labels: Array, logits: Array) -> Array:
    """Return labels of shape (B,) as a column of shape (B, 1), in the dtype of the logits."""
    return xp.astype(labels, logits.dtype)[:, None]
