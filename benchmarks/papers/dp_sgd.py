"""This reproduction runs DP-SGD in the setting of Theorem 3.4 and Corollary 3.5 of Yang, Zhang, Chen & Liu 2022."""

from __future__ import annotations

from benchmarks.papers import yang_theorem
from benchmarks.papers.reproduction import Reproduction
from calibrators.plan import Clip

NAME = "dp_sgd"
TITLE = "DP-SGD: Theorem 3.4 and Corollary 3.5 of Yang et al."


def reproduce(quick: bool) -> Reproduction:
    """Return the results with clip threshold 1, well above twice the deviation, so that the theorem holds. Its bound
    has no floor."""
    return yang_theorem.reproduce(NAME, Clip(1.0), 0.0, quick)
