"""What one noisy gradient step is made of, but for the records."""

from __future__ import annotations

from dataclasses import dataclass

from calibrators.geometry import Domain, L1Penalty, Penalty, Simplex
from calibrators.plan import Clip, GradientBound
from trainer import domains, penalties
from trainer.arrays import Array, namespace_of
from trainer.clipping import clip_factors, normalize_factors
from trainer.gradients import Factors


@dataclass(frozen=True)
class Step:
    """One step of a plan.

    Attributes:
        gradient_bound: How one record's gradient is bounded before the sum.
        divisor: Public constant by which the noisy sum is divided.
        noise_stddev_on_sum: Per coordinate, in the contributions' unit.
        step_size: Of this step.
        standard_noise: Z, shape (d,), independent standard normal; the update's own, which may write to it.
        margin: How far below their bound contributions stay, relative.
        domain: Where every point lies.
        penalty: What is added to the mean loss.
    """

    gradient_bound: GradientBound
    divisor: int
    noise_stddev_on_sum: float
    step_size: float
    standard_noise: Array
    margin: float
    domain: Domain | None = None
    penalty: Penalty | None = None

    def factors(self) -> Factors:
        """What bounds a record's gradient: from norms to factors."""
        bound = self.gradient_bound
        if isinstance(bound, Clip):
            return lambda norms: clip_factors(norms, bound.max_grad_norm, self.margin)
        return lambda norms: normalize_factors(norms, bound.regularizer, self.margin)

    def project(self, point: Array) -> Array:
        """The nearest point of the domain."""
        return domains.project(self.domain, namespace_of(point), point)

    def prox(self, point: Array) -> Array:
        """The proximal step of the penalty, of this step's size.

        Guarantees:
            - projected_prox_is_the_constrained_prox: ``project(prox(y))`` minimises |x - y|^2 / (2 step_size) plus the
              penalty over the domain. For an l2 penalty that holds in any domain; for an l1 penalty since boxes are
              separable and the balls are centred at 0 (Yu 2013, arXiv 1311.1640); on a simplex an l1 penalty is a
              constant, and so left out.
        """
        if isinstance(self.penalty, L1Penalty) and isinstance(self.domain, Simplex):
            return point
        return penalties.prox(self.penalty, namespace_of(point), point, self.step_size)
