"""Cross-entropy of the softmax: log(sum_k exp(z_k)) - z_y for logits z and a class y.

Its derivative by z is r = p - e_y, with p the softmax of z. Let logits be measured in the l_p norm, and derivatives in
its dual, of order q. The shares of the m = K - 1 other classes add up to s = 1 - p_y, so |r|_q <= 2^(1/q) s, reached
where one of them has it all. The second derivative is the variance under p, which is at most the square of half the
range of z (Popoviciu): z' H z <= 2^(2/q) |z|_p^2 / 4, reached where two classes have one half each. It is positive
semidefinite, so that this is its norm from l_p to its dual, too.

Now let logits have norm at most Z. No two differ by more than 2^(1/q) Z, so s <= sigmoid(log m + 2^(1/q) Z). Further,
let the other classes' logits have norm rho, so that -z_y is at most (Z^p - rho^p)^(1/p). Then:

- their exponentials add up to at most m + m^(1/q) rho + e^rho - 1 - rho, since (e^x - 1 - x) / x^2 grows with x;
- by Hoelder's inequality the largest of them is at most e^(c rho) times the mean of the rest, where c^q =
  1 + (m - 1)^(1 - q), so that no class has more than U = 1 / (1 + (m - 1) e^(-c rho)) of s;
- of shares of at most U that add up to 1, j U^q + (1 - j U)^q is the largest sum of q-th powers, j = floor(1 / U).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accounting.numbers import read_integer
from trainer.arrays import Array, Namespace, exponential
from trainer.losses.loss import Loss, rounded_up

MAX_CLASSES = 10**5
#: For the bound by rho: the number of cells of rho, and the largest norm of the logits for which the bound helps.
_CELLS, _LARGEST = 256, 30.0


@dataclass(frozen=True)
class Softmax(Loss):
    """The cross-entropy of K classes, with K logits.

    >>> import numpy as np
    >>> Softmax(2).residuals(np, np.array([[1000.0, 1000.0]]), np.array([1])).tolist()
    [[0.5, -0.5]]
    """

    kind = "softmax_regression"
    classes: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", read_integer("num_classes", self.classes, 2, MAX_CLASSES))

    @property
    def num_classes(self) -> int:
        return self.classes

    @property
    def num_outputs(self) -> int:
        return self.classes

    def steepest(self, largest_logit: float, norm_order: float = 2.0) -> float:
        """Return the least of four bounds: for all logits, by the share of the others, by the change from 0, and by
        rho."""
        dual = _dual(norm_order)
        two, others = math.pow(2.0, 1.0 / dual), self.classes - 1
        if largest_logit == math.inf:
            return two
        share = 1.0 / (1.0 + math.exp(-two * largest_logit) / others)
        at_zero = others / self.classes
        if math.isfinite(dual):
            at_zero *= math.pow(1.0 + math.pow(others, 1.0 - dual), 1.0 / dual)
        changed = at_zero + self.largest_change(norm_order) * largest_logit
        return min(two, rounded_up(min(two * share, changed, self._steepest_of_many(largest_logit, norm_order))))

    def _steepest_of_many(self, largest_logit: float, norm_order: float) -> float:
        """Return the last bound of the module's docstring, for the worst rho. In each cell, every term takes the end
        that makes it larger."""
        dual, others = _dual(norm_order), self.classes - 1
        if others == 1 or not math.isfinite(dual) or not 0.0 < largest_logit <= _LARGEST:
            return math.inf
        edges = np.linspace(0.0, largest_logit, _CELLS + 1)
        least, most = edges[:-1], edges[1:]
        apart = math.pow(1.0 + math.pow(others - 1, 1.0 - dual), 1.0 / dual)
        largest = 1.0 / (1.0 + (others - 1) * np.exp(-apart * most))
        full = np.floor(1.0 / largest)
        powers = full * largest**dual + np.maximum(0.0, 1.0 - full * largest) ** dual
        away = np.maximum(0.0, largest_logit**norm_order - least**norm_order) ** (1.0 / norm_order)
        added = others + others ** (1.0 / dual) * most + np.expm1(most) - most
        shares = 1.0 / (1.0 + np.exp(-away) / added)
        return float(np.max(shares * (1.0 + powers) ** (1.0 / dual))) * (1.0 + 2.0**-40)

    def largest_change(self, norm_order: float) -> float:
        """Return 2^(2/q) / 4, with the dual order q."""
        return math.pow(2.0, 2.0 / _dual(norm_order)) / 4.0

    @property
    def value_at_zero(self) -> float:
        return math.log(self.classes)

    def probabilities(self, logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the softmax: the largest logit is subtracted first, so that nothing overflows."""
        powers = np.exp(logits - np.max(logits, axis=1, keepdims=True))
        shares: npt.NDArray[np.float64] = powers / np.sum(powers, axis=1, keepdims=True)
        return shares

    def residuals(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        """Return p - e_y; the largest logit is subtracted first, so that nothing overflows."""
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


def _dual(norm_order: float) -> float:
    """Return the order q of the dual norm of l_p."""
    return math.inf if norm_order == 1.0 else norm_order / (norm_order - 1.0)
