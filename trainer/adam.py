"""Adam's step on noisy means: its moments are functions of noisy means, and cost no privacy.

Source: Kingma & Ba 2015 (arXiv 1412.6980), Algorithm 1; on noisy means Yang, Zhang, Chen & Liu 2022
(arXiv 2206.13033), Appendix D.
"""

from __future__ import annotations

from accounting.errors import InvalidValue
from calibrators.geometry import Box, Domain
from calibrators.yang_nsgd.adam import FIRST_DECAY, SECOND_DECAY, STABILIZER
from trainer.arrays import Array, namespace_of
from trainer.loop import Resumable, Step
from trainer.penalties import prox


class Adam(Resumable):
    """The point x, with the moving means of the noisy means and of their squares.

    Args:
        domain: A box or none.
        start: The start x_0, shape (d,), float64.

    Guarantees:
        - records_enter_through_noisy_sums_alone: x and both moments are functions of noisy sums and of the plan.
        - steps_are_in_adams_own_metric: the next point minimises sum_i (z_i - y_i)^2 / (2 a_i) plus the penalty over
          the box, where y = x - a m / (1 - b_1^t) and a = eta / (sqrt(v / (1 - b_2^t)) + xi).

    Raises:
        InvalidValue: If the projection onto the domain cannot be computed coordinate by coordinate.
    """

    kept = ("point", "_first", "_second", "_done")

    def __init__(self, domain: Domain | None, start: Array) -> None:
        if domain is not None and not isinstance(domain, Box):
            raise InvalidValue(
                f"Adam's steps can be kept only in a box, not in {domain.kind}: each coordinate has its own step size",
                pointer=("domain", "kind"),
            )
        self.point = start
        self._first, self._second = 0.0 * start, 0.0 * start
        self._done = 0

    @property
    def query(self) -> Array:
        return self.point

    def advance(self, step: Step) -> None:
        """Take Adam's step with the noisy mean.

        Args:
            step: noisy_mean = (sum_i h_i g_i + s Z) / B, with the g_i at x; eta = step_size.
        """
        xp, noisy = namespace_of(self.point), step.noisy_mean
        self._done += 1
        self._first = FIRST_DECAY * self._first + (1.0 - FIRST_DECAY) * noisy
        self._second = SECOND_DECAY * self._second + (1.0 - SECOND_DECAY) * (noisy * noisy)
        first = self._first / (1.0 - FIRST_DECAY**self._done)
        second = self._second / (1.0 - SECOND_DECAY**self._done)
        sizes = step.step_size / (xp.sqrt(second) + STABILIZER)
        self.point = step.project(prox(step.penalty, xp, self.point - sizes * first, sizes))
