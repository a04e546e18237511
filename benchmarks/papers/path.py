"""This module records the points of a run by means of the loss function, since a run releases only one point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


@dataclass
class Path:
    """A gradient function for `PerRecordModel` that remembers the points at which it was called.

    Attributes:
        gradient: A function from a point (d,), features (r, p) and labels (r,) to gradients (r, d).
        points: The points from which the steps started, in order.
    """

    gradient: Callable[[Vector, Vector, Vector], Vector]
    points: list[Vector] = field(default_factory=list)

    def __call__(self, point: Any, features: Any, labels: Any) -> Any:
        if not self.points or not np.array_equal(self.points[-1], point):
            self.points.append(np.array(point))
        return self.gradient(point, features, labels)
