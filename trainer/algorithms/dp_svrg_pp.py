"""DP-SVRG++: the steps of DP-SVRG in epochs that double, each from where the last one ended.

Source: Wang, Ye & Xu 2017 (arXiv 1802.05251), Algorithm 2, with the clip that makes its Lipschitz constant a fact.
"""

from __future__ import annotations

from trainer.algorithms.dp_svrg import Svrg
from trainer.arrays import Array


class SvrgPlusPlus(Svrg):
    """Only the start of an epoch differs; how many steps each has is the plan's to say.

    Guarantees:
        - the_point_goes_on: an epoch's mean becomes the snapshot, and its last point the next one's start.
    """

    def _start_of_epoch(self) -> Array:
        return self._point
