"""Stochastic Frank-Wolfe over the l1 ball: each record corrects a gradient estimate, report-noisy-max in every step.

Source: Bassily, Guzman & Nandi 2021, Algorithm 1, with Gumbel noise and constants of our own
(`calibrators.bassily_guzman`). The steps are those of `trainer.recursive_gradients`; the last point is released.
"""

from __future__ import annotations

from trainer.loop import Task, Trainer
from trainer.recursive_gradients import RecursiveFrankWolfe


def make(task: Task) -> Trainer:
    """Of a plan that releases its last point."""
    return RecursiveFrankWolfe(task, "poly_sfw")
