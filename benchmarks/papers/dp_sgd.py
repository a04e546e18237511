"""This reproduction runs DP-SGD in the setting of Theorem 3.4 and Corollary 3.5 of Yang, Zhang, Chen & Liu 2022."""

from __future__ import annotations

from benchmarks.papers import yang_theorem
from benchmarks.papers.reproduction import Reproduction
from calibrators.plan import Clip

NAME = "dp_sgd"
TITLE = "DP-SGD: Theorem 3.4 and Corollary 3.5 of Yang et al."


def reproduce(quick: bool) -> Reproduction:
    """Return the results with the clip threshold 1. It is well above twice the deviation, so that the theorem holds.
    The theorem's bound becomes arbitrarily small with larger budgets."""
    return yang_theorem.reproduce(NAME, Clip(1.0), 0.0, quick)
