"""Frank-Wolfe over the l1 ball towards a stationary point: a recursive gradient estimate, a random iterate released.

Source: Bassily, Guzman & Menart 2021, in one round of one step size, with Gumbel noise and constants of our own
(`calibrators.bassily_guzman`). The steps are those of `trainer.recursive_gradients`.
"""

from __future__ import annotations

from trainer.loop import Task, Trainer
from trainer.recursive_gradients import RecursiveFrankWolfe


def make(task: Task) -> Trainer:
    """Of a plan that releases one of the points that its steps start from."""
    return RecursiveFrankWolfe(task, "private_sfw_nonconvex_l1")
