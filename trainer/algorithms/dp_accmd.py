"""DP-AccMD in its safe form: accelerated mirror descent in a ball, one noisy full gradient a step.

In the printed algorithm, y takes a step along the gradient without noise, and so releases that gradient; here y is the
running mean r z + (1 - r) y, so records enter only through noisy sums. In the l2 ball a mirror step is a projected
step. In the l1 ball it is a multiplicative step of 2 d weights u that sum to 1, with z = R (u+ - u-); u is kept in
logarithms.

Source: Wang, Ye & Xu 2017 (arXiv 1802.05251), Algorithm 3; the step for y is ours.
"""

from __future__ import annotations

from typing import Protocol

from accounting.errors import InvalidValue
from calibrators.algorithm import ExampleRequest
from calibrators.geometry import L1Ball, L2Ball
from calibrators.plan import Clip, Phase
from trainer.arrays import Array, namespace_of
from trainer.domains import project
from trainer.execution import PREDICTORS, Execution, check_gradient_steps
from trainer.loop import GradientSteps, Resumable, Step, Task


class MirrorPoint(Protocol):
    """The point z, which mirror steps move."""

    @property
    def point(self) -> Array:
        """The point z, shape (d,)."""
        ...

    def move(self, gradient: Array, length: float) -> None:
        """Return argmin_v B_w(v, z) R^2 + length <gradient, v> over the ball, with length in parameters^2 / loss."""
        ...

    def state(self) -> Array:
        """Return the array that describes the point."""
        ...

    def restore(self, state: Array) -> None:
        """Go on from the point at which `state` was taken."""
        ...


class EuclideanPoint:
    """A point of the l2 ball, which moves by projection: z <- project(z - length g)."""

    def __init__(self, domain: L2Ball, start: Array) -> None:
        self._domain, self.point = domain, start

    def move(self, gradient: Array, length: float) -> None:
        self.point = project(self._domain, namespace_of(gradient), self.point - length * gradient)

    def state(self) -> Array:
        return self.point

    def restore(self, state: Array) -> None:
        self.point = namespace_of(self.point).asarray(state)


class EntropicPoint:
    """A point of the l1 ball, which moves by u <- u exp(-(length / R) [g; -g]), normalised.

    At least half of the weight is spread evenly at the start, so that every coordinate can move. The centre is
    represented exactly; other starting points are moved towards it if they are farther than R/2.
    """

    def __init__(self, domain: L1Ball, start: Array) -> None:
        xp = namespace_of(start)
        self._radius = domain.radius
        parts = xp.concat([start, -start])
        inside = xp.maximum(parts, xp.zeros_like(parts)) / self._radius
        share = float(xp.sum(inside))
        inside = inside * min(1.0, 0.5 / share) if share > 0.0 else inside
        self._logs = xp.log(inside + (1.0 - float(xp.sum(inside))) / parts.shape[0])

    @property
    def point(self) -> Array:
        xp = namespace_of(self._logs)
        weights = xp.exp(self._logs - xp.max(self._logs))
        weights = weights / xp.sum(weights)
        half = weights.shape[0] // 2
        return self._radius * (weights[:half] - weights[half:])

    def move(self, gradient: Array, length: float) -> None:
        xp = namespace_of(gradient)
        moved = self._logs - (length / self._radius) * xp.concat([gradient, -gradient])
        self._logs = moved - xp.max(moved)  # a common factor changes nothing

    def state(self) -> Array:
        return self._logs

    def restore(self, state: Array) -> None:
        self._logs = namespace_of(self._logs).asarray(state)


class AcceleratedMirrorDescent(Resumable):
    """Mirror steps of growing length move z, y is the weighted mean of the z, and gradients are taken between the two.

    Guarantees:
        - records_enter_through_noisy_sums_alone: z, y and the next query are functions of noisy sums and of the plan.
        - points_stay_in_the_ball: z by its step, y and the query as convex combinations.

    Raises:
        InvalidValue: If the plan's domain is no l2 or l1 ball.
    """

    kept = ("point", "_mirror", "_done")

    def __init__(self, task: Task, start: Array) -> None:
        self._mirror = _mirror_point(task, start)
        self._done = 0
        self.point = self._mirror.point

    @property
    def query(self) -> Array:
        share = self._share
        return share * self._mirror.point + (1.0 - share) * self.point

    def advance(self, step: Step) -> None:
        """Take one noisy mean gradient at the query. Step k of size eta moves z by (k + 2) eta / 4, which is alpha
        R^2."""
        assert step.penalty is None, "dp_accmd takes no penalty: leave it out"
        share = self._share
        self._mirror.move(step.noisy_mean, 0.25 * (self._done + 2) * step.step_size)
        self.point = share * self._mirror.point + (1.0 - share) * self.point
        self._done += 1

    @property
    def _share(self) -> float:
        """Return the share r = 2 / (k + 2)."""
        return 2.0 / (self._done + 2)


def _mirror_point(task: Task, start: Array) -> MirrorPoint:
    domain = task.plan.domain
    if isinstance(domain, L2Ball):
        return EuclideanPoint(domain, start)
    if isinstance(domain, L1Ball):
        return EntropicPoint(domain, start)
    raise InvalidValue("the domain of a dp_accmd plan must be an l2 ball or an l1 ball", pointer=("domain",))


def make(task: Task) -> GradientSteps:
    """Return the trainer of a plan."""
    return GradientSteps(task, lambda start: AcceleratedMirrorDescent(task, start), Clip)


EXECUTION = Execution(
    phase_type=Phase,
    gradient_bound=Clip,
    make=make,
    check=check_gradient_steps,
    models=PREDICTORS,
    requests={
        "accelerated_mirror_descent": ExampleRequest(
            "DP-AccMD: logistic regression in an l1 ball, few steps on all records",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "logistic_regression"},
                "iterations": 10,
                "gradient_bound": {"kind": "clip", "max_grad_norm": 2.0},
                "target": {"kind": "approximate_dp", "epsilon": 4, "delta": 1e-5},
                "domain": {"kind": "l1_ball", "radius": 10},
            },
        )
    },
)
