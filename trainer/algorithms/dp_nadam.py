"""DP-NAdam: normalise each record's gradient, sum, add noise, divide by a public constant, take Adam's step.

The N is for normalised, not for Nesterov; the noise is not scaled by r.

Source: Yang, Zhang, Chen & Liu 2022 (arXiv 2206.13033), Appendix D with eq. (3).
"""

from __future__ import annotations

from calibrators.plan import Normalize
from trainer.adam import Adam
from trainer.loop import GradientSteps, Task


def make(task: Task) -> GradientSteps:
    """The trainer of a plan: Adam on g~ = (1/B) (sum_i g_i/(r + |g_i|) + sigma Z)."""
    return GradientSteps(task, lambda start: Adam(task.plan.domain, start), Normalize)
