"""Cross-entropy of the softmax: log(sum_k exp(z_k)) - z_y for logits z and a class y.

Its derivative by z is p - e_y with p the softmax of z: of l2 norm at most sqrt(2). The second derivative is
diag(p) - p p^T, whose eigenvalues are at most 1/2: by Gershgorin each is at most 2 p_k (1 - p_k) for some k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accounting.numbers import read_integer
from trainer.arrays import Array, Namespace, exponential
from trainer.losses.loss import Loss

MAX_CLASSES = 10**5


@dataclass(frozen=True)
class Softmax(Loss):
    """K classes, K logits.

    >>> import numpy as np
    >>> Softmax(2).residuals(np, np.array([[1000.0, 1000.0]]), np.array([1])).tolist()
    [[0.5, -0.5]]
    """

    kind = "softmax_regression"
    lipschitz = math.sqrt(2.0)
    curvature = 0.5
    holder_constant = 0.5
    classes: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", read_integer("num_classes", self.classes, 2, MAX_CLASSES))

    @property
    def num_classes(self) -> int:
        return self.classes

    @property
    def num_outputs(self) -> int:
        return self.classes

    @property
    def slope_at_zero(self) -> float:
        return math.sqrt(1.0 - 1.0 / self.classes)

    @property
    def value_at_zero(self) -> float:
        return math.log(self.classes)

    def probabilities(self, logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The softmax: the largest logit is subtracted first, so that nothing overflows."""
        powers = np.exp(logits - np.max(logits, axis=1, keepdims=True))
        shares: npt.NDArray[np.float64] = powers / np.sum(powers, axis=1, keepdims=True)
        return shares

    def residuals(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        """P - e_y; the largest logit is subtracted first, so that nothing overflows."""
        result = exponential(xp, logits - xp.max(logits, axis=1, keepdims=True))
        result /= xp.sum(result, axis=1, keepdims=True)
        result -= xp.astype(self._chosen(xp, labels), result.dtype)
        return result

    def values(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        shifted = logits - xp.max(logits, axis=1, keepdims=True)
        chosen = xp.where(self._chosen(xp, labels), shifted, xp.zeros_like(shifted))
        return xp.log(xp.sum(exponential(xp, shifted), axis=1)) - xp.sum(chosen, axis=1)

    def _chosen(self, xp: Namespace, labels: Array) -> Array:
        return labels[:, None] == xp.arange(self.classes, dtype=labels.dtype)[None, :]
