"""What an update sees of one noisy gradient step: the noisy sum, and public numbers. It never sees a record."""

from __future__ import annotations

from dataclasses import dataclass

from calibrators.geometry import Domain, L1Penalty, Penalty, Simplex
from trainer import domains, penalties
from trainer.arrays import Array, namespace_of


@dataclass(frozen=True)
class Step:
    """One step of a plan.

    Attributes:
        noisy_sum: The sum of bounded gradients with its noise, shape (d,), float64; the update's own, which may write
            to it.
        divisor: Public constant by which it is divided.
        step_size: Of this step.
        domain: Where every point lies.
        penalty: What is added to the mean loss.
    """

    noisy_sum: Array
    divisor: int
    step_size: float
    domain: Domain | None = None
    penalty: Penalty | None = None

    @property
    def noisy_mean(self) -> Array:
        """The noisy sum over the divisor, in an array of its own."""
        return self.noisy_sum / self.divisor

    def project(self, point: Array) -> Array:
        """Return the nearest point of the domain."""
        return domains.project(self.domain, namespace_of(point), point)

    def prox(self, point: Array) -> Array:
        """Take the proximal step of the penalty, of this step's size.

        Guarantees:
            - projected_prox_is_the_constrained_prox: ``project(prox(y))`` minimises |x - y|^2 / (2 step_size) plus the
              penalty over the domain. For an l2 penalty that holds in any domain; for an l1 penalty since boxes are
              separable and the balls are centred at 0 (Yu 2013, arXiv 1311.1640); on a simplex an l1 penalty is a
              constant, and so left out.
        """
        if isinstance(self.penalty, L1Penalty) and isinstance(self.domain, Simplex):
            return point
        return penalties.prox(self.penalty, namespace_of(point), point, self.step_size)
