"""This module computes lower bounds for groups in batches of a fixed size. Some groups attain them.

All other records contribute -1. Let w_h be the probability that h records of the group are in the batch. Relative to
the sum of a batch without any of them, the laws are

* a group of 1 against one of -1:  A = sum_h w_h N(2h) against N(0);
* a group of 1 against null records:  sum_h w_h N(2h) against sum_h w_h N(h).

The second pair is composed as it stands, as for one record (`losses.displacement`). The first pair implies that the
profile of every dominating pair is at least A's, in either order of the two data sets. So a dominating pair costs at
least as much as the following one: its losses above 0 have the law of A's losses under A's first law, and its losses
below 0 are their mirror image. For one record this is the pair of a step (`losses.without_replacement`). Both pairs are
computed for cells of the output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.losses.atomic import AtomicLoss
from accounting.losses.atoms import Atoms
from accounting.losses.batch_hits import WEIGHT_ERROR, Hits
from accounting.losses.group_laplace import masses_between

Array = NDArray[np.float64]

#: The least number of cells, the least number of cells per deviation of the noise, and the largest number of cells.
_CELLS, _PER_DEVIATION, _MOST_CELLS = 2000, 40.0, 20_000
#: The number of standard deviations that cells cover for Gaussian noise, and the number of cells within a distance of 2
#: for Laplace noise.
_REACH, _LAPLACE_CELLS = 12.0, 24
#: If the group is replaced, numbers of hits that are less likely than this count as no hits.
_RARE = 1e-40
#: Losses of at most this absolute value are left out of the mirrored pair.
_SLIGHT = 1e-14
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


@dataclass(frozen=True, slots=True)
class GroupBatchLoss(AtomicLoss):
    """A lower bound of the loss of a group in one step of a batch of a fixed size.

    Attributes:
        noise_multiplier: The noise multiplier s.
        hits: The law of the number of records of the group in the batch.
        to_null: Whether the records of the group become null records; otherwise they are replaced.
        laplace: Whether the noise is Laplace noise, and the group is replaced; otherwise the noise is Gaussian.

    Guarantees: attained_by_a_group: its profile is at most that of two data sets, in one order or the other.
    """

    noise_multiplier: float
    hits: Hits
    to_null: bool = False
    laplace: bool = False

    on_lattice = False

    @property
    def symmetric(self) -> bool:
        return not self.to_null

    def find_atoms(self) -> Atoms:
        log_masses, losses = self._laplace_cells() if self.laplace else self._gaussian_cells()
        if not self.to_null:
            kept = losses > _SLIGHT
            log_masses, losses = log_masses[kept], losses[kept]
            mirrored = log_masses - losses
            # The masses above and below 0 add up to at most 1, because the profile is convex at 0. The rest is put at
            # 0.
            at_zero = max(1.0 - math.fsum(np.exp(log_masses)) - math.fsum(np.exp(mirrored)), 1e-300)
            log_masses = np.concatenate([mirrored, [math.log(at_zero)], log_masses])
            losses = np.concatenate([-losses, [0.0], losses])
        order = np.argsort(losses, kind="stable")
        losses, starts = np.unique(losses[order], return_index=True)
        return Atoms(np.logaddexp.reduceat(log_masses[order], starts), losses)

    def _law(self) -> tuple[Array, Array]:
        """Return the numbers h >= 1 of hits that are counted, and their weights. All other cases count as 0 hits.

        Weights are rounded down, because A's profile grows with each weight, and both profiles grow if all weights grow
        together.
        """
        numbers, weights = self.hits.numbers, np.array(self.hits.weights)
        kept = (weights > (0.0 if self.to_null else _RARE)) & (numbers > 0.0)
        return numbers[kept], weights[kept] * (1.0 - WEIGHT_ERROR)

    def _gaussian_cells(self) -> tuple[Array, Array]:
        """Return the log of each cell's mass under the first law, and the cell's loss."""
        s, (numbers, weights) = self.noise_multiplier, self._law()
        low, high = -_REACH * s, 2.0 * float(numbers[-1]) + _REACH * s
        cells = int(min(max(_CELLS, _PER_DEVIATION * (high - low) / s), _MOST_CELLS))
        edges = np.linspace(low, high, cells + 1)
        half = 0.5 * float(edges[1] - edges[0])
        x = (edges[:-1] + half)[:, None] + half * _NODES
        scale = np.log(half * _WEIGHTS) - 0.5 * math.log(2.0 * math.pi) - math.log(s)
        base = scale - 0.5 * (x / s) ** 2
        missed = math.log(max(1.0 - math.fsum(weights), 1e-300))
        first, second = np.full_like(x, missed), np.full_like(x, missed if self.to_null else 0.0)
        change = np.zeros_like(x)
        for h, weight in zip(numbers.tolist(), weights.tolist(), strict=True):
            far, near = ((m * x - 0.5 * m * m) / s**2 for m in (2.0 * h, h if self.to_null else 0.0))
            first = np.logaddexp(first, math.log(weight) + far)
            if self.to_null:
                second = np.logaddexp(second, math.log(weight) + near)
            with np.errstate(over="ignore", invalid="ignore"):
                change = change + weight * np.exp(near) * np.expm1(far - near)
        first, second = base + first, base + second
        log_mass, log_other = (np.logaddexp.reduce(each, axis=1) for each in (first, second))
        with np.errstate(over="ignore", invalid="ignore"):
            change = np.sum(np.exp(base - log_other[:, None]) * change, axis=1)
            # If both laws are close, the loss is computed from their difference, which keeps its digits.
            near_one = np.abs(change) < 0.3
            losses = np.where(near_one, np.log1p(np.where(near_one, change, 0.0)), log_mass - log_other)
        return log_mass, losses

    def _laplace_cells(self) -> tuple[Array, Array]:
        numbers, weights = self._law()
        largest = int(numbers[-1])
        each = max(_LAPLACE_CELLS, _CELLS // largest)
        edges = np.linspace(0, largest, largest * each + 1)
        numbers = np.concatenate([[0.0], numbers])
        weights = np.concatenate([[max(1.0 - math.fsum(weights), 0.0)], weights])
        size = 2.0 / self.noise_multiplier
        mass = masses_between(edges, numbers, weights, size)
        other = masses_between(edges, np.zeros(1), np.ones(1), size)
        kept = (mass > 0.0) & (other > 0.0)
        return np.log(mass[kept]), np.log(mass[kept] / other[kept])
