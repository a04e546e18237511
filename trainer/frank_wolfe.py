"""This module takes Frank-Wolfe steps in an l_p ball, with gradient estimates that are made of fresh batches.

It reads the records and draws the noise. Each algorithm has an `Estimator` of its own, which makes estimates from both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from accounting.errors import InvalidValue
from calibrators.geometry import LpBall
from calibrators.phases.gradient_estimates import EstimatePhase
from calibrators.plan import Plan
from trainer.arrays import Array, Namespace, silent
from trainer.clipped_sums import ClippedSums, Term
from trainer.exact.generalized_gaussian import spread_of
from trainer.grid import Grid
from trainer.loop import State, Task
from trainer.lp_geometry import least_in_ball, norm
from trainer.records import Indices
from trainer.release import rule_for
from trainer.slots import SecretSlots
from trainer.structured_steps import StructuredSteps, another_plan, check_kept, check_positions


class Fresh(Protocol):
    """A batch that no other step reads."""

    def total(self, *, change: float = 0.0, gradient: float = 0.0) -> Array:
        """Return the sum over the batch of the clipped change since the last step and of the clipped gradient.

        Args:
            change, gradient: The weights of the two terms. They are public and the same at all steps.

        Returns:
            shape (d,), whole numbers of steps of one grid. The sum has no noise, so it is secret.
        """
        ...

    def noised(self, total: Array) -> Array:
        """Return a total with fresh noise, as a mean in gradient units: shape (d,), float64; it may be released."""
        ...


class Estimator(Protocol):
    """Makes the estimates of the gradient. The first estimate is a noisy mean, which is passed in."""

    def start(self, estimate: Array) -> None:
        """Take the first estimate, noise included."""
        ...

    def advance(self, step: int, fresh: Fresh) -> Array:
        """Return the estimate of step number ``step``, from 1 on."""
        ...

    def state(self) -> State:
        """Return all that is kept from step to step."""
        ...

    def restore(self, state: State) -> None:
        """Go on from the point at which `state` was taken."""
        ...


class EstimateFrankWolfe(StructuredSteps):
    """The steps of a plan of one `EstimatePhase`, from the centre of the ball.

    A permutation gives slots to steps. It is drawn before the first step, from the declared size alone.

    Args:
        task: The task of such a plan.
        estimators: Functions that make the algorithm's estimators, by their names in the phase.

    Guarantees:
        - no_record_is_read_twice: each slot belongs to one step, or to none.
        - a_mean_moves_by_what_was_charged: between neighbours the first mean moves by at most s L_0 / n_0 in the l_q
          norm, and a mean of changes by at most s min(2 L_0, L_1 eta M) / m, for any losses.
        - iterates_stay_in_the_ball: each iterate is a convex combination of the last one and of a point of the ball.

    Raises:
        InvalidValue: If the plan does not have the one phase and the l_p ball of this algorithm, or has a bound that
            floating point cannot keep.
        Unsupported: If the model's gradients are not outer products of one layer.
    """

    kept = (*StructuredSteps.kept, "_before", "_slots", "_estimator", "_release")

    def __init__(self, task: Task, estimators: Mapping[str, Callable[[EstimatePhase], Estimator]]) -> None:
        super().__init__(task, task.streams.generalized_gaussian_noise())
        self._phase, self._radius = _checked(task.plan)
        phase = self._phase
        if phase.estimator not in estimators:
            raise InvalidValue(
                f"{task.plan.algorithm} has no estimator named {phase.estimator}",
                code="invalid_plan",
                pointer=("phases", 0, "estimator"),
            )
        dual_order = phase.norm_order / (phase.norm_order - 1.0)
        self._sums = ClippedSums(task.records, task.model, task.plan.algorithm, dual_order=dual_order)
        spread = spread_of(task.model.num_parameters, phase.noise_order)
        self._first_grid = self._sums.grid(phase.first_scale * phase.first_batch / phase.lipschitz, spread)
        self._unit = phase.fresh_bound(self._radius)
        self._grid = self._sums.grid(phase.scale * phase.batch / self._unit if self._unit > 0.0 else 0.0, spread)
        self._estimator = estimators[phase.estimator](phase)
        self._slots = SecretSlots(task)
        self._before = self._point
        self._release = rule_for(task.plan.release, task.plan.iterations, self._point, task.streams.release)

    def step(self) -> None:
        phase, xp = self._phase, self._xp
        with silent():
            if self._done == 0:
                slots, grid = self._slots.take(phase.first_batch), self._first_grid
                total = self._sums.of(slots, grid, phase.lipschitz, Term(self._point, phase.lipschitz))
                estimate = self._noised(total, grid, phase.lipschitz / phase.first_batch)
                self._estimator.start(estimate)
            else:
                estimate = self._estimator.advance(self._done, _Batch(self, self._slots.take(phase.batch)))
            target = least_in_ball(xp, estimate, phase.norm_order, self._radius)
            self._before = self._point
            self._point = (1.0 - phase.step_size) * self._point + phase.step_size * target
            self._release.see(self._done, self._before, self._point)
        self._done += 1

    def _total(self, slots: Indices, change: float, gradient: float) -> Array:
        terms = (
            Term(self._point, self._bound(), self._before, weight=change),
            Term(self._point, self._phase.lipschitz, weight=gradient),
        )
        return self._sums.of(slots, self._grid, self._unit, *(term for term in terms if term.weight > 0.0))

    def _noised(self, total: Array, grid: Grid, unit: float) -> Array:
        noise = self._noise.rounded(total.shape[0], self._phase.noise_order, grid.scale)
        return grid.noised(total, self._xp.asarray(noise), unit)

    def _bound(self) -> float:
        """Return the bound on a change since the last step, from public points; it never exceeds the planned bound."""
        phase = self._phase
        moved = norm(self._xp, self._point - self._before, phase.norm_order)
        distance = min(moved, 2.0 * self._radius * phase.step_size)
        return min(2.0 * phase.lipschitz, phase.smoothness * distance)

    def restore(self, state: State) -> None:
        super().restore(state | {"estimator": _arrays_of(self._xp, state["estimator"])})

    def released(self) -> Array:
        return self._release.released()


def _arrays_of(xp: Namespace, state: State) -> State:
    """Return the same state in arrays of the run's library."""
    return {
        name: _arrays_of(xp, value) if isinstance(value, dict) else xp.asarray(value) for name, value in state.items()
    }


class _Batch:
    """The slots of one step."""

    def __init__(self, steps: EstimateFrankWolfe, slots: Indices) -> None:
        self._steps, self._slots = steps, slots

    def total(self, *, change: float = 0.0, gradient: float = 0.0) -> Array:
        return self._steps._total(self._slots, change, gradient)

    def noised(self, total: Array) -> Array:
        steps = self._steps
        return steps._noised(total, steps._grid, steps._unit / steps._phase.batch)


def check_lp_plan(plan: Plan, norm_order: float, lipschitz: float) -> float:
    """Return the radius of the ball of a plan whose slots are given to means.

    Raises:
        InvalidValue: If the plan does not have the l_p ball of its phase, or has a bound that floating point cannot
            keep.
    """
    domain = plan.domain
    if len(plan.phases) != 1 or not isinstance(domain, LpBall) or domain.norm_order != norm_order:
        raise InvalidValue(
            f"{plan.algorithm} takes only plans with one phase, in the l_p ball of its norm",
            code="invalid_plan",
            pointer=("phases",),
        )
    check_positions(plan, "slots are given to means by position")
    check_kept("lipschitz", lipschitz)
    return domain.radius


def _checked(plan: Plan) -> tuple[EstimatePhase, float]:
    phase = plan.phases[0]
    if not isinstance(phase, EstimatePhase) or (
        phase.first_batch + (phase.estimates - 1) * phase.batch > plan.dataset_size
    ):
        raise another_plan(plan, EstimatePhase, ", in which each record is read once")
    return phase, check_lp_plan(plan, phase.norm_order, phase.lipschitz)
