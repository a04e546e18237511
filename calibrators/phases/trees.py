"""Shared code of the phases with trees: the layout of the trees, and the largest change of a record's contribution to a
node.
"""

from __future__ import annotations

from typing import Annotated

from accounting.described import Whole
from accounting.errors import InvalidValue
from calibrators.phases.structured import StructuredPhase

#: The most trees in a plan of tree Frank-Wolfe. This many trees have 2^21 - 2 steps.
MAX_TREES = 20
NumTrees = Annotated[int, Whole(1, MAX_TREES)]


def movement(diameter: float, depth: int) -> float:
    r"""Return the largest move of the iterate between the entry of a node and the entry of its right child at this
    depth.

    Let j be this depth and $\tau$ the number of the tree. Between the two entries lie the $2^{\tau-j}$ leaves of the
    left sibling. In tree $\tau$ every $\eta_k \le 2/2^\tau$, and a step moves by at most $\eta_k M$. Together these
    steps move by at most $2^{1-j} M$, and never by more than M.

    >>> [movement(2.0, depth) for depth in (1, 2, 3)]
    [2.0, 1.0, 0.5]
    """
    return diameter * min(1.0, 2.0 ** (1 - depth))


def node_bound(lipschitz: float, smoothness: float, diameter: float, depth: int) -> float:
    r"""Return the largest dual norm of one record's contribution to the mean of a node at this depth.

    It is $c_0 = L_0$ at the root, and $c_j = \min(2 L_0, L_1 M \min(1, 2^{1-j}))$ at depth j >= 1, where the node
    averages changes of the gradient between two points at most `movement` apart.

    >>> [node_bound(2.0, 1.0, 2.0, depth) for depth in (0, 1, 2, 3)]
    [2.0, 2.0, 1.0, 0.5]
    """
    if depth == 0:
        return lipschitz
    return min(2.0 * lipschitz, smoothness * movement(diameter, depth))


class TreesOfMeans(StructuredPhase):
    """Trees whose nodes average gradients or changes of gradients. Each node reads its own records, and every leaf is a
    step.

    Attributes:
        num_trees: The number T of trees.
        records_per_tree: The number b of records that are averaged at the root of a tree, a power of two, at least 2^T.
        lipschitz: The bound on a record's gradient in the dual norm.
        smoothness: The bound on the gradient's change per unit of distance.
    """

    __slots__ = ()
    num_trees: int
    records_per_tree: int
    lipschitz: float
    smoothness: float

    def check(self) -> None:
        if self.records_per_tree.bit_count() != 1 or self.records_per_tree < 1 << self.num_trees:
            raise InvalidValue(
                f"records_per_tree must be a power of two and at least 2^{self.num_trees}, got {self.records_per_tree}",
                pointer=("records_per_tree",),
            )

    @property
    def steps(self) -> int:
        """The number of leaves of all trees."""
        return (1 << (self.num_trees + 1)) - 2

    @property
    def batch_size(self) -> int:
        return self.records_per_tree

    @property
    def contribution_bound(self) -> float:
        return self.lipschitz

    def planned_bound(self, radius: float, depth: int) -> float:
        """Return the bound on a record's contribution to the mean of a node at this depth, in gradient units.

        Args:
            radius: The radius of the ball.
            depth: The depth of the node. A root (depth 0) averages gradients; other nodes average changes since the
                point at which their parent was entered.
        """
        return node_bound(self.lipschitz, self.smoothness, 2.0 * radius, depth)

    def smallest_change(self, radius: float) -> float | None:
        changes = [self.planned_bound(radius, depth) for depth in range(1, self.num_trees + 1)]
        # A loss with the same gradient everywhere has no changes, so there is nothing to round.
        return min((change / self.lipschitz for change in changes if change > 0.0), default=None)
