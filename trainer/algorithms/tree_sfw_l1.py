r"""Tree Frank-Wolfe over the l1 ball: averages of gradients along binary trees, report-noisy-max at every leaf.

One step is one leaf. Leaf l of a tree of depth tau first refreshes one node: the root where l = 0, else the right child
at depth tau less the number of trailing zero bits of l; the nodes below it are left children, which copy it. So one
estimate and one entry point per depth are all that is kept. Source: Asi, Feldman, Koren & Talwar 2021
(arXiv 2103.01516), and the talk of Bassily, Guzman & others, with constants of our own (`calibrators.bassily_guzman`).

Gumbel noise is float64's: its upper tail ends at 36 scales, and no claim is made about events rarer than that or about
the last bits of what is released. What rounding does to the sums is in `trainer.clipped_means`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue
from accounting.relations import NeighboringRelation
from calibrators.bassily_guzman.tree import movement
from calibrators.geometry import L1Ball
from calibrators.phases import TreePhase
from calibrators.plan import Plan
from trainer.arrays import Array, silent
from trainer.clipped_means import MAX_RECORDS, SMALLEST, ClippedMeans
from trainer.loop import State, Task
from trainer.samplers import Indices, occupied
from trainer.vertices import noisy_vertex, towards

#: Records at a root, up to which the margin covers rounding.
MAX_RECORDS_PER_TREE = MAX_RECORDS


class TreeFrankWolfe:
    """The steps of a plan of tree Frank-Wolfe, one leaf each.

    Slots are given to nodes by a permutation that is drawn before the first step from the declared size alone; a slot
    without a row contributes nothing, and rows beyond the declared size are never read.

    Guarantees:
        - no_record_is_read_twice: each slot belongs to one node of one tree, or to none.
        - a_node_moves_by_what_was_charged: between neighbours the estimate of a node at depth j differs by at most
          s c_j 2^j / b in the largest entry, for any losses, and not at all where the record is another node's.
        - iterates_stay_in_the_ball: each is a convex combination of the last one and of a vertex.

    Raises:
        InvalidValue: the plan has not the one phase and the l1 ball of this algorithm, or a bound that floating point
            cannot keep.
        Unsupported: the model's gradients are no outer products of one layer.
    """

    def __init__(self, task: Task) -> None:
        self._phase, self._radius = _checked(task.plan)
        self._means = ClippedMeans(task.records, task.model, "tree_sfw_l1")
        self._records = task.records
        self._noise = task.streams.gumbel_noise()
        slots = np.random.Generator(task.streams.sampling).permutation(task.plan.dataset_size)
        self._order: npt.NDArray[np.intp] = slots.astype(np.intp)
        self._taken = 0
        self._done = 0
        self._point: Array = task.records.xp.zeros(task.model.num_parameters, dtype=task.records.xp.float64)
        self._estimates: list[Array] = []
        self._entries: list[Array] = []

    @property
    def steps_done(self) -> int:
        return self._done

    def step(self) -> None:
        tree = (self._done + 2).bit_length() - 1
        leaf = self._done + 2 - (1 << tree)
        with silent():
            self._refresh(tree, 0 if leaf == 0 else tree - _trailing_zeros(leaf))
            self._move(self._phase.noise_scales[tree - 1])

    def released(self) -> Array:
        return self._point

    def state(self) -> State:
        return {
            "done": self._done,
            "taken": self._taken,
            "order": self._order,
            "point": self._point,
            "estimates": {str(depth): estimate for depth, estimate in enumerate(self._estimates)},
            "entries": {str(depth): entry for depth, entry in enumerate(self._entries)},
            "noise": self._noise.state(),
        }

    def restore(self, state: State) -> None:
        xp = self._records.xp
        self._done, self._taken = int(state["done"]), int(state["taken"])
        self._order = np.asarray(state["order"], dtype=np.intp)
        self._point = xp.asarray(state["point"])
        self._estimates, self._entries = (
            [xp.asarray(state[name][str(depth)]) for depth in range(len(state[name]))]
            for name in ("estimates", "entries")
        )
        self._noise.restore(state["noise"])

    def close(self) -> None:
        """Nothing is drawn ahead."""

    def _refresh(self, tree: int, depth: int) -> None:
        """Enter the node at this depth, and the left children below it."""
        if depth == 0:
            estimate = self._mean_gradient()
        else:
            estimate = self._estimates[depth - 1] + self._mean_change(self._entries[depth - 1], depth)
        below = tree + 1 - depth
        self._estimates = self._estimates[:depth] + [estimate] * below
        self._entries = self._entries[:depth] + [self._point] * below

    def _move(self, noise_scale: float) -> None:
        """x + 2/(k+2) (u - x) for the vertex u = +-D e_i of least noisy score."""
        vertex = noisy_vertex(self._estimates[-1], self._radius, self._noise, noise_scale)
        self._point = towards(self._point, vertex, 2.0 / (self._done + 2.0))
        self._done += 1

    def _mean_gradient(self) -> Array:
        """The mean gradient at the current point over a root's records, each clipped to L_0 in the largest entry."""
        size = self._phase.records_per_tree
        return self._means.of_gradients(self._next(size), size, self._point, self._phase.lipschitz)

    def _mean_change(self, entry: Array, depth: int) -> Array:
        """The mean change of the gradient since ``entry`` over a right child's records, each clipped.

        The distance is public, since the selections are; the one that was planned for stays a bound.
        """
        xp = self._records.xp
        distance = min(float(xp.sum(xp.abs(self._point - entry))), movement(2.0 * self._radius, depth))
        bound = min(2.0 * self._phase.lipschitz, self._phase.smoothness * distance)
        size = self._phase.records_per_tree >> depth
        return self._means.of_changes(self._next(size), size, self._point, entry, bound)

    def _next(self, size: int) -> Indices:
        """Positions of the rows in the next ``size`` slots."""
        rows = occupied(self._records.positions, self._order[self._taken : self._taken + size])
        self._taken += size
        return rows


def _trailing_zeros(number: int) -> int:
    return (number & -number).bit_length() - 1


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
    if phase.records_per_tree > MAX_RECORDS_PER_TREE:
        raise InvalidValue(
            f"sums of more than {MAX_RECORDS_PER_TREE} records are not known to be exact enough",
            pointer=("phases", 0, "records_per_tree"),
        )
    return phase, domain.radius
