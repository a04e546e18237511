"""The correlation of a run's noise over its steps: the request, and other choices that an answer lists."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from accounting.errors import InvalidValue
from accounting.events.correlated_gaussian import MOST_LISTED
from accounting.numbers import read_integer

#: The most bands that are tried if their number is left open, unless a request says otherwise.
USUAL_MAX_BANDS = 64


class Objective(StrEnum):
    """The number that is minimised: the root mean square of the steps' errors, or the largest of them."""

    MEAN = "mean"
    """The root mean square over all steps."""
    MAX = "max"
    """The largest error of a step, which is that of the last one."""


@dataclass(frozen=True, slots=True)
class Correlation:
    """A matrix with a number of bands that correlates the noise of successive steps.

    Attributes:
        bands: The number of steps on which a step's noise depends, including itself; None takes the best of 1, 2, 4,
            ...
        objective: The error of the sums that training follows; the matrix is chosen to make it small.
        max_bands: The most bands that are tried. A run keeps a vector of noise for each band but one.

    Raises:
        InvalidValue: If a number is outside its range.
    """

    bands: int | None = None
    objective: Objective = Objective.MEAN
    max_bands: int = USUAL_MAX_BANDS

    def __post_init__(self) -> None:
        if self.bands is not None:
            read_integer("bands", self.bands, 1, MOST_LISTED)
        read_integer("max_bands", self.max_bands, 1, MOST_LISTED)
        if self.bands is not None and self.bands > self.max_bands:
            raise InvalidValue(
                f"{self.bands} bands are more than max_bands, which is {self.max_bands}: give a larger one, too",
                pointer=("bands",),
            )


@dataclass(frozen=True, slots=True)
class Alternative:
    """One number of bands with the least noise that meets the target.

    Attributes:
        sampling: The kind of sampling.
        bands: The number of bands; 1 is independent noise.
        noise_multiplier: The standard deviation of the normal numbers that make up the noise, over the contribution
            bound.
        error: The error of the sums that training follows, as the objective measures it, in contribution bounds.
        ratio: The error over that of independent noise with Poisson batches; None if no such noise meets the target.
        memory: Bytes that a run keeps of earlier steps; None if the number of parameters is not known.
        is_chosen: Whether it is the plan's number of bands.
        is_allowed: Whether it is at most ``max_bands``. Other alternatives show the gain from more memory.
    """

    sampling: str
    bands: int
    noise_multiplier: float
    error: float
    ratio: float | None
    memory: int | None
    is_chosen: bool
    is_allowed: bool
