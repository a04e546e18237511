"""One file per algorithm, each with its own update. The registry's names are those of the calibrators."""

from __future__ import annotations

from dataclasses import dataclass

from calibrators.plan import Clip, Normalize
from trainer.algorithms import dp_nsgd, dp_sgd
from trainer.loop import Update


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An update, and how its plans bound gradients.

    Attributes:
        name: The name in a plan.
        gradient_bound: The kind that every phase of its plans has.
        update: One step.
    """

    name: str
    gradient_bound: type[Clip] | type[Normalize]
    update: Update


ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("dp_sgd", Clip, dp_sgd.update),
        Algorithm("dp_nsgd", Normalize, dp_nsgd.update),
    )
}
