"""Logistic loss: log(1 + exp(z)) - y z for a logit z and a label y in {0, 1}.

Its derivative by z is sigmoid(z) - y, in [-1, 1]; the second derivative is at most 1/4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainer.arrays import Array, Namespace, exponential
from trainer.losses.loss import Loss, column, rounded_up


@dataclass(frozen=True)
class Logistic(Loss):
    """The logistic loss of two classes, with one logit.

    >>> import numpy as np
    >>> Logistic().residuals(np, np.array([[0.0], [0.0]]), np.array([0, 1])).tolist()
    [[0.5], [-0.5]]
    """

    kind = "logistic_regression"
    num_classes = 2
    value_at_zero = math.log(2.0)

    def steepest(self, largest_logit: float, norm_order: float = 2.0) -> float:
        """Return sigmoid(Z), since |sigmoid(z) - y| is largest where the logit is farthest on the wrong side."""
        return min(1.0, rounded_up(1.0 / (1.0 + math.exp(-largest_logit)))) if largest_logit else 0.5

    def largest_change(self, norm_order: float) -> float:
        """Return 1/4, the second derivative at 0."""
        return 0.25

    def probabilities(self, logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the probability of each class by its own exponential, so that no small probability is rounded to 0."""
        signed = np.stack([logits, -logits], axis=1)
        shares: npt.NDArray[np.float64] = 1.0 / (1.0 + np.exp(signed))
        return shares

    def residuals(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        """Return sigmoid(z) - y. If the exponential overflows, the quotient is the correct limit 0."""
        return 1.0 / (1.0 + exponential(xp, -logits)) - column(xp, labels, logits)

    def values(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        excess = xp.log1p(exponential(xp, -xp.abs(logits))) + xp.where(logits > 0.0, logits, xp.zeros_like(logits))
        return (excess - column(xp, labels, logits) * logits)[:, 0]
