"""Full-batch Frank-Wolfe over the l1 ball: every step selects a vertex by report-noisy-max, from all records'
gradients.

Source: Talwar, Thakurta & Zhang 2015, and Guzman's talk of April 2022, with Gumbel noise and constants of our own
(`calibrators.bassily_guzman`). The effect of rounding on the sums is in `trainer.clipped_sums`.
"""

from __future__ import annotations

from accounting.errors import InvalidValue
from accounting.events import FullBatch
from calibrators.algorithm import ExampleRequest
from calibrators.geometry import L1Ball
from calibrators.phases.vertex_steps import VertexSteps
from calibrators.plan import Plan
from trainer.arrays import silent
from trainer.clipped_sums import ClippedSums, Term
from trainer.execution import LINEAR_MODELS, Execution, check_lipschitz
from trainer.loop import Task
from trainer.structured_steps import StructuredSteps, check_kept, domain_of, only_phase
from trainer.vertices import noisy_vertex, towards

_WHERE = " in an l1 ball"


class FrankWolfe(StructuredSteps):
    """The steps of a plan of full-batch Frank-Wolfe.

    The sum of all slots' clipped gradients is divided by the declared size, whatever the number of rows.

    Args:
        task: The task of such a plan.
        phase_type: The exact type of its phase. Subclasses have trainers of their own.

    Guarantees:
        - a_gradient_moves_by_what_was_charged: between neighbours by at most s L_0 / n in the largest entry, for any
          losses.
        - iterates_stay_in_the_ball: each is a convex combination of the last point and of a vertex.

    Raises:
        InvalidValue: If the plan does not have the one phase and the l1 ball of this algorithm, or has a bound that
            floating point cannot keep.
        Unsupported: If the model is not linear.
    """

    def __init__(self, task: Task, phase_type: type[VertexSteps] = VertexSteps) -> None:
        super().__init__(task, task.streams.selections())
        self._phase, self._radius = _checked(task.plan, phase_type)
        self._sums = ClippedSums(task.records, task.model, task.plan.algorithm)
        self._everything = slice(0, task.records.capacity)

    def step(self) -> None:
        phase = self._phase
        with silent():
            gradient = self._sums.mean(self._everything, phase.divisor, Term(self._point, phase.lipschitz))
            vertex = noisy_vertex(gradient, self._radius, self._noise, phase.gumbel_scale)
            self._point = towards(self._point, vertex, 2.0 / (self._done + 2.0))
        self._done += 1


def _checked(plan: Plan, phase_type: type[VertexSteps]) -> tuple[VertexSteps, float]:
    """Return the plan's only phase and the radius of its ball."""
    phase = only_phase(plan, phase_type, exactly=True, where=_WHERE)
    if phase.event.sampling != FullBatch():
        raise InvalidValue("every step reads all records", pointer=("phases", 0, "event", "sampling"))
    check_kept("lipschitz", phase.lipschitz)
    return phase, domain_of(plan, L1Ball, phase_type, _WHERE).radius


EXECUTION = Execution(
    phase_type=VertexSteps,
    make=FrankWolfe,
    check=check_lipschitz,
    models=LINEAR_MODELS,
    requests={
        "full_batch_frank_wolfe": ExampleRequest(
            "Frank-Wolfe on all records: sparse logistic regression in an l1 ball, pure differential privacy",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "logistic_regression"},
                "iterations": 20,
                "target": {"kind": "pure_dp", "epsilon": 4},
                "assumptions": {"radius": 5},
            },
        )
    },
)
