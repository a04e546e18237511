"""This module lists constants of theorems that the user may choose freely, because they are not facts about the
records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FreeConstant:
    """A constant for which a theorem needs some value, although the theorem holds for every value.

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
    "radius": FreeConstant(
        _RADIUS, "Parameters are kept within this radius. The noise and the bounds grow with the radius."
    ),
    "diameter": FreeConstant(
        2.0 * _RADIUS, f"This is the diameter of the ball of radius {_RADIUS:g} in which parameters are kept."
    ),
    "norm_order": FreeConstant(1.5, "This is the midpoint between the l1 norm (1) and the l2 norm (2) of parameters."),
    "failure_probability": FreeConstant(0.1, "With this value, the bound holds with probability 0.9."),
    "weak_convexity": FreeConstant(1.0, "The loss is convex, so every value above 0 is valid.", of_convex_losses=True),
    "localization_power": FreeConstant(1.0, "This is the smallest power that the theorem allows."),
}
