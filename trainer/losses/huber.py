"""Huber loss: (z - y)^2 / 2 where |z - y| <= t, and t (|z - y| - t / 2) beyond; labels y in [-1, 1]."""

from __future__ import annotations

from dataclasses import dataclass

from accounting.numbers import read_real
from trainer.arrays import Array, Namespace
from trainer.losses.loss import Loss, column


@dataclass(frozen=True)
class Huber(Loss):
    """Least squares whose derivative is clipped to [-threshold, threshold].

    >>> import numpy as np
    >>> Huber(0.5).residuals(np, np.array([[2.0], [0.25]]), np.array([0.0, 0.0])).tolist()
    [[0.5], [0.25]]
    """

    kind = "huber_regression"
    num_classes = 0
    threshold: float = 1.0

    def __post_init__(self) -> None:
        threshold = read_real("threshold", self.threshold, 0.0, 1e6, open_lower=True)
        object.__setattr__(self, "threshold", threshold)

    def steepest(self, largest_logit: float, norm_order: float = 2.0) -> float:
        """Return min(t, 1 + Z)."""
        return min(self.threshold, 1.0 + largest_logit)

    def largest_change(self, norm_order: float) -> float:
        """Return 1, the second derivative near the label."""
        return 1.0

    @property
    def value_at_zero(self) -> float:
        near = min(self.threshold, 1.0)
        return near * (1.0 - near / 2.0)

    def residuals(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        """Return z - y, clipped to [-t, t]."""
        return xp.clip(logits - column(xp, labels, logits), -self.threshold, self.threshold)

    def values(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        far = xp.abs(logits - column(xp, labels, logits))
        near = xp.clip(far, 0.0, self.threshold)
        return (near * (far - 0.5 * near))[:, 0]
