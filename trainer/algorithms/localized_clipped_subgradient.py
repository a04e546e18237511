"""Localised noisy clipped subgradient steps: full batches of one block of records after the other, each near its start.

Source: Lowy & Razaviyayn 2023 (arXiv 2209.07403), Algorithms 3 and 4.
"""

from __future__ import annotations

from calibrators.algorithm import ExampleRequest
from calibrators.geometry import L2Ball
from calibrators.phases.localized_phases import LocalizedPhase
from calibrators.plan import Plan
from trainer.arrays import Array
from trainer.blocks import BlockSteps, check_blocks, check_evaluations, project_near
from trainer.execution import PREDICTORS, Execution, Proposal, check_at_least
from trainer.loop import Task
from trainer.penalties import gradient
from trainer.structured_steps import another_plan, only_phase

_WHERE = ", in an l2 ball or without a domain"


class LocalizedSubgradient(BlockSteps):
    """The steps of a plan of localised blocks, on slots as `BlockSteps` gives them.

    Guarantees:
        - one_record_moves_a_blocks_sums_by_at_most_the_bound: which is C_i, or 2 C_i if a record is replaced.
        - points_stay_near_their_blocks_start: within its radius, and in the domain.

    Raises:
        InvalidValue: If the plan does not have the one phase of this algorithm, takes more than a run can do, or has
            bounds that floating point cannot keep.
    """

    def __init__(self, task: Task) -> None:
        self._phase, self._domain = _checked(task.plan)
        super().__init__(task, self._phase.records, self._phase.inner_iterations)

    def _moved(self, block: int) -> Array:
        """Return Pi(w - eta (1/n sum_j min(1, C/|g_j|) g_j + sigma Z + lambda (w - w') + penalty's gradient))."""
        phase, point = self._phase, self._point
        direction = self._noisy_mean(block, point, phase.max_grad_norm[block], phase.noise_stddev_on_mean[block])
        direction = direction + phase.regularizer[block] * (point - self._centre)
        direction = direction + gradient(self._task.plan.penalty, point)
        radius = phase.radius[block] if phase.radius else float("inf")
        xp = self._task.records.xp
        return project_near(self._domain, self._centre, radius, xp, point - phase.step_size[block] * direction)


def _checked(plan: Plan) -> tuple[LocalizedPhase, L2Ball | None]:
    """Return the plan's only phase, and its domain."""
    phase, domain = only_phase(plan, LocalizedPhase, where=_WHERE), plan.domain
    if not isinstance(domain, L2Ball | None):
        raise another_plan(plan, LocalizedPhase, _WHERE)
    check_blocks(plan, phase)
    return phase, domain


def check_request(proposal: Proposal) -> None:
    """Refuse clip thresholds that floating point cannot keep, and more gradients than a run takes.

    Raises:
        InvalidValue: As `check_at_least` and `check_evaluations` do.
    """
    for phase in proposal.plan.phases:
        assert isinstance(phase, LocalizedPhase), "the algorithm's plans have no other phases"
        check_at_least(proposal.plan, "max_grad_norm", min(phase.max_grad_norm), "gradient_bound")
        check_evaluations(
            phase,
            "localization_power",
            "give a smaller localization_power (the least is 1), or use clipped_acsa or "
            "clipped_sgd_strongly_convex, which read every record once",
        )


EXECUTION = Execution(
    phase_type=LocalizedPhase,
    make=LocalizedSubgradient,
    check=check_request,
    models=PREDICTORS,
    requests={
        "localized_subgradients": ExampleRequest(
            "Localised clipped subgradients: full batches of one block of records after the other, in a ball",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "logistic_regression"},
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "zcdp", "rho": 2},
                "assumptions": {"diameter": 8},
                "hyperparameters": {"step_size": 4},
            },
        )
    },
)
