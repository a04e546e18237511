r"""The trees of tree Frank-Wolfe: who reads which records, how far a node's gradient can be moved by one of them.

Tree $\tau = 1..T$ has depth $\tau$ and $2^\tau$ leaves; every leaf is one Frank-Wolfe step, $\eta_k = 2/(k+2)$ with k
counted through all trees. The root averages gradients over b fresh records, a left child copies its parent, a right
child at depth j adds the mean of gradient *changes*, between its parent's entry point and its own, over $b/2^j$ fresh
records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from calibrators.phases.vertex_trees import MAX_TREES


@dataclass(frozen=True, slots=True)
class Problem:
    """Losses over a polytope.

    Attributes:
        lipschitz: L_0, bound on a record's gradient in the dual norm.
        smoothness: L_1, bound on its change in the dual norm per unit of distance.
        diameter: M of the polytope, in the norm.
    """

    lipschitz: float
    smoothness: float
    diameter: float

    def contribution_bound(self, depth: int) -> float:
        r"""Dual norm of what one record brings to the mean of a node at this depth.

        $c_0 = L_0$, $c_j = \min(2 L_0, L_1 M \min(1, 2^{1-j}))$ from j = 1 on: the gradient changes between two points
        that are `movement` apart.

        >>> [Problem(2.0, 1.0, 2.0).contribution_bound(depth) for depth in (0, 1, 2, 3)]
        [2.0, 2.0, 1.0, 0.5]
        """
        if depth == 0:
            return self.lipschitz
        return min(2.0 * self.lipschitz, self.smoothness * movement(self.diameter, depth))


@dataclass(frozen=True, slots=True)
class Trees:
    """How many trees, and the records at each root.

    Attributes:
        num_trees: T.
        records_per_tree: b, a power of two, at least 2^T.
    """

    num_trees: int
    records_per_tree: int

    @property
    def steps(self) -> int:
        """Leaves of all trees.

        >>> Trees(4, 4096).steps
        30
        """
        return (1 << (self.num_trees + 1)) - 2

    @property
    def records(self) -> int:
        r"""Records that are read, each once: $b (T + T (T+1)/4)$.

        >>> Trees(4, 4096).records
        36864
        """
        return self.records_per_tree * (self.num_trees * (self.num_trees + 5)) // 4

    @property
    def gradient_evaluations(self) -> int:
        r"""Per-record gradients: one for a record of a root, two for any other; $b \sum_\tau (1 + \tau)$.

        >>> Trees(4, 4096).gradient_evaluations
        57344
        """
        return self.records_per_tree * (self.num_trees * (self.num_trees + 3)) // 2

    def zcdp_width(self, problem: Problem, tree: int) -> float:
        r"""Root of the sum of squared score ranges that one record's contribution has in this tree.

        A record at depth j moves the scores of $2^{\tau-j}$ selections by a range of at most $M c_j 2^j/b$ each, so
        $u_\tau = M \max_j c_j 2^j b^{-1} 2^{(\tau-j)/2}$. Replacing a record counts twice.
        """
        return max(self._range(problem, depth) * math.sqrt(1 << (tree - depth)) for depth in range(tree + 1))

    def pure_width(self, problem: Problem, tree: int) -> float:
        """Sum of the score ranges that one record's contribution has in this tree."""
        return max(self._range(problem, depth) * (1 << (tree - depth)) for depth in range(tree + 1))

    def _range(self, problem: Problem, depth: int) -> float:
        records = self.records_per_tree >> depth
        return problem.diameter * problem.contribution_bound(depth) / records


def movement(diameter: float, depth: int) -> float:
    r"""How far the iterate moves at most between the entry of a node and that of its right child at this depth.

    Between them lie the $2^{\tau-j}$ leaves of the left sibling; in tree $\tau$ every $\eta_k \le 2/2^\tau$, and a step
    moves by at most $\eta_k M$: together $2^{1-j} M$, and never more than M.

    >>> [movement(2.0, depth) for depth in (1, 2, 3)]
    [2.0, 1.0, 0.5]
    """
    return diameter * min(1.0, 2.0 ** (1 - depth))


def largest_records_per_tree(dataset_size: int, num_trees: int) -> int:
    r"""b = the largest power of two for which every record is read at most once; 0 where not even one fits.

    >>> largest_records_per_tree(50_000, 4), largest_records_per_tree(1, 1)
    (4096, 0)
    """
    share = 4 * dataset_size // (num_trees * (num_trees + 5))
    return 1 << (share.bit_length() - 1) if share else 0


def possible_trees(dataset_size: int, records_per_tree: int | None = None) -> list[Trees]:
    """The layouts that this many records allow: b at least 2^T, every record read at most once.

    >>> [trees.records_per_tree for trees in possible_trees(100)]
    [64, 16, 16]
    """
    layouts = (Trees(t, records_per_tree or largest_records_per_tree(dataset_size, t)) for t in range(1, MAX_TREES + 1))
    return [
        trees for trees in layouts if trees.records_per_tree >= 1 << trees.num_trees and trees.records <= dataset_size
    ]
