"""Frank-Wolfe steps by a gradient estimate that is carried on from batch to batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from accounting.errors import InvalidValue
from accounting.events import PureDp, ZcDp
from accounting.numbers import MAX_DATASET_SIZE, read_integer, read_real
from calibrators.phases.structured import StructuredPhase
from calibrators.units import GRADIENT, LOSS, PURE, SMOOTHNESS, Units

#: Selections of one plan at most.
MAX_SELECTIONS = 1_000_000


@dataclass(frozen=True, slots=True)
class RecursiveSelections(StructuredPhase):
    """One pass: a gradient estimate goes from step to step, and each step selects a vertex of the l1 ball by it.

    The first step averages gradients over ``first_batch`` records; every other one takes ``batch`` fresh records and
    sets d <- (1 - eta)(d + mean change of the gradient since the last point) + eta mean gradient. A gradient is clipped
    to l_inf norm ``lipschitz``, its change between x and x' to min(2 ``lipschitz``, ``smoothness`` |x - x'|_1). A step
    moves by eta towards the vertex that report-noisy-max with Gumbel noise of scale ``gumbel_scale`` selects.

    Attributes:
        event: One aggregate, since no step alone has a cost: `ZcDp` or `PureDp`, count 1.
        selections: T, steps of the phase.
        first_batch: n_0.
        batch: m, records of each of the T - 1 other steps.
        step_size: eta in (0, 1].
        gumbel_scale: Of the noise on the scores, in loss units.
        lipschitz: Bound on a record's gradient in the l_inf norm, in gradient units.
        smoothness: Bound on its change per unit of l1 distance.
    """

    kind: ClassVar[str] = "recursive_selections"
    units: ClassVar[Mapping[str, Units]] = {
        "step_size": PURE,
        "gumbel_scale": LOSS,
        "lipschitz": GRADIENT,
        "smoothness": SMOOTHNESS,
    }
    selections: int
    first_batch: int
    batch: int
    step_size: float
    gumbel_scale: float
    lipschitz: float
    smoothness: float

    def __post_init__(self) -> None:
        if not isinstance(self.event.mechanism, ZcDp | PureDp) or self.event.count != 1:
            raise InvalidValue("selections that share records are one zcdp or pure_dp event", pointer=("event",))
        object.__setattr__(self, "selections", read_integer("selections", self.selections, 1, MAX_SELECTIONS))
        for name in ("first_batch", "batch"):
            object.__setattr__(self, name, read_integer(name, getattr(self, name), 1, MAX_DATASET_SIZE))
        object.__setattr__(self, "step_size", read_real("step_size", self.step_size, 0.0, 1.0, open_lower=True))
        for name in ("gumbel_scale", "lipschitz"):
            object.__setattr__(self, name, read_real(name, getattr(self, name), 0.0, 1e30, open_lower=True))
        object.__setattr__(self, "smoothness", read_real("smoothness", self.smoothness, 0.0, 1e30))

    @property
    def steps(self) -> int:
        return self.selections

    @property
    def batch_size(self) -> int:
        """The larger of the two."""
        return max(self.first_batch, self.batch)

    @property
    def contribution_bound(self) -> float:
        return self.lipschitz

    @property
    def noise_scale(self) -> tuple[float, ...]:
        return (self.gumbel_scale,)
