"""Phases that release medians of the means of groups. Each mean comes from shuffled single-bit messages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from calibrators.lowy_razaviyayn.shuffled_sums import reach_of_coordinates
from calibrators.phases.median_of_means import Dimension, NumGroups
from calibrators.phases.shuffled_counts import (
    Change,
    CoordinateDelta,
    CoordinateEpsilon,
    Levels,
    NoiseBits,
    ShuffledBits,
)
from calibrators.phases.structured import MaxGradNorm, Records
from calibrators.provenance import GRADIENT


@dataclass(frozen=True, slots=True)
class ShuffledMedians(ShuffledBits):
    """ShuffleMeanOracle2: users send clamped coordinates as shuffled bits, and the medians of the groups' means are
    released.

    A coordinate in [-tau, tau] becomes an integer from 0 to ``levels`` by unbiased random rounding. The integer is sent
    as this many ones, filled up with zeros to ``levels`` bits, together with ``noise_bits`` fair coins. Only the number
    of ones among the bits of each group and coordinate leaves the shuffler. A record is in at most one group, so it
    takes part in one count of each coordinate.

    Attributes:
        event: One event for the whole phase: `ApproximateDp`, count 1.
        groups: The number m of groups.
        users: The number b of users of each group; all of them send, whether they have a record or not.
        dimension: The dimension d.
        truncation_radius: The truncation radius tau, in gradient units.
        change: The largest change of a record in each coordinate, in units of tau: 2 if the record is replaced, 1 if
            one of the two is null.
        levels: The number g of levels.
        noise_bits: The noise bits of each user and coordinate.
        flip_probability: The probability p that a noise bit is one, 1/2.
        coordinate_epsilon: The cost epsilon_j at ``coordinate_delta`` of counts that differ by g.
        coordinate_delta: The delta delta_j of a coordinate.
    """

    kind = "shuffled_medians"
    units: ClassVar = {"truncation_radius": GRADIENT}
    groups: NumGroups
    users: Records
    dimension: Dimension
    truncation_radius: MaxGradNorm
    change: Change
    levels: Levels
    noise_bits: NoiseBits
    flip_probability: float
    coordinate_epsilon: CoordinateEpsilon
    coordinate_delta: CoordinateDelta

    @property
    def reach(self) -> float:
        """The number K: the largest l2 distance between the counts of neighbours, divided by g."""
        return reach_of_coordinates(self.change, self.dimension, self.levels)

    @property
    def message_bits(self) -> int:
        """The number of bits that the users of all groups send for all coordinates."""
        return self.groups * self.users * self.dimension * (self.levels + self.noise_bits)

    @property
    def batch_size(self) -> int:
        return self.groups * self.users

    @property
    def contribution_bound(self) -> float:
        """The bound sqrt(d) tau on the l2 norm of a clamped record."""
        return math.sqrt(self.dimension) * self.truncation_radius

    @property
    def noise_stddev_on_mean(self) -> float:
        """The standard deviation that the coins add to each coordinate of a group's mean."""
        return self.truncation_radius * math.sqrt(self.noise_bits / self.users) / self.levels
