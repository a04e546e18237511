"""Quantile (pinball) loss: t (y - z) where y >= z, and (1 - t) (z - y) below; labels y in [-1, 1].

Its minimiser over constants z is the t-quantile of the labels.
"""

from __future__ import annotations

from dataclasses import dataclass

from accounting.numbers import read_real
from trainer.arrays import Array, Namespace
from trainer.losses.loss import Loss, column


@dataclass(frozen=True)
class Quantile(Loss):
    """The quantile loss; at the quantile 1/2 it is half the absolute error. At the kink the subgradient is 0.

    >>> import numpy as np
    >>> Quantile(0.75).residuals(np, np.array([[1.0], [-1.0], [0.0]]), np.zeros(3)).tolist()
    [[0.25], [-0.75], [0.0]]
    """

    kind = "quantile_regression"
    num_classes = 0
    holder_exponent = 0.0
    quantile: float = 0.5

    def __post_init__(self) -> None:
        quantile = read_real("quantile", self.quantile, 0.0, 1.0 - 1e-9, open_lower=True)
        object.__setattr__(self, "quantile", quantile)

    def steepest(self, largest_logit: float, norm_order: float = 2.0) -> float:
        """Return the steeper of the two slopes."""
        return max(self.quantile, 1.0 - self.quantile)

    def largest_change(self, norm_order: float) -> float:
        """Return 1, the jump from -t to 1 - t."""
        return 1.0

    @property
    def value_at_zero(self) -> float:
        return self.slope_at_zero

    def residuals(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        """Return 1 - t above the label, -t below it."""
        difference = logits - column(xp, labels, logits)
        above = (1.0 - self.quantile) * xp.astype(difference > 0.0, logits.dtype)
        return above - self.quantile * xp.astype(difference < 0.0, logits.dtype)

    def values(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        difference = logits - column(xp, labels, logits)
        return xp.maximum((1.0 - self.quantile) * difference, -self.quantile * difference)[:, 0]
