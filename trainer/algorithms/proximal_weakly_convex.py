"""Rounds of noisy gradient steps towards proximal points, each on its own records; the start of a random round is
released.

Source: Bassily, Guzman & Menart 2021, weakly convex losses, with full batches and constants of our own
(`calibrators.bassily_guzman.proximal_point`).
"""

from __future__ import annotations

from accounting.errors import InvalidValue
from calibrators.algorithm import ExampleRequest
from calibrators.geometry import L2Ball
from calibrators.phases.proximal_phases import ProximalPhase
from calibrators.plan import Plan
from trainer.arrays import Array
from trainer.blocks import BlockSteps, check_blocks, check_evaluations, project_near
from trainer.execution import PREDICTORS, Execution, Proposal, check_at_least
from trainer.loop import Task
from trainer.release import rule_for
from trainer.structured_steps import another_plan, only_phase

_WHERE = ", in an l2 ball or without a domain"


class ProximalRounds(BlockSteps):
    """The steps of a plan of proximal rounds. Each round is a block of `BlockSteps`, which ends at the average of its
    points.

    Guarantees:
        - one_record_moves_a_rounds_sums_by_at_most_the_bound: which is C, or 2 C if a record is replaced.
        - points_stay_near_their_rounds_start: within the radius, and in the domain.
        - every_round_is_alike_likely_to_be_released: the round is drawn before the first step, without looking at rows.

    Raises:
        InvalidValue: If the plan does not have the one phase of this algorithm, takes more than a run can do, or has
            bounds that floating point cannot keep.
    """

    kept = (*BlockSteps.kept, "_average", "_release")

    def __init__(self, task: Task) -> None:
        self._phase, self._domain = _checked(task.plan)
        phase = self._phase
        super().__init__(task, (phase.records,) * phase.rounds, (phase.inner_iterations,) * phase.rounds)
        self._average: Array = 0.0 * self._point
        self._release = rule_for(task.plan.release, task.plan.iterations, self._point, task.streams.release)

    def _moved(self, block: int) -> Array:
        """Return Pi(x_k - 2/(omega (k+1)) (noisy mean + beta (x_k - w'))), and at the end the sum of 2k x_k / (T
        (T+1))."""
        phase, point, centre = self._phase, self._point, self._centre
        assert phase.weak_convexity is not None, "as was checked"
        assert phase.regularizer is not None, "as was checked"
        assert phase.radius is not None, "as was checked"
        # The start of a step's round is kept. Rounds have equally many steps, so each is equally likely.
        self._release.see(self._done, centre, point)
        steps = phase.inner_iterations
        k = self._done - block * steps + 1
        before = 0.0 * point if k == 1 else self._average
        self._average = before + 2.0 * k / (steps * (steps + 1.0)) * point
        direction = self._noisy_mean(block, point, phase.max_grad_norm, phase.noise_stddev_on_mean)
        direction = direction + phase.regularizer * (point - centre)
        if (
            k == steps
        ):  # the last step's result does not enter the average, but the step is charged and taken all the same
            return self._average
        step_size = 2.0 / (phase.weak_convexity * (k + 1.0))
        return project_near(self._domain, centre, phase.radius, self._task.records.xp, point - step_size * direction)

    def released(self) -> Array:
        return self._release.released()


def _checked(plan: Plan) -> tuple[ProximalPhase, L2Ball | None]:
    """Return the plan's only phase, and its domain."""
    phase, domain = only_phase(plan, ProximalPhase, where=_WHERE), plan.domain
    if not isinstance(domain, L2Ball | None):
        raise another_plan(plan, ProximalPhase, _WHERE)
    if plan.penalty is not None:
        raise InvalidValue("proximal rounds add a penalty of their own: leave penalty out", pointer=("penalty",))
    check_blocks(plan, phase)
    return phase, domain


def check_request(proposal: Proposal) -> None:
    """Refuse clip thresholds that floating point cannot keep, and more gradients than a run takes.

    Raises:
        InvalidValue: As `check_at_least` and `check_evaluations` do.
    """
    for phase in proposal.plan.phases:
        assert isinstance(phase, ProximalPhase), "the algorithm's plans have no other phases"
        check_at_least(proposal.plan, "max_grad_norm", phase.max_grad_norm, "gradient_bound")
        check_evaluations(
            phase,
            "inner_iterations",
            "give fewer inner_iterations, which are the steps of a round",
        )


EXECUTION = Execution(
    phase_type=ProximalPhase,
    make=ProximalRounds,
    check=check_request,
    models=PREDICTORS,
    requests={
        "proximal_rounds": ExampleRequest(
            "Proximal rounds in a ball; a convex loss is weakly convex with any weak_convexity above 0",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "logistic_regression"},
                "iterations": 4,
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "zcdp", "rho": 2},
                "assumptions": {"weak_convexity": 0.5, "diameter": 8, "inner_iterations": 100},
            },
        )
    },
)
