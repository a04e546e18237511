"""This module defines the presets, which choose the values that a request leaves out, and the facts that they may
use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Preset(StrEnum):
    """A way to choose the values that a request leaves out."""

    PRACTICAL = "practical"
    """Rules known to train well choose the values. Nothing is proved about the result."""
    THEOREM = "theorem"
    """The paper's theorem chooses, as far as the declared bounds give its constants."""


@dataclass(frozen=True)
class Objective:
    """The public facts about the objective.

    Attributes:
        derive: A function of the p of the parameters' norm and of the given constants. It returns, by name, the
            constants that follow from the given constants and the declared bounds.
        is_convex: Whether the loss is convex in the parameters.
        predicts_numbers: Whether the labels are numbers in [-1, 1] rather than classes.
        trained_by: The algorithms that train the model; None if no model is known.
    """

    derive: Callable[[float, Mapping[str, float]], Mapping[str, float]]
    is_convex: bool
    predicts_numbers: bool = False
    trained_by: tuple[str, ...] | None = None


def nothing_derived(_norm_order: float, _given: Mapping[str, float]) -> Mapping[str, float]:
    """Return no constants, for objectives without declared bounds."""
    return {}


#: The objective of a plan if nothing is known about the model and the data.
UNKNOWN_OBJECTIVE = Objective(nothing_derived, is_convex=False)
