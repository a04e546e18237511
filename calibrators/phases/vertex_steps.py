"""Frank-Wolfe steps on all records, with a vertex selected in each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from accounting.errors import InvalidValue
from accounting.events import PureDp, ZcDp
from accounting.numbers import MAX_DATASET_SIZE, read_integer, read_real
from calibrators.phases.structured import StructuredPhase
from calibrators.units import GRADIENT, LOSS, Units


@dataclass(frozen=True, slots=True)
class VertexSteps(StructuredPhase):
    """Full-batch Frank-Wolfe: every step selects a vertex of the l1 ball by the mean gradient of all records.

    A record's gradient is clipped to l_inf norm ``lipschitz``; their sum is divided by ``divisor``. The vertex of least
    noisy score is selected by report-noisy-max with Gumbel noise of scale ``gumbel_scale``, and the step towards it has
    length 2/(t+2), t = 0, 1, ...

    Attributes:
        event: One selection, `ZcDp` or `PureDp`; its count is the number of steps.
        divisor: Public number of records n.
        gumbel_scale: Of the noise on the scores, in loss units.
        lipschitz: Bound on a record's gradient in the l_inf norm, in gradient units.
    """

    kind: ClassVar[str] = "vertex_steps"
    units: ClassVar[Mapping[str, Units]] = {"gumbel_scale": LOSS, "lipschitz": GRADIENT}
    divisor: int
    gumbel_scale: float
    lipschitz: float

    def __post_init__(self) -> None:
        if not isinstance(self.event.mechanism, ZcDp | PureDp):
            raise InvalidValue("selections are zcdp or pure_dp events", pointer=("event", "mechanism"))
        object.__setattr__(self, "divisor", read_integer("divisor", self.divisor, 1, MAX_DATASET_SIZE))
        for name in ("gumbel_scale", "lipschitz"):
            object.__setattr__(self, name, read_real(name, getattr(self, name), 0.0, 1e30, open_lower=True))

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
