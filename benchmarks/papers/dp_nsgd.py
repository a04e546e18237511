"""This reproduction runs DP-NSGD in the setting of Theorem 3.2 and Corollary 3.3 of Yang, Zhang, Chen & Liu 2022."""

from __future__ import annotations

from benchmarks.papers import yang_theorem
from benchmarks.papers.reproduction import Reproduction
from calibrators.plan import Normalize

NAME = "dp_nsgd"
TITLE = "DP-NSGD: Theorem 3.2 and Corollary 3.3 of Yang et al."


def reproduce(quick: bool) -> Reproduction:
    """Return the results with the regulariser r = 1, which is five times the deviation tau_0. The part
    min(4 tau_0^2 / r, tau_0) of the bound remains at any budget."""
    bound = Normalize(1.0)
    floor = min(4.0 * yang_theorem.DEVIATION**2 / bound.regularizer, yang_theorem.DEVIATION)
    return yang_theorem.reproduce(NAME, bound, floor, quick)
