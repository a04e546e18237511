r"""Tree Frank-Wolfe over the l1 ball: averages of gradients along binary trees, report-noisy-max at every leaf.

The nodes are those of `trainer.tree_walk`. Source: Asi, Feldman, Koren & Talwar 2021 (arXiv 2103.01516), and the talk
of Bassily, Guzman & others, with constants of our own (`calibrators.bassily_guzman`).

A leaf's estimate is the sum of the means on its path, formed in float64. A record is in one of them, at depth j, and
moves it by at most s c_j 2^j / b. Between neighbours, the rounding in adding up a path of tau + 1 means is at most 2
(tau + 1) 2^-53 (L_0 + the sum of the c_i), which the margin covers: plans in which that is more than a twentieth of the
margin of any node are refused. Selections use the scores as computed (`trainer.vertices`).
"""

from __future__ import annotations

from accounting.errors import InvalidValue
from calibrators.algorithm import ExampleRequest
from calibrators.geometry import L1Ball
from calibrators.phases.vertex_trees import TreePhase
from calibrators.plan import Plan
from trainer.arrays import Array
from trainer.clipped_sums import ClippedSums, Term
from trainer.clipping import MARGINS
from trainer.execution import LINEAR_MODELS, Execution, Proposal, check_lipschitz
from trainer.loop import Task
from trainer.records import Indices
from trainer.structured_steps import check_kept, check_positions, domain_of, only_phase
from trainer.tree_walk import TreeWalk
from trainer.vertices import noisy_vertex, towards


class TreeFrankWolfe(TreeWalk):
    """The steps of a plan of tree Frank-Wolfe: nodes without noise, and a vertex of least noisy score at every leaf.

    Raises:
        InvalidValue: If the plan does not have the one phase and the l1 ball of this algorithm, or has a bound that
            floating point cannot keep.
        Unsupported: If the model's gradients are not outer products of one layer.
    """

    def __init__(self, task: Task) -> None:
        self._phase, radius = _checked(task.plan)
        sums = ClippedSums(task.records, task.model, task.plan.algorithm)
        super().__init__(task, self._phase, radius, sums, task.streams.selections())

    def _mean(self, slots: Indices, depth: int, term: Term) -> Array:
        """Return the mean without noise: selections are noisy, and nothing else is released."""
        return self._sums.mean(slots, self._trees.records_per_tree >> depth, term)

    def _distance(self, entry: Array) -> float:
        return float(self._xp.sum(self._xp.abs(self._point - entry)))

    def _moved(self, estimate: Array, tree: int, step_size: float) -> Array:
        vertex = noisy_vertex(estimate, self._radius, self._noise, self._phase.noise_scales[tree - 1])
        return towards(self._point, vertex, step_size)


def _checked(plan: Plan) -> tuple[TreePhase, float]:
    """Return the plan's only phase and the radius of its ball."""
    where = " in an l1 ball"
    phase = only_phase(plan, TreePhase, where=where)
    domain = domain_of(plan, L1Ball, TreePhase, where)
    check_positions(plan, "slots are given to nodes by position")
    check_kept("lipschitz", phase.lipschitz)
    if not rounding_is_paid_for(phase, domain.radius):
        raise InvalidValue(
            "changes of gradients are so much smaller than gradients that rounding in float64 exceeds the margin "
            "that is kept for rounding: use fewer records in a tree, or fewer trees",
            pointer=("phases", 0, "records_per_tree"),
        )
    return phase, domain.radius


def rounding_is_paid_for(phase: TreePhase, radius: float) -> bool:
    """Return whether the rounding in adding up a path is below a twentieth of the margin: see the module."""
    bounds = [phase.planned_bound(radius, depth) for depth in range(phase.num_trees + 1)]
    rounded = 2.0 * (phase.num_trees + 1) * 2.0**-53 * sum(bounds)
    allowed = 0.05 * MARGINS["float64"]
    moves = [bound / (phase.records_per_tree >> depth) for depth, bound in enumerate(bounds) if bound > 0.0]
    return rounded <= allowed * min(moves)


def check_request(proposal: Proposal) -> None:
    """Refuse a Lipschitz constant, or changes of gradients, that floating point cannot represent well enough.

    Raises:
        InvalidValue: As `check_lipschitz` does; or if rounding along a path exceeds what the noise margin covers.
    """
    check_lipschitz(proposal)
    radius = proposal.plan.domain.radius if isinstance(proposal.plan.domain, L1Ball) else 0.0
    for phase in proposal.plan.phases:
        assert isinstance(phase, TreePhase), "the algorithm's plans have no other phases"
        if not rounding_is_paid_for(phase, radius):
            raise InvalidValue(
                "changes of gradients are so much smaller than gradients that rounding in float64 exceeds the "
                "margin that is kept for rounding: give a batch_size (records of a tree) below "
                f"{phase.records_per_tree}",
                pointer=("batch_size",),
            )


EXECUTION = Execution(
    phase_type=TreePhase,
    make=TreeFrankWolfe,
    check=check_request,
    models=LINEAR_MODELS,
    requests={
        "frank_wolfe": ExampleRequest(
            "Tree Frank-Wolfe: sparse logistic regression in an l1 ball, with pure differential privacy",
            {
                "dataset_id": "ds_breast_cancer",
                "model": {"kind": "logistic_regression"},
                "iterations": 3,
                "target": {"kind": "pure_dp", "epsilon": 4},
                "assumptions": {"radius": 2},
            },
        )
    },
)
