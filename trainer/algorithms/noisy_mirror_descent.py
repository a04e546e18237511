r"""Noisy mirror descent over an l_p ball: the mean gradient of all records, generalised Gaussian noise, a mirror step.

Source: Bassily, Guzman & Nandi 2021, Algorithm 2, in full batches and with every step's noise charged.
"""

from __future__ import annotations

from calibrators.algorithm import ExampleRequest
from calibrators.geometry import LpBall
from calibrators.phases.mirror_steps import MirrorPhase
from calibrators.plan import Plan
from trainer.arrays import Array, silent
from trainer.clipped_sums import ClippedSums, Term
from trainer.exact.generalized_gaussian import spread_of
from trainer.execution import LINEAR_MODELS, Execution, check_lipschitz
from trainer.loop import Task
from trainer.lp_geometry import mirror_step
from trainer.release import rule_for
from trainer.structured_steps import StructuredSteps, another_plan, check_kept, domain_of, only_phase


class MirrorDescent(StructuredSteps):
    """The steps of a plan of noisy mirror descent, from the centre of the ball.

    Every declared slot takes part in every step; rows beyond the declared size are never read.

    Guarantees:
        - a_mean_moves_by_what_was_charged: between neighbours by at most s L_0 / n in the l_q norm, for any losses.
        - points_are_in_the_ball.

    Raises:
        InvalidValue: If the plan does not have the one phase and the l_p ball of this algorithm, or has a bound that
            floating point cannot keep.
        Unsupported: If the model's gradients are not outer products of one layer.
    """

    kept = (*StructuredSteps.kept, "_release")

    def __init__(self, task: Task) -> None:
        super().__init__(task, task.streams.generalized_gaussian_noise())
        self._phase, self._domain = _checked(task.plan)
        order = self._phase.norm_order
        self._sums = ClippedSums(task.records, task.model, task.plan.algorithm, dual_order=order / (order - 1.0))
        self._unit = self._phase.lipschitz
        spread = spread_of(task.model.num_parameters, self._phase.noise_order)
        self._grid = self._sums.grid(self._phase.scale * self._phase.records / self._unit, spread)
        self._slots = task.records.positions[: self._phase.records]
        self._release = rule_for(task.plan.release, task.plan.iterations, self._point, task.streams.release)

    def step(self) -> None:
        phase, before = self._phase, self._point
        with silent():
            total = self._sums.of(self._slots, self._grid, self._unit, Term(before, phase.lipschitz))
            noise = self._xp.asarray(self._noise.rounded(before.shape[0], phase.noise_order, self._grid.scale))
            noisy = self._grid.noised(total, noise, self._unit / phase.records)
            self._point = mirror_step(self._xp, before, noisy, phase.step_size, phase.norm_order, self._domain.radius)
            self._release.see(self._done, before, self._point)
        self._done += 1

    def released(self) -> Array:
        return self._release.released()


def _checked(plan: Plan) -> tuple[MirrorPhase, LpBall]:
    """Return the plan's only phase and its ball."""
    where = ", on all records and in the l_p ball of its norm"
    phase = only_phase(plan, MirrorPhase, where=where)
    domain = domain_of(plan, LpBall, MirrorPhase, where)
    if domain.norm_order != phase.norm_order or phase.records != plan.dataset_size:
        raise another_plan(plan, MirrorPhase, where)
    check_kept("lipschitz", phase.lipschitz)
    return phase, domain


EXECUTION = Execution(
    phase_type=MirrorPhase,
    make=MirrorDescent,
    check=check_lipschitz,
    models=LINEAR_MODELS,
    requests={
        "mirror_descent": ExampleRequest(
            "Noisy mirror descent: logistic regression in an l_1.5 ball, with generalised Gaussian noise",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "logistic_regression"},
                "iterations": 100,
                "target": {"kind": "approximate_dp", "epsilon": 4, "delta": 1e-5},
                "assumptions": {"norm_order": 1.5, "radius": 4},
            },
        )
    },
)
