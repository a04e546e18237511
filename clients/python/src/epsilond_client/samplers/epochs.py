"""Samplers in which each record takes part once in each block or epoch."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
import numpy.typing as npt

from epsilond_client.samplers.sampler import Indices, Sampler, whole


class Blocks(Sampler):
    """Each record takes part in one step of every block, drawn independently for each record and block.

    Args:
        dataset_size: n, the public number of records.
        steps: The number of steps of the whole training.
        num_bins: The number of steps that are cut into blocks. After them, the same division is repeated.
        participations: The number of blocks. Block b, counted from 0, begins at step floor(b num_bins /
            participations).
        options: The options of `Sampler`.

    >>> sampler = Blocks(100, 7, num_bins=7, participations=2)
    >>> sorted(index for step in range(3) for index in sampler.batch(step).tolist()) == list(range(100))
    True
    """

    kind = "blocks"

    def __init__(self, dataset_size: int, steps: int, *, num_bins: int, participations: int, **options: Any) -> None:
        super().__init__(dataset_size, steps, **options)
        bins, blocks = whole("num_bins", num_bins, 1), whole("participations", participations, 1)
        if blocks > bins:
            raise ValueError(f"participations must be at most num_bins, {bins}, got {blocks}")
        self.sampling = {"kind": self.kind, "num_bins": bins, "participations": blocks}
        self._starts = [block * bins // blocks for block in range(blocks + 1)]
        self._block: tuple[int, bytes, npt.NDArray[np.int64]] | None = None

    @property
    def divisor(self) -> float:
        """Return n times the number of blocks, divided by the number of bins."""
        return self.dataset_size * int(self.sampling["participations"]) / int(self.sampling["num_bins"])

    @property
    def steps_per_epoch(self) -> int:
        """Return the number of bins."""
        return int(self.sampling["num_bins"])

    def batch(self, step: int) -> Indices:
        epoch, place = divmod(self._checked(step), self.steps_per_epoch)
        block = bisect_right(self._starts, place) - 1
        first, end = self._starts[block], self._starts[block + 1]
        bins = self._bins(epoch * (len(self._starts) - 1) + block, end - first)
        return self._first + np.flatnonzero(bins == place - first)

    def _bins(self, block: int, count: int) -> npt.NDArray[np.int64]:
        """Return the bin of every record of the shard in a block. The bins of the latest block are cached."""
        if self._block is None or self._block[:2] != (block, self._key):
            self._block = (block, self._key, self._drawn_bins(block, count))
        return self._block[2]


class RandomAllocation(Blocks):
    """Each record takes part in one of every `num_bins` steps, drawn independently for each record and epoch.

    >>> sampler = RandomAllocation(1000, 10, num_bins=5)
    >>> sorted(index for step in range(5) for index in sampler.batch(step).tolist()) == list(range(1000))
    True
    """

    kind = "random_allocation"

    def __init__(
        self, dataset_size: int, steps: int, *, num_bins: int, participations: int = 1, **options: Any
    ) -> None:
        if participations != 1:
            raise ValueError(
                f"this sampler draws one step of every allocation: participations must be 1, got {participations}; "
                "for more, use Blocks"
            )
        super().__init__(dataset_size, steps, num_bins=num_bins, participations=1, **options)


class FixedOrderEpochs(Sampler):
    """Every epoch has the same batches of consecutive records in the same order, with each record once.

    >>> sampler = FixedOrderEpochs(10, 5, steps_per_epoch=4)
    >>> [batch for batch in sampler]
    [[0, 1], [2, 3, 4], [5, 6], [7, 8, 9], [0, 1]]
    """

    kind = "fixed_order_epochs"

    def __init__(self, dataset_size: int, steps: int, *, steps_per_epoch: int, **options: Any) -> None:
        super().__init__(dataset_size, steps, **options)
        self.sampling = {"kind": self.kind, "steps_per_epoch": whole("steps_per_epoch", steps_per_epoch, 1)}

    @property
    def divisor(self) -> float:
        """Return n over the number of batches."""
        return self.dataset_size / int(self.sampling["steps_per_epoch"])

    def batch(self, step: int) -> Indices:
        count = int(self.sampling["steps_per_epoch"])
        place = self._checked(step) % count
        first, last = (self._records * edge // count for edge in (place, place + 1))
        return np.arange(max(first, self._first), min(last, self._last))
