"""This module defines the interface of an evaluator, which takes a composition and returns certified bounds."""

from __future__ import annotations

from typing import Protocol

from accounting.composition.composition import Composition
from accounting.intervals import Bounds

#: The exceptions that mean that an evaluator failed. The bounds of the other evaluators are sound without it.
FAILURES = (ArithmeticError, ValueError, IndexError, MemoryError)


class Evaluator(Protocol):
    """One method that bounds the composition's profile. It returns ``None`` for compositions that it does not cover."""

    @property
    def name(self) -> str: ...

    @property
    def methods(self) -> tuple[str, ...]:
        """Return further names that the evaluator's bounds may have in `Bounds.method`."""

    def delta(self, composition: Composition, epsilon: float) -> Bounds | None:
        """Return bounds of the smallest delta at ``epsilon`` >= 0."""

    def epsilon(self, composition: Composition, delta: float) -> Bounds | None:
        """Return bounds of the smallest epsilon >= 0 at 0 < ``delta`` < 1."""
