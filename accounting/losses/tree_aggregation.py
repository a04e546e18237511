"""Prefix sums of a stream by binary trees, with Gaussian noise on every node, are exactly a Gaussian mechanism.

A tree has a leaf for each step of the stream; a node is released once all leaves under it have come, and a prefix sum
adds up at most one node per level. Leaf i lies under one node on level k, which is released when
(floor(i / 2^k) + 1) 2^k <= num_leaves. The first leaf lies under the largest number of released nodes, those with 2^k
<= num_leaves:

    h = floor(log2(num_leaves)) + 1

(not ceil(log2(num_leaves)) + 1, which counts a root over an incomplete last part that is never released; if the stream
is padded, give the padded number). The nodes over one leaf all move by the same vector and have independent noise:
their release is a Gaussian mechanism with mu^2 = h (distance / s)^2, attained by the first leaf because the prefix sums
after 1, 2, 4, ... steps are these nodes. A record is under at most one leaf of each tree, so trees add up; nodes
may be chosen adaptively (Kairouz, McMahan, Song, Thakkar, Thakurta & Xu 2021, Appendix D; Dong, Roth & Su 2022).

add_or_remove_one is refused, because a record that comes or goes moves the later records to other leaves.
"""

from __future__ import annotations

import math

from accounting.events.tree_aggregation import TreeAggregation
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.rules import ChargedStep, MechanismRules, rules_for
from accounting.units import Between, exact, exactly


@rules_for(TreeAggregation)
class TreeAggregationRules(MechanismRules[TreeAggregation]):
    """The rules of tree aggregation.

    Guarantees: exact_gaussian: mu^2 = nodes (sensitivity / s)^2, attained by a record in the first leaves.
    """

    linear_in_order = True

    def loss(self, mechanism: TreeAggregation, sensitivity: float) -> GaussianLoss:
        return GaussianLoss(math.sqrt(mechanism.nodes) * (sensitivity / mechanism.noise_multiplier))

    def zcdp_rho(self, mechanism: TreeAggregation, step: ChargedStep) -> Between:
        return exactly(self.mu_squared(mechanism, step).most / 2)

    def mu_squared(self, mechanism: TreeAggregation, step: ChargedStep) -> Between:
        return exactly(mechanism.nodes * (step.sensitivity / exact(mechanism.noise_multiplier)) ** 2)
