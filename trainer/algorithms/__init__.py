"""One file per algorithm, each with its own update. The registry's names are those of the calibrators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calibrators.phases import StructuredPhase, TreePhase
from calibrators.plan import Clip, Normalize, Phase
from trainer.algorithms import clipped_sgd_strongly_convex, dp_gd, dp_nsgd, dp_sgd, dp_sgd_gradient
from trainer.algorithms.tree_sfw_l1 import TreeFrankWolfe
from trainer.loop import Task, Trainer, gradient_steps


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What carries out the plans of one algorithm.

    Attributes:
        name: The name in a plan.
        phase_type: What every phase of its plans is.
        gradient_bound: The kind of gradient bound that every `Phase` of its plans has; None for other phases.
        make: From a task to its trainer.
        linear_models_only: Whether its bounds need gradients that are one outer product.
    """

    name: str
    phase_type: type[Phase] | type[StructuredPhase]
    gradient_bound: type[Clip] | type[Normalize] | None
    make: Callable[[Task], Trainer]
    linear_models_only: bool = False


ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("dp_sgd", Phase, Clip, gradient_steps(dp_sgd.update, Clip)),
        Algorithm("dp_nsgd", Phase, Normalize, gradient_steps(dp_nsgd.update, Normalize)),
        Algorithm("dp_sgd_gradient", Phase, Clip, gradient_steps(dp_sgd_gradient.update, Clip)),
        Algorithm("dp_gd", Phase, Clip, gradient_steps(dp_gd.update, Clip)),
        Algorithm("clipped_sgd_strongly_convex", Phase, Clip, gradient_steps(clipped_sgd_strongly_convex.update, Clip)),
        Algorithm("tree_sfw_l1", TreePhase, None, TreeFrankWolfe, linear_models_only=True),
    )
}
