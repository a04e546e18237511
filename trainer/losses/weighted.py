"""A loss of classes in which each record's loss is multiplied by a public weight of its class, 1 at most.

Weights come from public priors. Since no weight exceeds 1, no record's loss, slope or change of slope is larger than
without weights: every bound of the loss also holds for the weighted loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue
from accounting.numbers import read_real
from trainer.arrays import Array, Namespace
from trainer.losses.loss import Loss

#: The smallest prior. Smaller ones would make weights that floating point can hardly tell from 0.
SMALLEST_PRIOR = 1e-6
#: The largest difference of the sum of priors from 1.
_ROUNDING = 1e-6


def weights_of_priors(priors: Sequence[float]) -> tuple[float, ...]:
    """Return the weights with which all classes have the same total weight: the least prior divided by each prior.

    Args:
        priors: The share of each class, in the order of the codes: public numbers that sum to 1.

    Raises:
        InvalidValue: If there are less than two classes, a prior is too small, or they do not sum to 1.

    >>> weights_of_priors([0.8, 0.2])
    (0.25, 1.0)
    """
    if len(priors) < 2:
        raise InvalidValue("class_priors must have at least two entries, one for each class", pointer=("class_priors",))
    shares = [read_real("class_priors", prior, SMALLEST_PRIOR, 1.0) for prior in priors]
    if abs(math.fsum(shares) - 1.0) > _ROUNDING:
        detail = f"class_priors must sum to 1, but they sum to {math.fsum(shares):.6g}"
        raise InvalidValue(detail, pointer=("class_priors",))
    least = min(shares)
    return tuple(least / share for share in shares)


@dataclass(frozen=True)
class Weighted(Loss):
    """The loss ``loss``, multiplied by the weight of the record's class.

    Attributes:
        loss: A loss of classes.
        weights: The weight of each class, in the order of the codes. Weights are in (0, 1], and at least one is 1.

    Guarantees:
        - bounds_of_the_loss_hold: every constant of ``loss`` also holds for this loss, for every label.

    Raises:
        InvalidValue: If there is not one weight for each class, or a weight is not in (0, 1].

    >>> from trainer.losses.logistic import Logistic
    >>> Weighted(Logistic(), (0.5, 1.0)).residuals(np, np.array([[0.0], [0.0]]), np.array([0, 1])).tolist()
    [[0.25], [-0.5]]
    """

    loss: Loss
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.weights) != self.loss.num_classes:
            raise InvalidValue(
                f"there must be {self.loss.num_classes} weights, one for each class", pointer=("class_weights",)
            )
        weights = tuple(read_real("class_weights", each, 0.0, 1.0, open_lower=True) for each in self.weights)
        object.__setattr__(self, "weights", weights)

    @property
    def kind(self) -> str:  # type: ignore[override]  # it is trained, and named, as the loss itself
        return self.loss.kind

    @property
    def num_classes(self) -> int:
        return self.loss.num_classes

    @property
    def num_outputs(self) -> int:
        return self.loss.num_outputs

    def steepest(self, largest_logit: float, norm_order: float = 2.0) -> float:
        return self.loss.steepest(largest_logit, norm_order)

    def largest_change(self, norm_order: float) -> float:
        return self.loss.largest_change(norm_order)

    @property
    def holder_exponent(self) -> float:
        return self.loss.holder_exponent

    @property
    def value_at_zero(self) -> float:
        return self.loss.value_at_zero

    def probabilities(self, logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64] | None:
        """Return the probabilities in a population whose classes have these weights."""
        return self.loss.probabilities(logits)

    def residuals(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        slopes = self.loss.residuals(xp, logits, labels)
        return slopes * xp.astype(self.of_records(xp, labels), slopes.dtype)[:, None]

    def values(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        values = self.loss.values(xp, logits, labels)
        return values * xp.astype(self.of_records(xp, labels), values.dtype)

    def of_records(self, xp: Namespace, labels: Array) -> Array:
        """Return each record's weight, shape (B,), float64, given labels that are codes of classes."""
        return xp.take(xp.asarray(self.weights, dtype=xp.float64), labels)
