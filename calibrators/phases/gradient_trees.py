"""Phases of trees of averaged gradients with noise at their nodes, and a Frank-Wolfe step at every leaf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from accounting.errors import InvalidValue
from accounting.events import ZcDp
from calibrators.phases.mirror_steps import NormOrder, read_noise_order
from calibrators.phases.structured import Charge, Nonnegative, Positive, Records
from calibrators.phases.trees import NumTrees, TreesOfMeans
from calibrators.provenance import GRADIENT, SMOOTHNESS


@dataclass(frozen=True, slots=True)
class GradientTreePhase(TreesOfMeans):
    """Tree Frank-Wolfe over an l_p ball. The trees are those of `TreePhase`, with noise on the mean at each node.

    Tree number tau = 1..T has depth tau. Each of its nodes, except left children, averages records that no other node
    reads, and adds noise of density proportional to exp(-|z|_r^2 / (2 ``scales[depth]``^2)). A record's gradient is
    clipped to l_q norm ``lipschitz`` at a root, and its change between two points x and x' to min(2 ``lipschitz``,
    ``smoothness`` |x - x'|_p) elsewhere. Step number k = 0, 1, ... goes 2/(k + 2) of the way to the point of the ball
    that minimises the inner product with the leaf's estimate.

    Attributes:
        event: One event for all nodes together, because no two nodes share records: `ZcDp`, count 1.
        norm_order: The order p of the norm, in (1, 2].
        noise_order: The order r of the noise's norm, in [2, q].
        num_trees: The number T of trees.
        records_per_tree: The number b of records that are averaged at the root of a tree, a power of two, at least 2^T.
        scales: The scales of the noise at each depth 0..T, in gradient units; 0 for changes that are always 0.
        lipschitz: The bound on a record's gradient in the l_q norm, in gradient units.
        smoothness: The bound on the gradient's change per unit of l_p distance.
    """

    kind = "gradient_trees"
    units: ClassVar = {"scales": GRADIENT, "lipschitz": GRADIENT, "smoothness": SMOOTHNESS}
    charge = Charge((ZcDp,), "a phase of gradient trees must have one zcdp event with count 1")
    norm_order: NormOrder
    noise_order: float
    num_trees: NumTrees
    records_per_tree: Records
    scales: tuple[Nonnegative, ...]
    lipschitz: Positive
    smoothness: Nonnegative

    def check(self) -> None:
        TreesOfMeans.check(self)
        object.__setattr__(self, "noise_order", read_noise_order(self.norm_order, self.noise_order))
        if len(self.scales) != self.num_trees + 1:
            raise InvalidValue("scales must have one number for each depth from 0 to num_trees", pointer=("scales",))

    @property
    def noise_scale(self) -> tuple[float, ...]:
        return self.scales
