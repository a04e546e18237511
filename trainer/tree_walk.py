"""This module visits the leaves of binary trees of averaged gradients, one leaf a step, over secret slots.

Leaf l of a tree of depth tau first refreshes one node: the root if l = 0, else the right child at depth tau minus the
number of trailing zero bits of l. The nodes below that node are left children, which copy its estimate. So only one
estimate and one entry point per depth are kept.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from calibrators.phases.trees import TreesOfMeans
from trainer.arrays import Array, silent
from trainer.clipped_sums import ClippedSums, Term
from trainer.loop import State, Task
from trainer.records import Indices
from trainer.slots import SecretSlots
from trainer.structured_steps import StructuredSteps


class TreeWalk(StructuredSteps):
    """The steps of a plan of trees, from the centre of a ball.

    Args:
        task: The task of such a plan.
        phase: The plan's only phase.
        radius: The radius of the ball.
        sums: The sums of gradients that are clipped in the ball's dual norm.
        noise: The source of the algorithm's noise.

    Guarantees:
        - no_record_is_read_twice: each slot belongs to one node of one tree, or to no node.
        - a_node_moves_by_what_was_charged: between neighbours the mean of a node at depth j differs by at most
          s c_j 2^j / b in the dual norm, for any losses, and not at all if the record belongs to another node.
        - iterates_stay_in_the_ball: each iterate is a convex combination of the last one and of a point of the ball.
    """

    kept = (*StructuredSteps.kept, "_slots")

    def __init__(
        self,
        task: Task,
        phase: TreesOfMeans,
        radius: float,
        sums: ClippedSums,
        noise: Any,
    ) -> None:
        super().__init__(task, noise)
        self._trees, self._radius, self._sums = phase, radius, sums
        self._slots = SecretSlots(task)
        self._estimates: list[Array] = []
        self._entries: list[Array] = []

    def step(self) -> None:
        tree = (self._done + 2).bit_length() - 1
        leaf = self._done + 2 - (1 << tree)
        with silent():
            self._refresh(tree, 0 if leaf == 0 else tree + 1 - (leaf & -leaf).bit_length())
            self._point = self._moved(self._estimates[-1], tree, 2.0 / (self._done + 2.0))
        self._done += 1

    @abstractmethod
    def _mean(self, slots: Indices, depth: int, term: Term) -> Array:
        """Return the node's mean as it is kept: shape (d,), float64. Some algorithms add the noise later, not here."""

    @abstractmethod
    def _distance(self, entry: Array) -> float:
        """Return the distance of the point from the entry point, in the ball's norm. The distance is public."""

    @abstractmethod
    def _moved(self, estimate: Array, tree: int, step_size: float) -> Array:
        """Return the next point, which is a given share of the way to a point of the ball that the leaf's estimate in
        tree number ``tree`` selects.
        """

    def _refresh(self, tree: int, depth: int) -> None:
        """Enter the node at this depth, and the left children below it."""
        slots = self._slots.take(self._trees.records_per_tree >> depth)
        if depth == 0:
            estimate = self._mean(slots, depth, Term(self._point, self._trees.lipschitz))
        else:
            entry = self._entries[depth - 1]
            change = self._mean(slots, depth, Term(self._point, self._bound(entry, depth), entry))
            estimate = self._estimates[depth - 1] + change
        below = tree + 1 - depth
        self._estimates = self._estimates[:depth] + [estimate] * below
        self._entries = self._entries[:depth] + [self._point] * below

    def _bound(self, entry: Array, depth: int) -> float:
        """Return the bound on a change since the entry point, from public points. It never exceeds the planned
        bound."""
        return min(self._trees.planned_bound(self._radius, depth), self._trees.smoothness * self._distance(entry))

    def state(self) -> State:
        return super().state() | {
            "estimates": {str(depth): estimate for depth, estimate in enumerate(self._estimates)},
            "entries": {str(depth): entry for depth, entry in enumerate(self._entries)},
        }

    def restore(self, state: State) -> None:
        super().restore(state)
        self._estimates, self._entries = (
            [self._xp.asarray(state[name][str(depth)]) for depth in range(len(state[name]))]
            for name in ("estimates", "entries")
        )
