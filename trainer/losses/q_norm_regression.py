"""q-norm regression: |y - z|^q for an output z, a label y in [-1, 1] and q in [1, 2].

The derivative is (q - 1)-Hoelder: |r(z) - r(z')| <= 2^(2 - q) q |z - z'|^(q - 1), reached at residuals of opposite
sign. Source: Wang, Lei, Ying & Zhang 2022 (arXiv 2101.08925); the constant is ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting.numbers import read_real
from trainer.arrays import Array, Namespace
from trainer.losses.loss import Loss, column, rounded_up


@dataclass(frozen=True)
class QNormRegression(Loss):
    """The absolute error at q = 1 and twice the squared loss at q = 2. At the kink the subgradient is 0.

    >>> import numpy as np
    >>> QNormRegression(2.0).residuals(np, np.array([[0.75]]), np.array([0.5])).tolist()
    [[0.5]]
    """

    kind = "q_norm_regression"
    num_classes = 0
    q: float = 1.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "q", read_real("q", self.q, 1.0, 2.0))

    def steepest(self, largest_logit: float, norm_order: float = 2.0) -> float:
        """Return q (1 + Z)^(q - 1), which is reached at the logit that is farthest on the wrong side."""
        if self.q == 1.0 or largest_logit == 0.0:
            return self.q
        return rounded_up(self.q * math.pow(1.0 + largest_logit, self.q - 1.0))

    @property
    def holder_exponent(self) -> float:
        return self.q - 1.0

    def largest_change(self, norm_order: float) -> float:
        """Return 2^(2 - q) q, which is reached at residuals of opposite sign."""
        return self.q * math.pow(2.0, 2.0 - self.q)

    @property
    def value_at_zero(self) -> float:
        return 1.0

    def residuals(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        """Return q sign(z - y) |z - y|^(q - 1)."""
        difference = logits - column(xp, labels, logits)
        return self.q * xp.sign(difference) * xp.abs(difference) ** (self.q - 1.0)

    def values(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        return (xp.abs(logits - column(xp, labels, logits)) ** self.q)[:, 0]
