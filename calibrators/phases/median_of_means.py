"""Phases that release the coordinate-wise median of the means of groups, with one draw of noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from accounting.described import Whole
from accounting.errors import InvalidValue
from accounting.events import Gaussian
from calibrators.phases.structured import Charge, Positive, Records, StructuredPhase
from calibrators.provenance import GRADIENT

#: The largest number of groups. The means of all groups are kept in memory at the same time.
MAX_GROUPS = 1 << 14
NumGroups = Annotated[int, Whole(1, MAX_GROUPS)]
Dimension = Annotated[int, Whole(1, 10**10)]


@dataclass(frozen=True, slots=True)
class MedianPhase(StructuredPhase):
    """MeanOracle2: coordinates are clamped, each group is averaged, and noise is added to the lower median of the
    groups' means.

    A record is in at most one group. If the record changes, its group's mean changes by at most s ``truncation_radius``
    / ``group_size`` in each coordinate. Here s = 2 if the record is replaced, and s = 1 if one of the two records is
    null. An order statistic moves by no more than the number that moves most. So each coordinate of the median changes
    by at most the same amount, and the median changes by at most sqrt(d) times that amount in the l2 norm. This is the
    sensitivity of the mean of ``group_size`` vectors that are clipped to the l2 norm ``contribution_bound``.

    Attributes:
        event: One Gaussian mechanism on all records.
        groups: The number m of groups.
        group_size: The public divisor of every group's sum.
        dimension: The dimension d.
        truncation_radius: The radius tau: coordinates are clamped to [-tau, tau], in gradient units.
        noise_stddev: The standard deviation of the noise on the release, per coordinate.
    """

    kind = "median_of_means"
    units: ClassVar = {"truncation_radius": GRADIENT, "noise_stddev": GRADIENT}
    charge = Charge(
        (Gaussian,), "a phase of medians of means must have one gaussian event on all records", full_batch=True
    )
    groups: NumGroups
    group_size: Records
    dimension: Dimension
    truncation_radius: Positive
    noise_stddev: Positive

    def check(self) -> None:
        assert isinstance(self.event.mechanism, Gaussian), "as is charged"
        charged = self.event.mechanism.noise_multiplier * self.contribution_bound / self.group_size
        if self.noise_stddev < charged * (1.0 - 1e-12):
            raise InvalidValue(
                f"noise_stddev must be at least {charged!r}, the noise for which the event is charged; got "
                f"{self.noise_stddev!r}",
                pointer=("noise_stddev",),
            )

    @property
    def steps(self) -> int:
        return 1

    @property
    def batch_size(self) -> int:
        return self.groups * self.group_size

    @property
    def contribution_bound(self) -> float:
        """The bound sqrt(d) tau on the l2 norm of a clamped record."""
        return math.sqrt(self.dimension) * self.truncation_radius

    @property
    def noise_scale(self) -> tuple[float, ...]:
        return (self.noise_stddev,)
