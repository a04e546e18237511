"""Mirror steps on all records, with generalised Gaussian noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from accounting.errors import InvalidValue
from accounting.events import FullBatch, ZcDp
from accounting.numbers import MAX_DATASET_SIZE, read_integer, read_real
from calibrators.phases.structured import StructuredPhase
from calibrators.units import GRADIENT, STEP, Units


@dataclass(frozen=True, slots=True)
class MirrorPhase(StructuredPhase):
    """Noisy mirror descent: the mean gradient of all records, noise, a mirror step in the l_p ball.

    A record's gradient is clipped to l_q norm ``lipschitz``, 1/p + 1/q = 1. The noise has a density proportional to
    exp(-|z|_r^2 / (2 scale^2)), r = ``noise_order``.

    Attributes:
        event: Every step: `ZcDp` in full batches, as many as there are steps.
        norm_order: p in (1, 2].
        noise_order: r in [2, q].
        records: n, the public divisor of every sum.
        scale: Of the noise on the mean, in gradient units.
        lipschitz: Bound on a record's gradient in the l_q norm, in gradient units.
        step_size: Of every mirror step.
    """

    kind: ClassVar[str] = "mirror_steps"
    units: ClassVar[Mapping[str, Units]] = {"scale": GRADIENT, "lipschitz": GRADIENT, "step_size": STEP}
    norm_order: float
    noise_order: float
    records: int
    scale: float
    lipschitz: float
    step_size: float

    def __post_init__(self) -> None:
        if not isinstance(self.event.mechanism, ZcDp) or not isinstance(self.event.sampling, FullBatch):
            raise InvalidValue("mirror steps are zcdp events in full batches", pointer=("event", "mechanism"))
        order, noise_order = read_orders(self.norm_order, self.noise_order)
        object.__setattr__(self, "norm_order", order)
        object.__setattr__(self, "noise_order", noise_order)
        object.__setattr__(self, "records", read_integer("records", self.records, 1, MAX_DATASET_SIZE))
        for name in ("scale", "lipschitz", "step_size"):
            object.__setattr__(self, name, read_real(name, getattr(self, name), 0.0, 1e30, open_lower=True))

    @property
    def steps(self) -> int:
        return self.event.count

    @property
    def batch_size(self) -> int:
        return self.records

    @property
    def contribution_bound(self) -> float:
        return self.lipschitz

    @property
    def noise_scale(self) -> tuple[float, ...]:
        return (self.scale,)


def read_orders(norm_order: float, noise_order: float) -> tuple[float, float]:
    """p in (1, 2] and r in [2, q] of a phase.

    Raises:
        InvalidValue: one is outside its range.
    """
    order = read_real("norm_order", norm_order, 1.0, 2.0, open_lower=True)
    largest = max(2.0, order / (order - 1.0) * (1.0 + 1e-12))
    return order, read_real("noise_order", noise_order, 2.0, largest)
