"""Frank-Wolfe steps on all records, with a vertex selected in each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from accounting.events import PureDp, ZcDp
from calibrators.phases.structured import Charge, Positive, Records, StructuredPhase
from calibrators.provenance import GRADIENT, LOSS


@dataclass(frozen=True, slots=True)
class VertexSteps(StructuredPhase):
    """Full-batch Frank-Wolfe: every step selects a vertex of the l1 ball by the mean gradient of all records.

    Each record's gradient is clipped to l_inf norm ``lipschitz``, and the sum of all gradients is divided by
    ``divisor``. The vertex of least noisy score is selected by report-noisy-max with Gumbel noise of scale
    ``gumbel_scale``, and the step towards it has length 2/(t+2), t = 0, 1, ...

    Attributes:
        event: One selection, `ZcDp` or `PureDp`; its count is the number of steps.
        divisor: The public number n of records.
        gumbel_scale: The Gumbel scale of the noise on the scores, in loss units.
        lipschitz: The bound on a record's gradient in the l_inf norm, in gradient units.
    """

    kind = "vertex_steps"
    units: ClassVar = {"gumbel_scale": LOSS, "lipschitz": GRADIENT}
    charge = Charge((ZcDp, PureDp), "selections are zcdp or pure_dp events", once=False)
    divisor: Records
    gumbel_scale: Positive
    lipschitz: Positive

    @property
    def steps(self) -> int:
        return self.event.count

    @property
    def batch_size(self) -> int:
        return self.divisor

    @property
    def contribution_bound(self) -> float:
        return self.lipschitz

    @property
    def noise_scale(self) -> tuple[float, ...]:
        return (self.gumbel_scale,)
