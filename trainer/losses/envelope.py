"""The Moreau envelope of a loss of one logit is a smooth loss below it and near it.

l_b(m) = min_u l(u) + (b/2) (u - m)^2. With the minimiser u its derivative is b (m - u), which is a subgradient of l at
u; it changes by at most b times a change of m, lies between 0 and any subgradient of l at m, and 0 <= l - l_b <=
r^2 / (2 b) where r is such a subgradient.
"""

from __future__ import annotations

from dataclasses import dataclass

from accounting.errors import Unsupported
from accounting.numbers import read_real
from trainer.arrays import Array, Namespace
from trainer.losses.huber import Huber
from trainer.losses.loss import Loss, column
from trainer.losses.q_norm_hinge import QNormHinge
from trainer.losses.quantile import Quantile
from trainer.losses.squared import Squared

#: The number of halvings of the interval of the derivative: more than a float64 can resolve.
_HALVINGS = 60


@dataclass(frozen=True)
class Envelope(Loss):
    """The envelope of ``loss`` with the quadratic ``smoothing`` b, in losses per squared logit.

    The derivative has a closed form for the hinge, quantile, Huber and squared losses. For the others it is found by
    bisection, with the same number of halvings for every record.

    Guarantees:
        - no_steeper_than_the_loss: the derivative is between 0 and the loss's own, whatever the logits.

    Raises:
        Unsupported: If the loss has several logits.
        InvalidValue: If the smoothing is not positive.

    >>> import numpy as np
    >>> hinge = Envelope(QNormHinge(1.0), 4.0)
    >>> hinge.residuals(np, np.array([[0.8], [-1.0], [2.0]]), np.array([1, 1, 1])).round(12).tolist()
    [[-0.8], [-1.0], [-0.0]]
    """

    kind = "envelope"
    loss: Loss
    smoothing: float

    def __post_init__(self) -> None:
        if self.loss.num_outputs != 1:
            raise Unsupported(
                f"the link of a generalised linear loss is a function of one logit; {self.loss.kind} has "
                f"{self.loss.num_outputs}",
                code="unsupported_model",
                pointer=("model", "kind"),
            )
        object.__setattr__(self, "smoothing", read_real("smoothing", self.smoothing, 0.0, 1e30, open_lower=True))

    @property
    def num_classes(self) -> int:
        return self.loss.num_classes

    def steepest(self, largest_logit: float, norm_order: float = 2.0) -> float:
        """Return the bound of the loss itself, which is no smaller."""
        return self.loss.steepest(largest_logit, norm_order)

    def largest_change(self, norm_order: float) -> float:
        own = self.loss.curvature
        return self.smoothing if own is None else own * self.smoothing / (own + self.smoothing)

    @property
    def value_at_zero(self) -> float:
        """The value of the loss itself, which is no smaller."""
        return self.loss.value_at_zero

    def residuals(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        """Return b (m - u): shape (B, 1), in the logits' dtype."""
        loss, smoothing = self.loss, self.smoothing
        if isinstance(loss, Quantile):
            difference = logits - column(xp, labels, logits)
            return xp.clip(smoothing * difference, -loss.quantile, 1.0 - loss.quantile)
        if isinstance(loss, Huber):
            difference = logits - column(xp, labels, logits)
            return xp.clip(smoothing / (1.0 + smoothing) * difference, -loss.threshold, loss.threshold)
        if isinstance(loss, Squared):
            return smoothing / (1.0 + smoothing) * (logits - column(xp, labels, logits))
        if isinstance(loss, QNormHinge) and loss.q == 1.0:
            signs = 2.0 * column(xp, labels, logits) - 1.0
            return -signs * xp.clip(smoothing * (1.0 - signs * logits), 0.0, 1.0)
        return self._by_bisection(xp, logits, labels)

    def values(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        slopes = self.residuals(xp, logits, labels)
        return (
            self.loss.values(xp, logits - slopes / self.smoothing, labels)
            + (0.5 / self.smoothing * slopes * slopes)[:, 0]
        )

    def _by_bisection(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        """Return the share of the loss's slope r such that share r is a subgradient of the loss at the minimiser u.

        At m - (share r) / b the slope of the loss falls as the share grows, and share r grows, so they meet once.
        """
        steepest = self.loss.residuals(xp, logits, labels)
        low, high = xp.zeros_like(steepest), xp.ones_like(steepest)
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            slope = middle * steepest
            there = self.loss.residuals(xp, logits - slope / self.smoothing, labels)
            is_small = (there - slope) * steepest > 0.0
            low, high = xp.where(is_small, middle, low), xp.where(is_small, high, middle)
        return low * steepest
