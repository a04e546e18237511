"""The interface of an evaluator: a composition in, certified bounds out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from accounting.privacy_loss import Composition


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one evaluator can say about one number.

    Attributes:
        lower: At most the truth; 0 where the evaluator only bounds from above.
        upper: At least the truth; inf where it only bounds from below.
        estimate: Its best single number, or NaN where it has none.
        error_budget: Width by named source, in the unit of the number.
        method: Which of the evaluator's own methods gave the upper bound; empty where it has one alone.
    """

    lower: float = 0.0
    upper: float = math.inf
    estimate: float = math.nan
    error_budget: Mapping[str, float] = field(default_factory=dict)
    method: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether the numbers are numbers and in order; anything else is discarded."""
        return 0.0 <= self.lower <= self.upper and not any(map(math.isnan, self.error_budget.values()))

    @property
    def width(self) -> float:
        return self.upper - self.lower


class Evaluator(Protocol):
    """One method for the composition's profile. ``None`` means: not for this composition."""

    @property
    def name(self) -> str: ...

    @property
    def methods(self) -> tuple[str, ...]:
        """Further names that its bounds may carry in `Bounds.method`."""

    def delta(self, composition: Composition, epsilon: float) -> Bounds | None:
        """Bounds of the smallest delta at ``epsilon`` >= 0."""

    def epsilon(self, composition: Composition, delta: float) -> Bounds | None:
        """Bounds of the smallest epsilon >= 0 at 0 < ``delta`` < 1."""
