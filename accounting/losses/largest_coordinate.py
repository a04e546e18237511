"""This module gives a lower bound for shuffled epochs: the loss if only an epoch's largest noisy sum is seen.

All other records contribute -e, for a unit vector e. A record of contribution e is in one batch of t: without it, each
step's noisy sum is N(0, s^2) up to a public shift, and N(1, s^2) in the batch where the record is null. With it, that
batch has N(2, s^2). If only the largest step is seen, its distribution functions are Phi(x/s)^(t-1) Phi((x-1)/s) and
Phi(x/s)^(t-1) Phi((x-2)/s). If only its cell among finitely many is seen, they are a pair of atoms. An observer who
sees less learns less, so compositions of this pair cost no more than shuffled epochs do.

Source: Chua, Ghazi, Kamath, Kumar, Manurangsi, Sinha & Zhang 2024, "How private are DP-SGD implementations?".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.losses.atomic import AtomicLoss
from accounting.losses.atoms import Atoms

Array = NDArray[np.float64]

#: The number of cells, and the number of standard deviations that they reach beyond the largest of t normal variables.
_CELLS, _REACH = 4000, 9.0


@dataclass(frozen=True, slots=True)
class LargestCoordinateLoss(AtomicLoss):
    """The loss of one epoch if only the cell of its largest step is seen.

    Attributes:
        noise_multiplier: The noise multiplier s.
        batches: The number t of batches.
    """

    noise_multiplier: float
    batches: int

    symmetric = False
    on_lattice = False

    def find_atoms(self) -> Atoms:
        s, others = self.noise_multiplier, self.batches - 1.0
        top = s * (math.sqrt(2.0 * math.log(self.batches)) + _REACH) + 2.0
        edges = np.linspace(-s * _REACH, top, _CELLS - 1)
        masses = [self._log_masses(edges, others, mean) for mean in (2.0, 1.0)]
        kept = (masses[0] > -700.0) & (masses[1] > -700.0)
        losses = masses[0][kept] - masses[1][kept]
        order = np.argsort(losses, kind="stable")
        losses, log_masses = losses[order], masses[0][kept][order]
        # Cells whose losses differ only by rounding are merged.
        first = np.concatenate([[True], np.diff(losses) > 1e-9])
        place = np.flatnonzero(first)
        together = np.logaddexp.reduceat(log_masses, place)
        others_together = np.logaddexp.reduceat(log_masses - losses, place)
        return Atoms(together, together - others_together)

    def _log_masses(self, edges: Array, others: float, mean: float) -> Array:
        """Return the log-probability of each cell. Two further cells lie below the first edge and above the last."""
        s = self.noise_multiplier
        logs = others * scipy.special.log_ndtr(edges / s) + scipy.special.log_ndtr((edges - mean) / s)
        between = logs[1:] + np.log(-np.expm1(np.minimum(logs[:-1] - logs[1:], -1e-300)))
        masses: Array = np.concatenate([logs[:1], between, [math.log(-math.expm1(min(float(logs[-1]), -1e-300)))]])
        return masses
