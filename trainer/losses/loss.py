"""The interface of losses of logits: derivative, value, and the constants that theory asks for."""

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
        kind: Name of a linear model with this loss.
        num_classes: Labels are the classes 0 to num_classes - 1; 0 for real labels in [-1, 1].
        num_outputs: The number K of outputs.
        lipschitz: Largest l2 norm of the derivative by the logits; None if there is none.
        curvature: Largest eigenvalue of the second derivative by the logits; None if there is none.
        holder_exponent: alpha, by which |r(z) - r(z')| <= holder_constant |z - z'|^alpha for the derivative r.
        holder_constant: See there.
        slope_at_zero: Largest l2 norm of the derivative at logits of zero, over all labels.
        value_at_zero: Largest loss at logits of zero, over all labels.

    Guarantees:
        - constants_are_the_least: some logits and labels reach or approach them, softmax's in a ball but for a few per
          cent. Rounded up.
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
            norm_order: p in [1, 2]; the derivative is measured in the dual norm.

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
        """Return the probability of each class, of logits as a model shows them: (n,) for one, else (n, K), to (n,
        classes).

        None if the loss is not that of a probability.
        """
        return None

    @abstractmethod
    def residuals(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        """Return the derivative by the logits: (B, K) and labels (B,) to (B, K), in the logits' dtype."""

    @abstractmethod
    def values(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        """Return the losses: (B, K) and labels (B,) to (B,), in the logits' dtype."""


def rounded_up(value: float) -> float:
    """Return a number that is no less than what ``value`` was computed for in a few operations.

    >>> rounded_up(1.5) - 1.5
    2.6645352591003757e-15
    """
    return value * (1.0 + 2.0**-49) if value else value


def column(xp: Namespace, labels: Array, logits: Array) -> Array:
    """Return labels of shape (B,) as a column beside logits of shape (B, 1), in their dtype."""
    return xp.astype(labels, logits.dtype)[:, None]
