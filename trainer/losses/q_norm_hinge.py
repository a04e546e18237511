"""q-norm hinge: max(0, 1 - y z)^q for a logit z, a label y in {-1, +1} (the classes 0 and 1) and q in [1, 2].

The derivative is (q - 1)-Hoelder: |r(z) - r(z')| <= q |z - z'|^(q - 1).
Source: Wang, Lei, Ying & Zhang 2022 (arXiv 2101.08925).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting.numbers import read_real
from trainer.arrays import Array, Namespace, cleared
from trainer.losses.loss import Loss, column, rounded_up


@dataclass(frozen=True)
class QNormHinge(Loss):
    """The hinge loss at q = 1 and its square at q = 2. At the kink the subgradient is 0.

    >>> import numpy as np
    >>> QNormHinge(2.0).residuals(np, np.array([[0.5], [0.5], [2.0]]), np.array([1, 0, 1])).tolist()
    [[-1.0], [3.0], [0.0]]
    """

    kind = "q_norm_hinge"
    num_classes = 2
    value_at_zero = 1.0
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
        """Return q, which is reached from the kink on, since (a + h)^(q - 1) - a^(q - 1) is at most h^(q - 1)."""
        return self.q

    def residuals(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        """Return -q y max(0, 1 - y z)^(q - 1), and 0 if 1 - y z <= 0."""
        signs = 2.0 * column(xp, labels, logits) - 1.0
        shortfall = 1.0 - signs * logits
        falls_short = shortfall > 0.0
        slope = cleared(xp, shortfall, xp.logical_not(falls_short)) ** (self.q - 1.0)
        return cleared(xp, -self.q * signs * slope, xp.logical_not(falls_short))

    def values(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        signs = 2.0 * column(xp, labels, logits) - 1.0
        shortfall = 1.0 - signs * logits
        return (xp.where(shortfall > 0.0, shortfall, xp.zeros_like(shortfall)) ** self.q)[:, 0]
