"""The code that mechanisms with discrete noise on a scalar sum share: contributions and noise lie on one grid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from accounting.described import Described, Real
from accounting.errors import InvalidValue
from accounting.events.mechanism import Mechanism, NoiseMultiplier
from accounting.events.samplings import SCHEDULES

#: Finer grids are not resolved.
_MIN_GRID = 1e-4
_WHOLE = 1e-9


@dataclass(frozen=True, slots=True)
class GridNoise(Mechanism):
    """Discrete noise on a scalar sum of contributions on a grid, each at most 1 (in contribution bounds).

    Raises:
        InvalidValue: If the contribution bound is no whole number of grid steps.
    """

    samplings = SCHEDULES
    norm = "absolute value"
    parts_cost_less = True
    noise_multiplier: NoiseMultiplier
    grid: Annotated[
        float,
        Real(
            _MIN_GRID,
            1.0,
            "Spacing of the grid of contributions and noise, over the contribution bound: 1 over an integer.",
        ),
    ]

    def __post_init__(self) -> None:
        Described.__post_init__(self)
        if abs(self.steps_per_bound * self.grid - 1.0) > _WHOLE:
            below = max(1, math.floor(1.0 / self.grid))
            raise InvalidValue(
                f"the contribution bound must be a whole number of grid steps, got grid {self.grid!r}; use a grid "
                f"such as 1/{below} = {1.0 / below:.17g} or 1/{below + 1} = {1.0 / (below + 1):.17g}",
                pointer=("grid",),
            )

    @property
    def steps_per_bound(self) -> int:
        """Number of grid steps in one contribution bound."""
        return round(1.0 / self.grid)
