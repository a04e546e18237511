"""Constants of theorems that the user may choose, because they are not facts about the records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FreeConstant:
    """A constant that a theorem needs, although it holds for every value of it.

    Attributes:
        value: The chosen value.
        reason: The reason for the value, in a sentence.
        of_convex_losses: Whether the value suits convex losses only.
    """

    value: float
    reason: str
    of_convex_losses: bool = False


_RADIUS = 5.0
FREE_CONSTANTS: Mapping[str, FreeConstant] = {
    "radius": FreeConstant(_RADIUS, "Parameters are kept within it; noise and bounds grow with it."),
    "diameter": FreeConstant(2.0 * _RADIUS, f"Of parameters within {_RADIUS:g} of the centre."),
    "norm_order": FreeConstant(1.5, "Between the l1 norm and the l2 norm of parameters."),
    "failure_probability": FreeConstant(0.1, "The bound then holds nine times in ten."),
    "weak_convexity": FreeConstant(
        1.0, "The loss is convex, so that any number above 0 is right.", of_convex_losses=True
    ),
    "localization_power": FreeConstant(1.0, "The least power of the theorem."),
}
