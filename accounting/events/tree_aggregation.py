"""Prefix sums of a stream by binary trees, with Gaussian noise on every node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from accounting.described import Whole
from accounting.events.mechanism import Mechanism, NoiseMultiplier, mechanism
from accounting.numbers import MAX_COUNT
from accounting.relations import NeighboringRelation


@mechanism
@dataclass(frozen=True, slots=True)
class TreeAggregation(Mechanism):
    """Prefix sums by binary trees with Gaussian noise on every node, as a whole; a record is in a leaf of each tree.

    Attributes:
        num_leaves: The leaves of each tree, or of the largest tree if they differ.
        restarts: There are 1 + restarts trees. A record may take part once in each.

    >>> TreeAggregation(1.0, 1000, 0).nodes, TreeAggregation(1.0, 1024, 4).nodes
    (10, 55)
    """

    kind: ClassVar[str] = "tree_aggregation"
    relations = (NeighboringRelation.REPLACE_SPECIAL, NeighboringRelation.REPLACE_ONE)
    why_refused = "leaves are taken in turn, so that a record that comes or goes moves the records after it"
    filters = ("approximate_dp", "approximate_gaussian_dp", "zcdp", "gaussian_dp", "renyi_dp")
    norm = "l2"
    noise_multiplier_is = (
        "standard deviation of the noise on every node's sum of contributions, over the contribution bound, in l2"
    )
    noise_multiplier: NoiseMultiplier
    num_leaves: Annotated[int, Whole(1, MAX_COUNT, "Steps that one tree sums up.")]
    restarts: Annotated[
        int, Whole(0, MAX_COUNT - 1, "How often a new tree was begun, in which a record may take part again.")
    ]

    @property
    def nodes(self) -> int:
        """The largest number of released nodes above one record, in all trees."""
        return (1 + self.restarts) * self.num_leaves.bit_length()
