"""This module describes noise that is correlated over the steps of a run: the request for it, and the alternatives that
an answer lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from accounting.errors import InvalidValue
from accounting.events.correlated_gaussian import MOST_LISTED
from accounting.numbers import read_integer

#: The most bands that are tried by default, if a request leaves the number of bands open.
USUAL_MAX_BANDS = 64


class Objective(StrEnum):
    """The error that is minimised: the root mean square of the errors of all steps, or the largest of these errors."""

    MEAN = "mean"
    """The root mean square over all steps."""
    MAX = "max"
    """The largest error of a step. The last step has the largest."""


@dataclass(frozen=True, slots=True)
class Correlation:
    """A matrix with a number of bands that correlates the noise of successive steps.

    Attributes:
        bands: The number of steps on which the noise of a step depends, including the step itself. None takes the best
            of 1, 2, 4, ...
        objective: The measure of the error of the gradient sums that training follows. The matrix is chosen to make
            this error small.
        max_bands: The most bands that are tried. A run keeps a vector of noise for each band except the first.

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
                f"bands is {self.bands}, which is more than max_bands, {self.max_bands}: give a larger max_bands, too",
                pointer=("bands",),
            )


@dataclass(frozen=True, slots=True)
class Alternative:
    """One number of bands, with the least noise that meets the target for it.

    Attributes:
        sampling: The kind of sampling.
        bands: The number of bands; 1 is independent noise.
        noise_multiplier: The standard deviation of the normal numbers that make up the noise, divided by the
            contribution bound.
        error: The error of the gradient sums that training follows, as the objective measures it. The unit is the
            contribution bound.
        ratio: This error divided by the error of independent noise with Poisson batches. None if no such noise meets
            the target.
        memory: Bytes that a run keeps of earlier steps; None if the number of parameters is not known.
        is_chosen: Whether it is the plan's number of bands.
        is_allowed: Whether the number of bands is at most ``max_bands``. Alternatives that are not allowed show the
            gain from more memory.
    """

    sampling: str
    bands: int
    noise_multiplier: float
    error: float
    ratio: float | None
    memory: int | None
    is_chosen: bool
    is_allowed: bool
