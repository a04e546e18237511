"""From what a run drew to what the reference transcription of its algorithm releases.

Each entry translates the plan into the letters of the paper; the steps are in `tests/reference`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrators.geometry import L1Ball, L2Ball, L2Penalty
from calibrators.plan import Clip, Normalize, Phase, Plan, TreePhase
from calibrators.release import AverageIterate, LastIterate, RandomIterate, WeightedAverage
from tests.reference import (
    clipped_sgd_strongly_convex,
    dp_gd,
    dp_nsgd,
    dp_sgd,
    dp_sgd_gradient,
    tree_sfw_l1,
)

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A run as a transcription sees it.

    Attributes:
        plan: Of the run.
        start: The first point.
        gradient: Of one record, by its number, at a point.
        batches: Record numbers of each step.
        noises: Of each step.
        order: Record numbers in a secret order, for algorithms that read them by it.
        chosen: The step that a random release takes its point from.
        margin: How far contributions stay below their bound.
    """

    plan: Plan
    start: Vector
    gradient: Callable[[Vector, int], Vector]
    batches: Sequence[Sequence[int]]
    noises: Sequence[Vector]
    order: Sequence[int]
    chosen: int
    margin: float

    @property
    def phase(self) -> Phase:
        [phase] = self.plan.phases
        assert isinstance(phase, Phase)
        return phase

    @property
    def clip(self) -> float:
        """The threshold that is clipped to; the noise is that of the plan's."""
        bound = self.phase.gradient_bound
        assert isinstance(bound, Clip)
        return bound.max_grad_norm * (1.0 - self.margin)

    @property
    def step_size(self) -> float:
        size = self.phase.step_size
        assert isinstance(size, float)
        return size

    def after_ridge(self, point: Vector) -> Vector:
        """A ridge that the paper does not have is a proximal step after the noisy one."""
        penalty = self.plan.penalty
        strength = penalty.strength if isinstance(penalty, L2Penalty) else 0.0
        return point / (1.0 + self.step_size * strength)


def yang_clipped(drawn: Drawn) -> Vector:
    assert isinstance(drawn.plan.release, LastIterate)
    phase, point = drawn.phase, drawn.start
    for batch, noise in zip(drawn.batches, drawn.noises, strict=True):
        [point] = dp_sgd.trajectory(
            point,
            drawn.gradient,
            [batch],
            [noise],
            eta=drawn.step_size,
            c=drawn.clip,
            sigma=phase.noise_stddev_on_sum / drawn.clip,
            B=phase.divisor,
        )
        point = drawn.after_ridge(point)
    return point


def yang_normalized(drawn: Drawn) -> Vector:
    assert isinstance(drawn.plan.release, LastIterate)
    phase, bound = drawn.phase, drawn.phase.gradient_bound
    assert isinstance(bound, Normalize)
    return dp_nsgd.trajectory(
        drawn.start,
        drawn.gradient,
        drawn.batches,
        drawn.noises,
        eta=drawn.step_size,
        r=bound.regularizer,
        sigma=phase.noise_stddev_on_sum,
        B=phase.divisor,
    )[-1]


def wang_projected(drawn: Drawn) -> Vector:
    phase, domain = drawn.phase, drawn.plan.domain
    assert isinstance(drawn.plan.release, AverageIterate)
    assert isinstance(domain, L2Ball)
    _, average = dp_sgd_gradient.trajectory(
        drawn.start,
        drawn.gradient,
        drawn.batches,
        drawn.noises,
        eta=drawn.step_size,
        G=drawn.clip,
        sigma=phase.noise_stddev_on_mean,
        b=phase.divisor,
        R=domain.radius,
    )
    return average


def wang_full(drawn: Drawn) -> Vector:
    phase, release = drawn.phase, drawn.plan.release
    path = [drawn.start]
    for noise in drawn.noises:
        _, point = dp_gd.trajectory(
            path[-1],
            drawn.gradient,
            [noise],
            n=drawn.plan.dataset_size,
            eta=drawn.step_size,
            G=drawn.clip,
            sigma=phase.noise_stddev_on_mean,
        )
        path.append(drawn.after_ridge(point))
    return dp_gd.released(path, drawn.chosen if isinstance(release, RandomIterate) else None)


def lowy_one_pass(drawn: Drawn) -> Vector:
    phase, domain, penalty, release = drawn.phase, drawn.plan.domain, drawn.plan.penalty, drawn.plan.release
    assert isinstance(domain, L2Ball)
    assert isinstance(release, WeightedAverage)
    _, average = clipped_sgd_strongly_convex.trajectory(
        drawn.start,
        drawn.gradient,
        drawn.batches,
        drawn.noises,
        etas=[phase.step_size_at(index) for index in range(phase.steps)],
        zetas=release.weights,
        C=drawn.clip,
        s=phase.divisor,
        sigma=phase.noise_stddev_on_mean,
        radius=domain.radius,
        penalty=penalty.strength if isinstance(penalty, L2Penalty) else 0.0,
    )
    return average


def trees(drawn: Drawn) -> Vector:
    [phase], domain = drawn.plan.phases, drawn.plan.domain
    assert isinstance(phase, TreePhase)
    assert isinstance(domain, L1Ball)
    noises = iter(drawn.noises)
    path = tree_sfw_l1.trajectory(
        drawn.start,
        drawn.gradient,
        drawn.order,
        lambda scores, tree: int(np.argmin(scores - phase.noise_scales[tree - 1] * next(noises))),
        T=phase.num_trees,
        b=phase.records_per_tree,
        D=domain.radius,
        L0=phase.lipschitz * (1.0 - drawn.margin),
        L1=phase.smoothness * (1.0 - drawn.margin),
    )
    return path[-1][1]


TRANSCRIPTIONS: dict[str, Callable[[Drawn], Vector]] = {
    "dp_sgd": yang_clipped,
    "dp_nsgd": yang_normalized,
    "dp_sgd_gradient": wang_projected,
    "dp_gd": wang_full,
    "clipped_sgd_strongly_convex": lowy_one_pass,
    "tree_sfw_l1": trees,
}
