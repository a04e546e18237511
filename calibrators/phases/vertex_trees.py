"""Phases of trees of averaged gradients. Each leaf selects a vertex."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from accounting.errors import InvalidValue
from accounting.events import PureDp, ZcDp
from calibrators.phases.structured import Charge, Nonnegative, Positive, Records
from calibrators.phases.trees import NumTrees, TreesOfMeans
from calibrators.provenance import GRADIENT, LOSS, SMOOTHNESS


@dataclass(frozen=True, slots=True)
class TreePhase(TreesOfMeans):
    """Tree Frank-Wolfe. Gradients are averaged along the paths of binary trees, and a vertex is selected at each leaf.

    Tree number tau = 1..T has depth tau; each of its nodes, except left children, averages records that no other node
    reads. A record's gradient is clipped to l_inf norm ``lipschitz`` at a root, and its change between two points x and
    x' to min(2 ``lipschitz``, ``smoothness`` |x - x'|_1) elsewhere. At a leaf a vertex of the l1 ball is selected by
    report-noisy-max with Gumbel noise of scale ``noise_scales[tau - 1]``.

    Attributes:
        event: One event for all selections together, because they share records: `ZcDp` or `PureDp`, count 1.
        num_trees: The number T of trees.
        records_per_tree: The number b of records that are averaged at the root of a tree, a power of two, at least 2^T.
        noise_scales: The scales of the Gumbel noise in each tree, in loss units.
        lipschitz: The bound on a record's gradient in the l_inf norm, in gradient units.
        smoothness: The bound on the gradient's change per unit of l1 distance.
    """

    kind = "vertex_trees"
    units: ClassVar = {
        "noise_scales": LOSS,
        "lipschitz": GRADIENT,
        "smoothness": SMOOTHNESS,
    }
    charge = Charge((ZcDp, PureDp), "a phase of selection trees must have one zcdp or pure_dp event with count 1")
    num_trees: NumTrees
    records_per_tree: Records
    noise_scales: tuple[Positive, ...]
    lipschitz: Positive
    smoothness: Nonnegative

    def check(self) -> None:
        TreesOfMeans.check(self)
        if len(self.noise_scales) != self.num_trees:
            raise InvalidValue("noise_scales must have one number for each tree", pointer=("noise_scales",))

    @property
    def noise_scale(self) -> tuple[float, ...]:
        return self.noise_scales
