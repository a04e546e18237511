"""Units of the numbers in theorems: how each scales when losses and parameters are measured in other units."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Units:
    """Exponents of the two base units of an optimisation problem.

    A number with these units is multiplied by ``a**loss * b**(parameter + holder * alpha)`` when every loss is
    multiplied by a and every parameter by b, where alpha is the problem's Hoelder exponent.

    Attributes:
        loss: Exponent of the unit of the loss.
        parameter: Exponent of the unit of a parameter.
        holder: Further exponent of a parameter, per unit of the Hoelder exponent.

    >>> str(GRADIENT), str(SMOOTHNESS), str(PURE), str(Units(loss=1, parameter=-1, holder=-1))
    ('loss / parameter', 'loss / parameter^2', 'pure number', 'loss / parameter^(1 + alpha)')
    """

    loss: int = 0
    parameter: int = 0
    holder: int = 0

    def scale(self, loss: float, parameter: float, holder_exponent: float = 0.0) -> float:
        """The factor on a number with these units.

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
