"""Phases that compute sums of bounded vectors from shuffled single-bit messages."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar

from accounting.described import Real, Whole
from accounting.errors import InvalidValue
from accounting.events import ApproximateDp
from accounting.numbers import MAX_DATASET_SIZE
from calibrators.lowy_razaviyayn.shuffled_sums import (
    LARGEST_EPSILON,
    LEAST_LEVELS,
    MAX_NOISE_BITS,
    ShuffledSum,
    composed_epsilon,
    reach_in_l2,
)
from calibrators.phases.median_of_means import Dimension
from calibrators.phases.structured import Charge, MaxGradNorm, Records, StructuredPhase
from calibrators.provenance import GRADIENT

#: The stated numbers may miss the charge by this relative amount because of rounding. The trainer's margin covers this.
_ROUNDING = 1e-12
Change = Annotated[float, Real(0.0, 2.0, open_lower=True)]
Levels = Annotated[int, Whole(LEAST_LEVELS, MAX_DATASET_SIZE)]
NoiseBits = Annotated[int, Whole(1, MAX_NOISE_BITS)]
CoordinateEpsilon = Annotated[float, Real(0.0, LARGEST_EPSILON, open_lower=True)]
CoordinateDelta = Annotated[float, Real(0.0, 0.5, open_lower=True)]


class ShuffledBits(StructuredPhase):
    """Sums of vectors whose coordinates users send as shuffled bits. The charged event covers the cost of all sums.

    Attributes:
        change: The largest change of one record's part in the sums, divided by the bound on coordinates.
        users: The number of users of one sum; all of them send, whether they have a record or not.
        dimension: The dimension d.
        levels: The number g of levels.
        noise_bits: The number b of noise bits, fair coins of each user and coordinate.
        flip_probability: The probability that a fair coin shows one, 1/2.
        coordinate_epsilon, coordinate_delta: The cost of one coordinate.
    """

    __slots__ = ()
    change: float
    charge = Charge(
        (ApproximateDp,), "a phase of shuffled counts must have one approximate_dp event with count 1", full_batch=True
    )
    users: int
    dimension: int
    levels: int
    noise_bits: int
    flip_probability: float
    coordinate_epsilon: float
    coordinate_delta: float

    def check(self) -> None:
        """Refuse coins that are not fair, and stated costs below the actual cost of the bits.

        Raises:
            InvalidValue: If coins are not fair, if the coordinates together cost more than is charged, or if a
                coordinate costs more than is stated because there are too few noise bits.
        """
        if self.flip_probability != 0.5:
            raise InvalidValue(
                f"flip_probability must be 0.5, because noise bits are fair coins; got {self.flip_probability!r}",
                pointer=("flip_probability",),
            )
        needed = self.counts.epsilon(self.coordinate_delta)
        if self.coordinate_epsilon < needed * (1.0 - _ROUNDING):
            raise InvalidValue(
                f"coordinate_epsilon must be at least {needed!r} with these noise_bits, got "
                f"{self.coordinate_epsilon!r}",
                pointer=("coordinate_epsilon",),
            )
        left = self.charged.delta - self.dimension * self.coordinate_delta
        if left <= 0.0:
            raise InvalidValue(
                "coordinate_delta times dimension must be below the delta of the charged event",
                pointer=("coordinate_delta",),
            )
        cost = composed_epsilon(self.coordinate_epsilon, left, self.reach)
        if self.charged.epsilon < cost * (1.0 - _ROUNDING):
            raise InvalidValue(
                f"all coordinates together cost epsilon {cost!r}, but only epsilon {self.charged.epsilon!r} is charged",
                pointer=("event", "mechanism", "epsilon"),
            )

    @property
    def charged(self) -> ApproximateDp:
        """The charged event, which covers everything that is released."""
        assert isinstance(self.event.mechanism, ApproximateDp), "checked"
        return self.event.mechanism

    @property
    def counts(self) -> ShuffledSum:
        """The messages of one coordinate in one sum."""
        return ShuffledSum(self.users, self.levels, self.noise_bits)

    @property
    @abstractmethod
    def reach(self) -> float:
        """The number K: the largest l2 distance between the counts of neighbours, divided by g."""

    @property
    @abstractmethod
    def noise_stddev_on_mean(self) -> float:
        """The standard deviation that the coins add to each coordinate of a mean."""

    @property
    @abstractmethod
    def message_bits(self) -> int:
        """The number of bits that all users send for all coordinates."""

    @property
    def steps(self) -> int:
        return 1

    @property
    def noise_scale(self) -> tuple[float, ...]:
        return (self.noise_stddev_on_mean,)


@dataclass(frozen=True, slots=True)
class ShuffledCounts(ShuffledBits):
    """Each of ``users`` clips a vector to l2 norm C, and sends each coordinate as shuffled bits.

    A coordinate in [-C, C] becomes an integer from 0 to ``levels`` by unbiased random rounding. The integer is sent as
    this many ones, filled up with zeros to ``levels`` bits, together with ``noise_bits`` fair coins. Only the number of
    ones among each coordinate's bits leaves the shuffler.

    Attributes:
        event: One event for the whole phase: `ApproximateDp`, count 1.
        users: The number s of users; all of them send, whether they have a record or not.
        dimension: The dimension d.
        max_grad_norm: The clip threshold C, in gradient units.
        change: The largest l2 distance between a changed record's two vectors, divided by C: 2 if the record is
            replaced, 1 if one of the two is null.
        levels: The number g of levels.
        noise_bits: The number b of noise bits of each user and coordinate.
        flip_probability: The probability p that a noise bit is one, 1/2.
        coordinate_epsilon: The cost epsilon_hat at ``coordinate_delta`` of counts that differ by g.
        coordinate_delta: The delta delta_hat of a coordinate.
    """

    kind = "shuffled_counts"
    units: ClassVar = {"max_grad_norm": GRADIENT}
    users: Records
    dimension: Dimension
    max_grad_norm: MaxGradNorm
    change: Change
    levels: Levels
    noise_bits: NoiseBits
    flip_probability: float
    coordinate_epsilon: CoordinateEpsilon
    coordinate_delta: CoordinateDelta

    @property
    def reach(self) -> float:
        """The number K: the largest l2 distance between the counts of neighbours, divided by g."""
        return reach_in_l2(0.5 * self.change, self.dimension, self.levels)

    @property
    def message_bits(self) -> int:
        """The number of bits that all users send for all coordinates."""
        return self.users * self.dimension * (self.levels + self.noise_bits)

    @property
    def batch_size(self) -> int:
        return self.users

    @property
    def contribution_bound(self) -> float:
        return self.max_grad_norm

    @property
    def noise_stddev_on_mean(self) -> float:
        """The standard deviation that the coins add to each coordinate of the mean."""
        return self.max_grad_norm * math.sqrt(self.noise_bits / self.users) / self.levels
