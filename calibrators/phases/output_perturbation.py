"""Steps of one record each whose average alone is released, with noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from accounting.described import Real, Whole
from accounting.events import ApproximateDp
from accounting.numbers import MAX_COUNT
from accounting.relations import NeighboringRelation
from calibrators.phases.structured import Charge, Noise, Nonnegative, Positive, StructuredPhase
from calibrators.provenance import GRADIENT, PARAMETER, STEP, Units


@dataclass(frozen=True, slots=True)
class OutputPerturbation(StructuredPhase):
    """Subgradient steps without noise, one record drawn uniformly for each; the average of the points gets noise.

    Neither the points nor the drawn records are released. The cost relies on properties of every record's loss, for
    every data set: convex, with Hoelder constants within those here, and gradients within ``gradient_norm`` wherever
    points go. A trainer must ensure these properties; bounding gradients alone is not enough.

    Attributes:
        event: One aggregate: `ApproximateDp`, count 1.
        iterations: The number T of steps.
        step_size: The step size eta, the same for all steps.
        holder_exponent: The holder exponent alpha.
        holder_constant: The constant L: every record's |g(w) - g(w')| <= L |w - w'|^alpha on all of R^d.
        gradient_norm: The bound G: no record's gradient at a point is longer.
        radius: The largest distance of a point from 0: the radius of the domain or, without one, the bound that follows
            for the steps.
        noise_stddev: The standard deviation of the noise on the average, per coordinate.
    """

    kind = "output_perturbation"
    units: ClassVar = {
        "step_size": STEP,
        "holder_constant": Units(loss=1, parameter=-1, holder=-1),
        "gradient_norm": GRADIENT,
        "radius": PARAMETER,
        "noise_stddev": PARAMETER,
    }
    charge = Charge((ApproximateDp,), "output perturbation is one approximate_dp event")
    iterations: Annotated[int, Whole(1, MAX_COUNT)]
    step_size: Positive
    holder_exponent: Annotated[float, Real(0.0, 1.0)]
    holder_constant: Nonnegative
    gradient_norm: Positive
    radius: Positive
    noise_stddev: Positive

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

    def noise(self, relation: NeighboringRelation) -> Noise:
        """Return the noise on the mean of points, whose sensitivity is random."""
        return Noise(stddev_on_mean=self.noise_stddev)
