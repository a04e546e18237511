"""This module describes what a run releases as the model: one of the run's points, or an average of points."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from accounting.described import Described, Real, Reals, from_json
from accounting.errors import InvalidValue
from accounting.numbers import MAX_COUNT


@dataclass(frozen=True, slots=True)
class LastIterate(Described):
    """The point that the last step leads to."""

    kind: ClassVar[str] = "last"


@dataclass(frozen=True, slots=True)
class AverageIterate(Described):
    """The mean of the starting points of the steps. The point after the last step is not used."""

    kind: ClassVar[str] = "average"


@dataclass(frozen=True, slots=True)
class RandomIterate(Described):
    """One of the starting points of the steps. It is drawn in secret and independently of the data; all are equally
    likely.

    If a phase has rounds of steps, as in `proximal_phases`, the released point is one of the starting points of the
    rounds.
    """

    kind: ClassVar[str] = "random"


@dataclass(frozen=True, slots=True)
class WeightedAverage(Described):
    """A weighted mean of the points that the steps lead to.

    Attributes:
        weights: One nonnegative weight for each step. The weights sum to 1.
    """

    kind: ClassVar[str] = "weighted_average"
    weights: Annotated[tuple[float, ...], Reals(Real(0.0, 1.0), MAX_COUNT)]

    def __post_init__(self) -> None:
        Described.__post_init__(self)
        if abs(math.fsum(self.weights) - 1.0) > 1e-9:
            raise InvalidValue("weights must sum to 1", pointer=("release", "weights"))


def average_of_last(count: int, steps: int) -> WeightedAverage:
    """Return the mean of the points that the last ``count`` of ``steps`` steps lead to.

    >>> average_of_last(2, 4).weights
    (0.0, 0.0, 0.5, 0.5)
    """
    return WeightedAverage((0.0,) * (steps - count) + (1.0 / count,) * count)


Release = LastIterate | AverageIterate | RandomIterate | WeightedAverage

LAST_ITERATE = LastIterate()

RELEASES: dict[str, type[Release]] = {
    cls.kind: cls for cls in (LastIterate, AverageIterate, RandomIterate, WeightedAverage)
}


def release_from_json(value: Mapping[str, object]) -> Release:
    """Read a release from the output of its `to_json`. Numbers may also be canonical strings."""
    return from_json(value, RELEASES, "release")
