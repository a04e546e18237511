"""Phases of mirror steps on all records, with generalised Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from accounting.described import Real
from accounting.events import ZcDp
from accounting.numbers import read_real
from calibrators.phases.structured import Charge, Positive, Records, StructuredPhase
from calibrators.provenance import GRADIENT, STEP

#: The order p of the norm in which parameters are measured.
NormOrder = Annotated[float, Real(1.0, 2.0, open_lower=True)]


@dataclass(frozen=True, slots=True)
class MirrorPhase(StructuredPhase):
    """Noisy mirror descent. A step takes the mean gradient of all records, adds noise, and makes a mirror step in the
    l_p ball.

    A record's gradient is clipped to l_q norm ``lipschitz``, 1/p + 1/q = 1. The noise has a density proportional to
    exp(-|z|_r^2 / (2 scale^2)), r = ``noise_order``.

    Attributes:
        event: One step: `ZcDp` in full batches. The event's count is the number of steps.
        norm_order: The order p of the norm, in (1, 2].
        noise_order: The order r of the noise's norm, in [2, q].
        records: The number n of records, the public divisor of every sum.
        scale: The scale of the noise on the mean, in gradient units.
        lipschitz: The bound on a record's gradient in the l_q norm, in gradient units.
        step_size: The size of every mirror step.
    """

    kind = "mirror_steps"
    units: ClassVar = {"scale": GRADIENT, "lipschitz": GRADIENT, "step_size": STEP}
    charge = Charge(
        (ZcDp,), "a phase of mirror steps must have a zcdp event in full batches", once=False, full_batch=True
    )
    norm_order: NormOrder
    noise_order: float
    records: Records
    scale: Positive
    lipschitz: Positive
    step_size: Positive

    def check(self) -> None:
        object.__setattr__(self, "noise_order", read_noise_order(self.norm_order, self.noise_order))

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


def read_noise_order(norm_order: float, noise_order: float) -> float:
    """Return the order r of the noise's norm, if it is in [2, q].

    Raises:
        InvalidValue: If r is not in [2, q].
    """
    largest = max(2.0, norm_order / (norm_order - 1.0) * (1.0 + 1e-12))
    return read_real("noise_order", noise_order, 2.0, largest)
