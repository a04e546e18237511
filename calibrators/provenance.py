"""This module describes where a number comes from, and how it scales with the units of losses and parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Units:
    """The exponents of the two base units of an optimisation problem.

    A number with these units is multiplied by ``a**loss * b**(parameter + holder * alpha)`` when every loss is
    multiplied by a and every parameter by b, where alpha is the problem's Hoelder exponent.

    Attributes:
        loss: Exponent of the unit of the loss.
        parameter: Exponent of the unit of a parameter.
        holder: The further exponent of the unit of a parameter, per unit of the Hoelder exponent.

    >>> str(GRADIENT), str(SMOOTHNESS), str(PURE), str(Units(loss=1, parameter=-1, holder=-1))
    ('loss / parameter', 'loss / parameter^2', 'pure number', 'loss / parameter^(1 + alpha)')
    """

    loss: int = 0
    parameter: int = 0
    holder: int = 0

    def scale(self, loss: float, parameter: float, holder_exponent: float = 0.0) -> float:
        """Return the factor by which a number with these units is multiplied.

        >>> GRADIENT.scale(loss=10.0, parameter=2.0)
        5.0
        """
        return float(loss**self.loss * parameter ** (self.parameter + self.holder * holder_exponent))

    def __str__(self) -> str:
        parts = [("loss", self.loss, 0), ("parameter", self.parameter, self.holder)]
        above = [_power(name, exponent, holder) for name, exponent, holder in parts if (exponent or holder) > 0]
        below = [_power(name, -exponent, -holder) for name, exponent, holder in parts if (exponent or holder) < 0]
        if not above and not below:
            return "pure number"
        return " / ".join([" ".join(above) or "1", *below])


def _power(name: str, exponent: int, holder: int) -> str:
    if holder:
        return f"{name}^({exponent} + alpha)" if holder == 1 else f"{name}^({exponent} + {holder} alpha)"
    return name if exponent == 1 else f"{name}^{exponent}"


PURE = Units()
LOSS = Units(loss=1)
PARAMETER = Units(parameter=1)
GRADIENT = Units(loss=1, parameter=-1)
SMOOTHNESS = Units(loss=1, parameter=-2)
STEP = Units(loss=-1, parameter=2)


_NOT_FINITE = "the formula has no finite value for the given constants"


class ProvenanceKind(StrEnum):
    """The kind of evidence for a number."""

    EXACT = "exact"
    """Stated by the paper, or verified to equal the paper's number."""
    DERIVED = "derived"
    """Proved in this project's documentation, in place of a formula that the paper leaves out or gets wrong."""
    ORDER = "order"
    """Known only up to a constant. The constant that was used is one of the inputs."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """A number with its formula and its theorem.

    Attributes:
        name: Name in the HTTP contract, such as ``"step_size"``.
        value: The number, or one number for each step or phase. None if the formula has no finite value, or if its
            conditions fail; ``assumptions`` then says which ones.
        formula: The formula, in LaTeX.
        source: The paper, the theorem and the equation.
        kind: The kind of evidence for the number.
        assumptions: The conditions that must hold, in sentences.
        vacuous: Whether a bound is no better than the trivial bound; None if the number is not a bound.
        units: The way in which the number scales with the units of losses and parameters.
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
