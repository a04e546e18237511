"""Phases of Frank-Wolfe steps that follow estimates of the gradient. The estimates are made from fresh batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from accounting.described import Real, Whole
from accounting.errors import InvalidValue, one_of
from accounting.events import ZcDp
from calibrators.phases.mirror_steps import NormOrder, read_noise_order
from calibrators.phases.structured import Charge, Nonnegative, Positive, Records, StructuredPhase
from calibrators.provenance import GRADIENT, SMOOTHNESS

#: The most steps of a phase of gradient estimates.
MAX_ESTIMATES = 1 << 21
#: The ways to make an estimate from the first mean and the changes since then.
ESTIMATORS = ("sums", "prefix_tree", "momentum")


@dataclass(frozen=True, slots=True)
class EstimatePhase(StructuredPhase):
    """Frank-Wolfe over an l_p ball. Each step moves towards the point of the ball that minimises the inner product with
    an estimated gradient.

    The first estimate is the mean gradient of ``first_batch`` records plus noise. Each further step reads ``batch``
    fresh records and adds noise to one of the following:

    - sums: the mean change of gradients since the last step; the estimate is the sum of all noisy changes so far;
    - prefix_tree: the same sums, with noise on the nodes of a binary tree over the steps. A sum of t changes has the
      noise of as many nodes as t has ones in binary;
    - momentum: the new estimate (1 - eta)(d + mean change) + eta (mean gradient), where d is the last estimate. The
      noise is on the part that comes from fresh records.

    Gradients are clipped to l_q norm ``lipschitz``, 1/p + 1/q = 1, and their changes to min(2 ``lipschitz``,
    ``smoothness`` times the l_p distance of the two points). The noise has a density proportional to exp(-|z|_r^2 / (2
    scale^2)).

    Attributes:
        event: One event for all steps together, because no two steps share records: `ZcDp`, count 1.
        estimator: sums, prefix_tree or momentum.
        norm_order: The order p of the norm, in (1, 2].
        noise_order: The order r of the noise's norm, in [2, q].
        estimates: The number of steps, including the first one.
        first_batch, batch: The number of records in the first batch and in every other batch; each record is read once.
        first_scale, scale: The scales of the noise in the first step and in every other step, in gradient units; 0 for
            changes that are always 0.
        lipschitz: The bound on a record's gradient in the l_q norm, in gradient units.
        smoothness: The bound on the gradient's change per unit of l_p distance.
        step_size: The step size eta in (0, 1].
    """

    kind = "gradient_estimates"
    units: ClassVar = {
        "first_scale": GRADIENT,
        "scale": GRADIENT,
        "lipschitz": GRADIENT,
        "smoothness": SMOOTHNESS,
    }
    charge = Charge((ZcDp,), "a phase of gradient estimates must have one zcdp event with count 1")
    estimator: str
    norm_order: NormOrder
    noise_order: float
    estimates: Annotated[int, Whole(1, MAX_ESTIMATES)]
    first_batch: Records
    batch: Records
    first_scale: Positive
    scale: Nonnegative
    lipschitz: Positive
    smoothness: Nonnegative
    step_size: Annotated[float, Real(0.0, 1.0, open_lower=True)]

    def check(self) -> None:
        if self.estimator not in ESTIMATORS:
            raise InvalidValue(f"estimator must be {one_of(ESTIMATORS)}", pointer=("estimator",))
        object.__setattr__(self, "noise_order", read_noise_order(self.norm_order, self.noise_order))

    def change_bound(self, radius: float) -> float:
        """Return the bound on the change of a record's gradient from one step to the next, in a ball of this radius, in
        gradient units.
        """
        return min(2.0 * self.lipschitz, self.smoothness * 2.0 * radius * self.step_size)

    def smallest_change(self, radius: float) -> float | None:
        change = self.change_bound(radius)
        return change / self.lipschitz if change > 0.0 else None

    @property
    def steps(self) -> int:
        return self.estimates

    @property
    def batch_size(self) -> int:
        return self.first_batch

    @property
    def contribution_bound(self) -> float:
        return self.lipschitz

    def fresh_bound(self, radius: float) -> float:
        """Return the bound on a record's contribution to the mean of a step after the first, in gradient units.

        Args:
            radius: The radius of the ball, in which a step moves by at most ``2 radius step_size``.
        """
        change = self.change_bound(radius)
        if self.estimator != "momentum":
            return change
        return (1.0 - self.step_size) * change + self.step_size * self.lipschitz

    @property
    def noise_scale(self) -> tuple[float, ...]:
        return (self.first_scale, self.scale)
