"""The interface of an evaluator: a composition in, certified bounds out."""

from __future__ import annotations

from typing import Protocol

from accounting.composition.composition import Composition
from accounting.intervals import Bounds

#: The errors of an evaluator that fails; the bounds of the others are sound without it.
FAILURES = (ArithmeticError, ValueError, IndexError, MemoryError)


class Evaluator(Protocol):
    """One method for the composition's profile. ``None`` means: not for this composition."""

    @property
    def name(self) -> str: ...

    @property
    def methods(self) -> tuple[str, ...]:
        """Return further names that the evaluator's bounds may have in `Bounds.method`."""

    def delta(self, composition: Composition, epsilon: float) -> Bounds | None:
        """Return bounds of the smallest delta at ``epsilon`` >= 0."""

    def epsilon(self, composition: Composition, delta: float) -> Bounds | None:
        """Return bounds of the smallest epsilon >= 0 at 0 < ``delta`` < 1."""
