"""The interval in which a privacy loss lies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Support:
    """An interval of privacy losses.

    Attributes:
        lower: The loss is below it with P-probability at most ``lower_mass``.
        upper: delta at this loss is at most ``upper_mass``.
        lower_mass: 0 if ``lower`` is the essential infimum.
        upper_mass: 0 if ``upper`` is the essential supremum.
    """

    lower: float
    upper: float
    lower_mass: float
    upper_mass: float


def mirrored(epsilons: Array, profile_of_size: Array) -> Array:
    """Return the excess of a pair whose directions agree, given its profile at |eps|. For eps < 0 the excess is
    e^eps times this profile.
    """
    excess: Array = np.exp(np.minimum(epsilons, 0.0)) * profile_of_size
    return excess
