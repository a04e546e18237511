"""Sums of bounded vectors from shuffled single-bit messages."""

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

#: The share by which the numbers may fall short of the charge by rounding, which the trainer's margin covers.
_ROUNDING = 1e-12
Change = Annotated[float, Real(0.0, 2.0, open_lower=True)]
Levels = Annotated[int, Whole(LEAST_LEVELS, MAX_DATASET_SIZE)]
NoiseBits = Annotated[int, Whole(1, MAX_NOISE_BITS)]
CoordinateEpsilon = Annotated[float, Real(0.0, LARGEST_EPSILON, open_lower=True)]
CoordinateDelta = Annotated[float, Real(0.0, 0.5, open_lower=True)]


class ShuffledBits(StructuredPhase):
    """Sums of vectors whose coordinates users send as shuffled bits. The charge covers the cost of the sums.

    Attributes:
        change: The change of one record's part in the sums, over the bound on coordinates.
        users: The number of users of one sum; all of them send, whether they have a record or not.
        dimension: The dimension d.
        levels: The number g of levels.
        noise_bits: The number b of noise bits, fair coins of each user and coordinate.
        flip_probability: The flip probability of a coin: a half.
        coordinate_epsilon, coordinate_delta: The cost of one coordinate.
    """

    __slots__ = ()
    change: float
    charge = Charge((ApproximateDp,), "shuffled counts are one approximate_dp event", full_batch=True)
    users: int
    dimension: int
    levels: int
    noise_bits: int
    flip_probability: float
    coordinate_epsilon: float
    coordinate_delta: float

    def check(self) -> None:
        """Refuse coins that are not fair, and stated costs that are below the actual cost of the bits.

        Raises:
            InvalidValue: If coins are not fair, if the coordinates cost more than is charged, or if so few noise bits
                make a coordinate cost more than is stated.
        """
        if self.flip_probability != 0.5:
            raise InvalidValue(
                f"noise bits are fair coins: flip_probability must be 0.5, got {self.flip_probability!r}",
                pointer=("flip_probability",),
            )
        needed = self.counts.epsilon(self.coordinate_delta)
        if self.coordinate_epsilon < needed * (1.0 - _ROUNDING):
            raise InvalidValue(
                f"with so few noise bits a coordinate costs {needed!r}, got {self.coordinate_epsilon!r}",
                pointer=("coordinate_epsilon",),
            )
        left = self.charged.delta - self.dimension * self.coordinate_delta
        if left <= 0.0:
            raise InvalidValue("the deltas of the coordinates use up the charged delta", pointer=("coordinate_delta",))
        cost = composed_epsilon(self.coordinate_epsilon, left, self.reach)
        if self.charged.epsilon < cost * (1.0 - _ROUNDING):
            raise InvalidValue(
                f"all coordinates together cost epsilon {cost!r}, and {self.charged.epsilon!r} is charged",
                pointer=("event", "mechanism", "epsilon"),
            )

    @property
    def charged(self) -> ApproximateDp:
        """The cost of all that is released."""
        assert isinstance(self.event.mechanism, ApproximateDp), "checked"
        return self.event.mechanism

    @property
    def counts(self) -> ShuffledSum:
        """The messages of one coordinate in one sum."""
        return ShuffledSum(self.users, self.levels, self.noise_bits)

    @property
    @abstractmethod
    def reach(self) -> float:
        """K: how far apart the counts of neighbours are in the l2 norm, over g."""

    @property
    @abstractmethod
    def noise_stddev_on_mean(self) -> float:
        """Standard deviation per coordinate of the coins in a mean."""

    @property
    @abstractmethod
    def message_bits(self) -> int:
        """Bits of all users and coordinates."""

    @property
    def steps(self) -> int:
        return 1

    @property
    def noise_scale(self) -> tuple[float, ...]:
        return (self.noise_stddev_on_mean,)


@dataclass(frozen=True, slots=True)
class ShuffledCounts(ShuffledBits):
    """Each of ``users`` clips a vector to l2 norm C, and sends each coordinate as shuffled bits.

    A coordinate in [-C, C] becomes an integer from 0 to ``levels`` by unbiased random rounding. It is sent as this many
    ones and zeros up to ``levels`` bits, beside ``noise_bits`` fair coins. Only the number of ones among each
    coordinate's bits leaves the shuffler.

    Attributes:
        event: One aggregate: `ApproximateDp`, count 1.
        users: The number s of users; all of them send, whether they have a record or not.
        dimension: The dimension d.
        max_grad_norm: The clip threshold C, in gradient units.
        change: The largest l2 distance of a changed record's two vectors, over C: 2 if it is replaced, 1 if one of the
            two is null.
        levels: The number g of levels.
        noise_bits: The number b of noise bits of each user and coordinate.
        flip_probability: The probability p that a noise bit is one: a half.
        coordinate_epsilon: The cost epsilon_hat of counts that are g apart, at coordinate_delta.
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
        """K: how far apart the counts of neighbours are in the l2 norm, over g."""
        return reach_in_l2(0.5 * self.change, self.dimension, self.levels)

    @property
    def message_bits(self) -> int:
        """Bits of all users and coordinates."""
        return self.users * self.dimension * (self.levels + self.noise_bits)

    @property
    def batch_size(self) -> int:
        return self.users

    @property
    def contribution_bound(self) -> float:
        return self.max_grad_norm

    @property
    def noise_stddev_on_mean(self) -> float:
        """The standard deviation of the coins alone, for each coordinate of the mean."""
        return self.max_grad_norm * math.sqrt(self.noise_bits / self.users) / self.levels
