"""Phases of Frank-Wolfe steps on all records. Each step selects a vertex."""

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
    ``divisor``. Report-noisy-max with Gumbel noise of scale ``gumbel_scale`` selects the vertex with the smallest noisy
    score. Step t = 0, 1, ... goes 2/(t+2) of the way to this vertex.

    Attributes:
        event: One selection: `ZcDp` or `PureDp`. The event's count is the number of steps.
        divisor: The public number n of records.
        gumbel_scale: The scale of the Gumbel noise on the scores, in loss units.
        lipschitz: The bound on a record's gradient in the l_inf norm, in gradient units.
    """

    kind = "vertex_steps"
    units: ClassVar = {"gumbel_scale": LOSS, "lipschitz": GRADIENT}
    charge = Charge((ZcDp, PureDp), "a phase of selections must have a zcdp or pure_dp event", once=False)
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
