"""Squared loss: (z - y)^2 / 2 for an output z and a label y in [-1, 1]."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.arrays import Array, Namespace
from trainer.losses.loss import Loss, column


@dataclass(frozen=True)
class Squared(Loss):
    """The squared loss. Its derivative z - y has no bound, so a model with this loss has a gradient bound only in a
    bounded domain.

    >>> import numpy as np
    >>> Squared().residuals(np, np.array([[0.75]]), np.array([0.5])).tolist()
    [[0.25]]
    """

    kind = "linear_regression"
    num_classes = 0
    value_at_zero = 0.5

    def steepest(self, largest_logit: float, norm_order: float = 2.0) -> float:
        """Return 1 + Z."""
        return 1.0 + largest_logit

    def largest_change(self, norm_order: float) -> float:
        """Return 1, the second derivative."""
        return 1.0

    def residuals(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        """Return z - y."""
        return logits - column(xp, labels, logits)

    def values(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        difference = logits - column(xp, labels, logits)
        return (0.5 * difference * difference)[:, 0]
