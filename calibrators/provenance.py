"""Where a number comes from: every recommended number carries one of these."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from calibrators.units import PURE, Units

_NOT_FINITE = "at these constants the formula has no finite value"


class ProvenanceKind(StrEnum):
    """How well a number is known."""

    EXACT = "exact"
    """Stated by the paper, or verified to equal what it states."""
    DERIVED = "derived"
    """Proved in this project's documentation, in place of a formula that the paper leaves out or gets wrong."""
    ORDER = "order"
    """Known up to a constant; the constant that was used is one of the inputs."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """A number with its formula and its theorem.

    Attributes:
        name: Name in the HTTP contract, such as ``"step_size"``.
        value: The number, or one per step or phase; None where the formula's conditions fail (``assumptions`` then says
            which), as where it has no finite value.
        formula: LaTeX.
        source: Paper, theorem, equation.
        kind: How well it is known.
        assumptions: What must hold, in sentences.
        vacuous: For a bound: whether it is worse than the trivial one; None where that has no meaning.
        units: How the number scales with the units of losses and parameters.
    """

    name: str
    value: float | tuple[float, ...] | None
    formula: str
    source: str
    kind: ProvenanceKind
    assumptions: tuple[str, ...] = ()
    vacuous: bool | None = None
    units: Units = PURE

    def __post_init__(self) -> None:
        values = self.value if isinstance(self.value, tuple) else (0.0 if self.value is None else self.value,)
        if not all(math.isfinite(value) for value in values):
            object.__setattr__(self, "value", None)
            object.__setattr__(self, "assumptions", (*self.assumptions, _NOT_FINITE))
