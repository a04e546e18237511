"""The presets that choose what a request leaves out, and what they may know: public facts alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Preset(StrEnum):
    """A way to choose what a request leaves out."""

    PRACTICAL = "practical"
    """Rules that are known to train well choose. Nothing is proved of what the run attains."""
    THEOREM = "theorem"
    """The paper's theorem chooses, as far as the declared bounds give its constants."""


@dataclass(frozen=True)
class Objective:
    """The public facts about the objective.

    Attributes:
        derive: Takes p of the norm of parameters, and the constants that are given. Returns, by their names, those
            that follow from these and from the declared bounds.
        is_convex: Whether the loss is convex in the parameters.
        predicts_numbers: Whether labels are numbers, which lie in [-1, 1], and not classes.
        trained_by: The algorithms that train the model; None if no model is known.
    """

    derive: Callable[[float, Mapping[str, float]], Mapping[str, float]]
    is_convex: bool
    predicts_numbers: bool = False
    trained_by: tuple[str, ...] | None = None


def nothing_derived(_norm_order: float, _given: Mapping[str, float]) -> Mapping[str, float]:
    """Return no constants, for objectives without declared bounds."""
    return {}


#: The objective of a plan about whose model and data nothing is known.
UNKNOWN_OBJECTIVE = Objective(nothing_derived, is_convex=False)
