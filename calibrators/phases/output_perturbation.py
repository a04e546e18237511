"""Phases of steps on one record each. Only the average of their points is released, with noise."""

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
    """Subgradient steps without noise, each on one record that is drawn uniformly. Noise is added to the average of the
    points.

    Neither the points nor the drawn records are released. The cost relies on properties that every record's loss must
    have, for every data set. The loss is convex, its Hoelder constants are at most those given here, and its gradients
    are no longer than ``gradient_norm`` at every point that the steps can reach. A trainer must ensure these
    properties; bounding gradients alone is not enough.

    Attributes:
        event: One event for the whole phase: `ApproximateDp`, count 1.
        iterations: The number T of steps.
        step_size: The step size eta, the same for all steps.
        holder_exponent: The holder exponent alpha.
        holder_constant: The constant L: every record's |g(w) - g(w')| <= L |w - w'|^alpha on all of R^d.
        gradient_norm: The bound G on the length of a record's gradient at every point.
        radius: The largest distance of a point from 0. It is the radius of the domain; without a domain, it is a bound
            that follows from the steps.
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
    charge = Charge((ApproximateDp,), "a phase of output perturbation must have one approximate_dp event with count 1")
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
        """Return the noise on the mean of the points. The sensitivity of this mean is random."""
        return Noise(stddev_on_mean=self.noise_stddev)
