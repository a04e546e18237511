"""Phases of rounds of full-batch noisy gradient steps. Each round uses its own records and approaches a proximal point
of the last round's end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from accounting.described import Real, Whole
from accounting.errors import InvalidValue
from accounting.numbers import MAX_COUNT
from accounting.relations import NeighboringRelation
from calibrators.phases.localized_phases import ONE_GAUSSIAN, check_block_noise
from calibrators.phases.structured import MaxGradNorm, Noise, Positive, Records, StructuredPhase
from calibrators.provenance import GRADIENT, PARAMETER, SMOOTHNESS

_Constant = Annotated[float | None, Real(0.0, 1e60, open_lower=True)]


@dataclass(frozen=True, slots=True)
class ProximalPhase(StructuredPhase):
    """Rounds of full-batch noisy steps. A round starts from the point w' at which the last round ended, and stays near
    w'.

    Step k = 1.. ``inner_iterations`` of a round takes the mean over the round's ``records`` records of gradients
    clipped to l2 norm ``max_grad_norm``, adds Gaussian noise of standard deviation ``noise_stddev_on_mean`` per
    coordinate and ``regularizer`` (x_k - w'), moves by 2 / (``weak_convexity`` (k + 1)) in the opposite direction, and
    is projected on the domain and the l2 ball of ``radius`` about w'. A round ends at the mean of the points x_k that
    its steps start from, weighted by k. No record is in two rounds, so a record pays only for the steps of one round.

    If such a plan releases a random point, the point is the starting point of a round. All rounds are equally likely.

    Attributes:
        event: One Gaussian mechanism over full batches, count 1. The steps of a round together cost no more than this
            event: with z the event's noise multiplier, ``inner_iterations`` C^2 / m^2 <= sigma^2 / z^2.
        rounds: The number R of rounds.
        records: The number m of records of each round.
        inner_iterations: The number of steps in each round.
        max_grad_norm: The clip threshold C.
        noise_stddev_on_mean: The standard deviation sigma of the noise on the mean.
        weak_convexity: The constant omega, from which step sizes follow. None in a plan that was made only to compute
            its privacy and cannot run.
        regularizer: The regularizer beta, above omega; None in such a plan.
        radius: The radius of the ball about w'; None in such a plan.
    """

    kind = "proximal_phases"
    units: ClassVar = {
        "max_grad_norm": GRADIENT,
        "noise_stddev_on_mean": GRADIENT,
        "weak_convexity": SMOOTHNESS,
        "regularizer": SMOOTHNESS,
        "radius": PARAMETER,
    }
    charge = ONE_GAUSSIAN
    rounds: Records
    records: Records
    inner_iterations: Annotated[int, Whole(1, MAX_COUNT)]
    max_grad_norm: MaxGradNorm
    noise_stddev_on_mean: Positive
    weak_convexity: _Constant
    regularizer: _Constant
    radius: _Constant

    def check(self) -> None:
        for name in ("regularizer", "radius"):
            if (getattr(self, name) is None) != (self.weak_convexity is None):
                raise InvalidValue("weak_convexity, regularizer and radius must be given together", pointer=(name,))
        check_block_noise(
            self.event,
            self.records,
            self.inner_iterations,
            self.max_grad_norm,
            self.noise_stddev_on_mean,
            pointer=("noise_stddev_on_mean",),
        )

    @property
    def steps(self) -> int:
        """The number of steps of all rounds."""
        return self.rounds * self.inner_iterations

    @property
    def gradient_evaluations(self) -> int:
        """The number of gradients of single records in all steps."""
        return self.steps * self.records

    @property
    def batch_size(self) -> int:
        return self.records

    @property
    def contribution_bound(self) -> float:
        return self.max_grad_norm

    @property
    def noise_scale(self) -> tuple[float, ...]:
        return (self.noise_stddev_on_mean,)

    @property
    def smallest_noise(self) -> float:
        return self.noise_stddev_on_mean * self.records / self.max_grad_norm

    def noise(self, relation: NeighboringRelation) -> Noise:
        """Return the noise on a step's sum of clipped gradients."""
        return Noise(
            stddev_on_sum=self.noise_stddev_on_mean * self.records,
            stddev_on_mean=self.noise_stddev_on_mean,
            l2_sensitivity=relation.sensitivity * self.max_grad_norm,
        )

    @property
    def is_executable(self) -> bool:
        return self.weak_convexity is not None
