"""Phases of Frank-Wolfe steps that follow a gradient estimate, which each batch updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from accounting.described import Real, Whole
from accounting.events import PureDp, ZcDp
from calibrators.phases.structured import Charge, Nonnegative, Positive, Records, StructuredPhase
from calibrators.provenance import GRADIENT, LOSS, PURE, SMOOTHNESS

#: The most selections of one plan.
MAX_SELECTIONS = 1_000_000


@dataclass(frozen=True, slots=True)
class RecursiveSelections(StructuredPhase):
    """One pass over the records. Each step updates a gradient estimate and uses it to select a vertex of the l1 ball.

    The first step averages gradients over ``first_batch`` records. Every other step takes ``batch`` fresh records and
    updates the estimate d <- (1 - eta)(d + mean change of the gradient since the last point) + eta (mean gradient). A
    gradient is clipped to l_inf norm ``lipschitz``, and its change between x and x' to min(2 ``lipschitz``,
    ``smoothness`` |x - x'|_1). A step moves by eta towards the vertex that report-noisy-max with Gumbel noise of scale
    ``gumbel_scale`` selects.

    Attributes:
        event: One event for all selections together, because they share records: `ZcDp` or `PureDp`, count 1.
        selections: The number T of selections, which are the steps of the phase.
        first_batch: The size n_0 of the first batch.
        batch: The number m of records of each of the T - 1 other steps.
        step_size: The step size eta in (0, 1].
        gumbel_scale: The scale of the Gumbel noise on the scores, in loss units.
        lipschitz: The bound on a record's gradient in the l_inf norm, in gradient units.
        smoothness: The bound on the gradient's change per unit of l1 distance.
    """

    kind = "recursive_selections"
    units: ClassVar = {
        "step_size": PURE,
        "gumbel_scale": LOSS,
        "lipschitz": GRADIENT,
        "smoothness": SMOOTHNESS,
    }
    charge = Charge(
        (ZcDp, PureDp),
        "a phase of selections that share records must have one zcdp or pure_dp event with count 1",
        pointer=("event",),
    )
    selections: Annotated[int, Whole(1, MAX_SELECTIONS)]
    first_batch: Records
    batch: Records
    step_size: Annotated[float, Real(0.0, 1.0, open_lower=True)]
    gumbel_scale: Positive
    lipschitz: Positive
    smoothness: Nonnegative

    def smallest_change(self, radius: float) -> float | None:
        change = min(2.0 * self.lipschitz, self.smoothness * self.step_size * (2.0 * radius))
        return change / self.lipschitz if change > 0.0 else None

    @property
    def steps(self) -> int:
        return self.selections

    @property
    def batch_size(self) -> int:
        """The larger of the two batch sizes."""
        return max(self.first_batch, self.batch)

    @property
    def contribution_bound(self) -> float:
        return self.lipschitz

    @property
    def noise_scale(self) -> tuple[float, ...]:
        return (self.gumbel_scale,)
