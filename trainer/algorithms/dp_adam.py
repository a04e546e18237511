"""DP-Adam: clip each record's gradient, sum, add noise, divide by a public constant, take Adam's step.

Source: Yang, Zhang, Chen & Liu 2022 (arXiv 2206.13033), Appendix D with eq. (2).
"""

from __future__ import annotations

from calibrators.plan import Clip
from trainer.adam import Adam
from trainer.loop import GradientSteps, Task


def make(task: Task) -> GradientSteps:
    """The trainer of a plan: Adam on g~ = (1/B) (sum_i min(1, c/|g_i|) g_i + c sigma Z)."""
    return GradientSteps(task, lambda start: Adam(task.plan.domain, start), Clip)
