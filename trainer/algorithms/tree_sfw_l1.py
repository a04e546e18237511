r"""Tree Frank-Wolfe over the l1 ball: averages of gradients along binary trees, report-noisy-max at every leaf.

The nodes are those of `trainer.tree_walk`. Source: Asi, Feldman, Koren & Talwar 2021 (arXiv 2103.01516), and the talk
of Bassily, Guzman & others, with constants of our own (`calibrators.bassily_guzman`).

A leaf's estimate is the sum of the means on its path, formed in float64. A record is in one of them, at depth j, and
moves it by at most s c_j 2^j / b; between neighbours adding up a path of tau + 1 means rounds by at most
2 (tau + 1) 2^-53 (L_0 + the sum of the c_i), which the margin pays for: plans in which that is more than a twentieth of
the margin of any node are refused. Scores are selected by as they were computed (`trainer.vertices`).
"""

from __future__ import annotations

from accounting.errors import InvalidValue
from accounting.relations import NeighboringRelation
from calibrators.geometry import L1Ball
from calibrators.phases import TreePhase
from calibrators.plan import Plan
from trainer.arrays import Array
from trainer.clipped_sums import SMALLEST, ClippedSums, Term
from trainer.clipping import MARGINS
from trainer.loop import Task
from trainer.records import Indices
from trainer.tree_walk import TreeWalk, planned_bound
from trainer.vertices import noisy_vertex, towards


class TreeFrankWolfe(TreeWalk):
    """The steps of a plan of tree Frank-Wolfe: nodes as they are, and a vertex of least noisy score at every leaf.

    Raises:
        InvalidValue: the plan has not the one phase and the l1 ball of this algorithm, or a bound that floating point
            cannot keep.
        Unsupported: the model's gradients are no outer products of one layer.
    """

    def __init__(self, task: Task) -> None:
        self._phase, radius = _checked(task.plan)
        self._noise = task.streams.selections()
        super().__init__(task, self._phase, radius, ClippedSums(task.records, task.model, "tree_sfw_l1"), self._noise)

    def _mean(self, slots: Indices, depth: int, term: Term) -> Array:
        """Return the mean itself: selections are noisy, and nothing else is released."""
        return self._sums.mean(slots, self._trees.records_per_tree >> depth, term)

    def _distance(self, entry: Array) -> float:
        return float(self._xp.sum(self._xp.abs(self._point - entry)))

    def _moved(self, estimate: Array, tree: int, step_size: float) -> Array:
        vertex = noisy_vertex(estimate, self._radius, self._noise, self._phase.noise_scales[tree - 1])
        return towards(self._point, vertex, step_size)


def _checked(plan: Plan) -> tuple[TreePhase, float]:
    """The plan's only phase and the radius of its ball."""
    phase, domain = plan.phases[0], plan.domain
    if len(plan.phases) != 1 or not isinstance(phase, TreePhase) or not isinstance(domain, L1Ball):
        raise InvalidValue(
            "tree_sfw_l1 runs plans of one phase of vertex_trees in an l1 ball",
            code="invalid_plan",
            pointer=("phases",),
        )
    if plan.neighboring_relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
        raise InvalidValue("slots are given to nodes by position", pointer=("neighboring_relation",))
    if phase.lipschitz < SMALLEST:
        raise InvalidValue(
            f"lipschitz must be at least {SMALLEST:g} to be kept in floating point; rescale the losses",
            pointer=("phases", 0, "lipschitz"),
        )
    if not rounding_is_paid_for(phase, domain.radius):
        raise InvalidValue(
            "changes of gradients are so small against gradients that float64 has no digits for the part of one "
            "record: use fewer records in a tree, or fewer trees",
            pointer=("phases", 0, "records_per_tree"),
        )
    return phase, domain.radius


def rounding_is_paid_for(phase: TreePhase, radius: float) -> bool:
    """Return whether adding up a path rounds by less than a twentieth of the margin: see the module."""
    bounds = [planned_bound(phase, radius, depth) for depth in range(phase.num_trees + 1)]
    rounded = 2.0 * (phase.num_trees + 1) * 2.0**-53 * sum(bounds)
    allowed = 0.05 * MARGINS["float64"]
    moves = [bound / (phase.records_per_tree >> depth) for depth, bound in enumerate(bounds) if bound > 0.0]
    return rounded <= allowed * min(moves)
