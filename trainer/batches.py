r"""The records of one step, and the one thing that leaves them: a sum of bounded contributions.

Why a margin covers the rounding of a float32 sum. Let u = 2^-24 and C the contribution bound.

- What a record contributes is a function of the record and of the point alone: its logits come from products of a fixed
  shape in which no row depends on the others or on its place (`by_pieces`, which measures that). So two neighbouring
  batches have, but for the one record, the same contributions bit by bit; only the sums round differently.
- A lane's sum of m <= `LANE_LIMIT` contributions of norm at most C: each product of a contribution's factors is rounded
  once, and each addition of numbers that hold k of the contributions is wrong by at most u k C (1 + m u). Over any
  order of summation these k add up to m (m + 1) / 2 at most, which is that of one after the other. One record more or
  less changes its own lane; all other lanes' sums stay as they are, bit by bit.
- `LANES_AT_ONCE` lanes' sums are added in float32: fewer roundings than lanes of a sum of at most
  `LANES_AT_ONCE * LANE_LIMIT` contributions. Their sum is added to the total in float64, as is a lane that has more
  rows than the limit.
- Norms are known to 2^-10: up to 4096 squares are added in float32, more in float64.

Two neighbouring sums as computed differ by the contribution, and by the rounding of two lanes and of two times the few
sums above them: 2 (320 + 160 * 321 + 3 * 1280) (1 + 1280 u) u C < 0.0067 C. With 2^-10 for the norm that is less than
2^-7 C, the margin.
In float64 the same numbers are 2^29 times smaller; there the total's rounding counts. Blocks of records are added in
pairs, their sums in pairs, and so on (`_PairwiseSum`): a record is in one sum of each size, and other sums stay as they
are. Sizes double, so with the sums that are left over at the end the rounding is below 2 (2 n + n log2(n)) 2^-53 C for
n records in a step: less than a thousandth of the margin of 1e-5 for n = 10^6, and less than a fifth for n = 2^28, more
rows than a file may have.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from trainer.arrays import Array, as_float64
from trainer.gradients import Batch, Factors, Gradients
from trainer.models import Model
from trainer.records import LANES_AT_ONCE, Block, Indices, Records
from trainer.samplers import Selection

__all__ = ["LANE_LIMIT", "Batch", "SelectedBatch"]

#: A lane with more records in a step than this is summed in float64.
LANE_LIMIT = 320


@dataclass(frozen=True)
class SelectedBatch:
    """The gradients of the selected records at a point, formed block by block when they are summed.

    Attributes:
        records: All of them.
        rows: Positions of those that take part, ascending; a slice is all of them.
        point: shape (d,), the records' dtype.
    """

    model: Model
    records: Records
    rows: Selection
    point: Array

    def bounded_sum(self, factors: Factors) -> Array:
        """Sum of bounded contributions, lane by lane.

        Guarantees:
            - non_finite_gradients_become_zero: a record whose gradient is not finite contributes nothing.
            - one_record_moves_the_sum_by_at_most_the_bound: see above.
        """
        xp, starts = self.records.xp, self.records.lane_starts
        edges = starts if isinstance(self.rows, slice) else np.searchsorted(self.rows, starts)
        sums = _PairwiseSum()
        for first in range(0, len(edges) - 1, LANES_AT_ONCE):
            total = None
            for part in self._lanes(edges[first : first + LANES_AT_ONCE + 1].tolist(), factors):
                widened = as_float64(xp, part)
                total = widened if total is None else _add(total, widened)
            sums.add(total)
        total = sums.total()
        return xp.zeros(self.point.shape, dtype=xp.float64) if total is None else total

    def _lanes(self, edges: list[int], factors: Factors) -> list[Array]:
        """Sums that together are those of the lanes: of most in the run's dtype, of others in float64."""
        lanes = [slice(start, stop) for start, stop in pairwise(edges) if start < stop]
        narrow = [lane for lane in lanes if lane.stop - lane.start <= LANE_LIMIT]
        if not lanes:
            return []
        if len(narrow) == len(lanes) and edges[-1] - edges[0] <= self.model.block_rows:
            gradients, weights = self._contributions(edges[0], edges[-1], factors)
            parts = [slice(lane.start - edges[0], lane.stop - edges[0]) for lane in lanes]
            return [gradients.weighted_sum(weights, parts)]
        wide = [lane for lane in lanes if lane.stop - lane.start > LANE_LIMIT]
        sums = [self._lane(lane, factors, wide=True) for lane in wide]
        together = None
        for lane in narrow:
            lane_sum = self._lane(lane, factors, wide=False)
            together = lane_sum if together is None else _add(together, lane_sum)
        return sums if together is None else [together, *sums]

    def _lane(self, lane: slice, factors: Factors, *, wide: bool) -> Array:
        """The sum of one lane, by blocks."""
        sums = _PairwiseSum()
        step = min(self.model.block_rows, LANE_LIMIT)
        for start in range(lane.start, lane.stop, step):
            stop = min(start + step, lane.stop)
            gradients, weights = self._contributions(start, stop, factors)
            sums.add(gradients.weighted_sum(weights, [slice(0, stop - start)], wide=wide))
        return sums.total()

    def _contributions(self, start: int, stop: int, factors: Factors) -> tuple[Gradients, Array]:
        """Gradients of the selected records from ``start`` to ``stop``, and the factors on them."""
        block = self._block(start, stop)
        gradients = self.model.gradients(self.point, block)
        norms = gradients.norms()
        xp = block.xp
        finite = xp.isfinite(norms)
        if not bool(xp.all(finite)):
            gradients = gradients.keep(finite)
            norms = xp.where(finite, norms, xp.ones_like(norms))
        return gradients, factors(norms) * block.valid

    def _block(self, start: int, stop: int) -> Block:
        rows: slice | Indices = slice(start, stop) if isinstance(self.rows, slice) else self.rows[start:stop]
        return self.records.block(rows, min(self.records.piece, self.model.largest_piece))


class _PairwiseSum:
    """A sum of arrays, added in pairs by their place: an empty place counts, so that no record moves another's pair."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Array | None]] = []

    def add(self, term: Array | None) -> None:
        """The term at the next place, to be written to; None is zero."""
        places = 1
        while self._waiting and self._waiting[-1][0] == places:
            term = _both(self._waiting.pop()[1], term)
            places *= 2
        self._waiting.append((places, term))

    def total(self) -> Array | None:
        """Of all terms; None if all were."""
        total = None
        for _, waiting in reversed(self._waiting):
            total = _both(waiting, total)
        return total


def _both(one: Array | None, other: Array | None) -> Array | None:
    if one is None or other is None:
        return one if other is None else other
    return _add(one, other)


def _add(total: Array, more: Array) -> Array:
    total += more
    return total
