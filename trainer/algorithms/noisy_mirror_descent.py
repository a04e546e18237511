r"""Noisy mirror descent over an l_p ball: the mean gradient of all records, generalised Gaussian noise, a mirror step.

Source: Bassily, Guzman & Nandi 2021, Algorithm 2, in full batches and with every step's noise charged.
"""

from __future__ import annotations

from accounting.errors import InvalidValue
from calibrators.geometry import LpBall
from calibrators.phases import MirrorPhase
from calibrators.plan import Plan
from trainer.arrays import Array, silent
from trainer.clipped_sums import SMALLEST, ClippedSums, Term
from trainer.loop import State, Task
from trainer.lp_geometry import mirror_step
from trainer.release import rule_for


class MirrorDescent:
    """The steps of a plan of noisy mirror descent, from the centre of the ball.

    Every declared slot takes part in every step; rows beyond the declared size are never read.

    Guarantees:
        - a_mean_moves_by_what_was_charged: between neighbours by at most s L_0 / n in the l_q norm, for any losses.
        - points_are_in_the_ball.

    Raises:
        InvalidValue: the plan has not the one phase and the l_p ball of this algorithm, or a bound that floating point
            cannot keep.
        Unsupported: the model's gradients are no outer products of one layer.
    """

    def __init__(self, task: Task) -> None:
        self._phase, self._domain = _checked(task.plan)
        order = self._phase.norm_order
        self._sums = ClippedSums(task.records, task.model, task.plan.algorithm, dual_order=order / (order - 1.0))
        self._unit = self._phase.lipschitz
        self._grid = self._sums.grid(self._phase.scale * self._phase.records / self._unit)
        self._slots = task.records.positions[: self._phase.records]
        self._noise = task.streams.generalized_gaussian_noise()
        self._xp = task.records.xp
        self._done = 0
        self._point: Array = self._xp.zeros(task.model.num_parameters, dtype=self._xp.float64)
        self._rule = rule_for(task.plan.release, task.plan.iterations, self._point, task.streams.release)

    @property
    def steps_done(self) -> int:
        return self._done

    def step(self) -> None:
        phase, before = self._phase, self._point
        with silent():
            total = self._sums.of(self._slots, self._grid, self._unit, Term(before, phase.lipschitz))
            noise = self._xp.asarray(self._noise.rounded(before.shape[0], phase.noise_order, self._grid.scale))
            noisy = self._grid.noised(total, noise, self._unit / phase.records)
            self._point = mirror_step(self._xp, before, noisy, phase.step_size, phase.norm_order, self._domain.radius)
            self._rule.see(self._done, before, self._point)
        self._done += 1

    def released(self) -> Array:
        return self._rule.released()

    def state(self) -> State:
        return {
            "done": self._done,
            "point": self._point,
            "noise": self._noise.state(),
            "release": self._rule.state(),
        }

    def restore(self, state: State) -> None:
        self._done = int(state["done"])
        self._point = self._xp.asarray(state["point"])
        self._noise.restore(state["noise"])
        self._rule.restore(state["release"])

    def close(self) -> None:
        """Nothing is drawn ahead."""


def _checked(plan: Plan) -> tuple[MirrorPhase, LpBall]:
    """The plan's only phase and its ball."""
    phase, domain = plan.phases[0], plan.domain
    if (
        len(plan.phases) != 1
        or not isinstance(phase, MirrorPhase)
        or not isinstance(domain, LpBall)
        or domain.norm_order != phase.norm_order
        or phase.records != plan.dataset_size
    ):
        raise InvalidValue(
            "noisy_mirror_descent runs plans of one phase of mirror_steps, on all records and in the l_p ball of its "
            "norm",
            code="invalid_plan",
            pointer=("phases",),
        )
    if phase.lipschitz < SMALLEST:
        raise InvalidValue(
            f"lipschitz must be at least {SMALLEST:g} to be kept in floating point; rescale the losses",
            pointer=("phases", 0, "lipschitz"),
        )
    return phase, domain
