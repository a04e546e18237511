"""Steps of one record each whose average alone is released, with noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from accounting.errors import InvalidValue
from accounting.events import ApproximateDp
from accounting.numbers import MAX_COUNT, read_integer, read_real
from calibrators.phases.structured import StructuredPhase
from calibrators.units import GRADIENT, PARAMETER, STEP, Units


@dataclass(frozen=True, slots=True)
class OutputPerturbation(StructuredPhase):
    """Subgradient steps without noise, one record drawn uniformly for each; the average of the points gets noise.

    Neither the points nor who was drawn is released. The cost rests on what every record's loss is, for every data set:
    convex, with Hoelder constants within those here, and gradients within ``gradient_norm`` wherever points go. A
    trainer makes it so; one that bounded gradients alone would not.

    Attributes:
        event: One aggregate: `ApproximateDp`, count 1.
        iterations: T.
        step_size: eta, the same for all steps.
        holder_exponent: alpha.
        holder_constant: L: every record's |g(w) - g(w')| <= L |w - w'|^alpha on all of R^d.
        gradient_norm: G: no record's gradient at a point is longer.
        radius: No point is farther from 0: that of the domain, or what follows for steps without one.
        noise_stddev: Per coordinate, on the average.
    """

    kind: ClassVar[str] = "output_perturbation"
    units: ClassVar[Mapping[str, Units]] = {
        "step_size": STEP,
        "holder_constant": Units(loss=1, parameter=-1, holder=-1),
        "gradient_norm": GRADIENT,
        "radius": PARAMETER,
        "noise_stddev": PARAMETER,
    }
    iterations: int
    step_size: float
    holder_exponent: float
    holder_constant: float
    gradient_norm: float
    radius: float
    noise_stddev: float

    def __post_init__(self) -> None:
        if not isinstance(self.event.mechanism, ApproximateDp) or self.event.count != 1:
            raise InvalidValue("output perturbation is one approximate_dp event", pointer=("event", "mechanism"))
        object.__setattr__(self, "iterations", read_integer("iterations", self.iterations, 1, MAX_COUNT))
        object.__setattr__(self, "holder_exponent", read_real("holder_exponent", self.holder_exponent, 0.0, 1.0))
        object.__setattr__(self, "holder_constant", read_real("holder_constant", self.holder_constant, 0.0, 1e30))
        for name in ("step_size", "gradient_norm", "radius", "noise_stddev"):
            value = read_real(name, getattr(self, name), 0.0, 1e30, open_lower=True)
            object.__setattr__(self, name, value)

    @property
    def steps(self) -> int:
        return self.iterations

    @property
    def batch_size(self) -> int:
        return 1

    @property
    def contribution_bound(self) -> float:
        return self.gradient_norm

    @property
    def noise_scale(self) -> tuple[float, ...]:
        return (self.noise_stddev,)
