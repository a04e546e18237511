"""Grain: a `MapDataset` whose elements are the batches of a sampler of `epsilond_client.samplers`, empty ones included.

    sampler = samplers.for_event(plan.events[0], dataset_size=len(records))
    dataset = grain.batches(records, sampler)
    with client.guard(budget, noise_multiplier=noise, sampler=sampler) as guard:
        for batch in guard.steps(dataset.map(to_device).to_iter_dataset()):  # all steps of the training in one loop
            ...

Element i is the batch of the sampler's i-th remaining step; the sampler's key determines it. So Grain may read ahead,
and its iterators can go on from their own `get_state` with a sampler that has the same `state_dict`. Transformations
such as `map` and prefetching, which keep the batch of every step, are allowed. A guard refuses transformations that
reorder, repeat or drop batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from epsilond_client.samplers import Sampler


class Batches:
    """A data source of Grain: batches in place of records.

    Args:
        records: Indexable records with a length: arrays, a data source of Grain, or a `MapDataset` of records.
        sampler: Draws the batches.
        collate: Makes a batch from a list of records; see `batches`.

    Attributes:
        sampler: Draws the batches.
    """

    def __init__(self, records: Any, sampler: Sampler, collate: Callable[[list[Any]], Any] | None = None) -> None:
        if len(records) != sampler.records:
            raise ValueError(f"the sampler draws from {sampler.records} records, but there are {len(records)}")
        self.sampler = sampler
        self._records, self._collate = records, collate or stacked
        self._first, self._steps = sampler.steps - sampler.steps_left, sampler.steps_left
        self._is_handed_out = False

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, index: int) -> Any:
        drawn = self.sampler.batch(self._first + index)
        if drawn.size:
            return self._collate([self._records[place] for place in drawn.tolist()])
        return _emptied(self._collate([self._records[0]])) if len(self._records) else self._collate([])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.sampler!r})"

    def hand_out(self) -> None:
        """Note that a guard takes these steps.

        Raises:
            ValueError: a guard has taken these steps before; the same batches again would not be a fresh sample.
        """
        if self._is_handed_out:
            raise ValueError(
                "the steps of this dataset were handed out before: one loop over it is the whole training, and not an "
                "epoch. Make another sampler for further steps; to go on, load_state_dict, and make the dataset anew"
            )
        self._is_handed_out = True


def batches(records: Any, sampler: Sampler, *, collate: Callable[[list[Any]], Any] | None = None) -> Any:
    """Return a `grain.MapDataset` of the sampler's batches.

    Args:
        records: An object with `__len__` and `__getitem__`: arrays, a data source of Grain, or a `MapDataset` of
            records. There must be as many as the sampler draws from.
        sampler: Draws the batches.
        collate: Makes a batch from a list of records; `stacked` if it is left out. An empty batch is made from its
            batch of one record: the arrays keep their shape except for the first axis, which gets length 0.

    Raises:
        ValueError: the number of records differs from the sampler's.
    """
    library: Any = import_module("grain")
    return library.MapDataset.source(Batches(records, sampler, collate))


def stacked(records: list[Any]) -> Any:
    """Stack records: each number or array of a record becomes a row of the array at the same place of the structure.

    >>> stacked([{"x": np.ones(2), "y": 0}, {"x": np.zeros(2), "y": 1}])["y"].tolist()
    [0, 1]
    """
    first = records[0] if records else ()
    if isinstance(first, Mapping):
        return {name: stacked([record[name] for record in records]) for name in first}
    if isinstance(first, tuple | list):
        parts = [stacked([record[place] for record in records]) for place in range(len(first))]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return np.stack([np.asarray(record) for record in records])


def _emptied(batch: Any) -> Any:
    """Return a batch of one record without that record."""
    if isinstance(batch, Mapping):
        return {name: _emptied(part) for name, part in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(_emptied, batch))
    if isinstance(batch, tuple | list):
        return type(batch)(_emptied(part) for part in batch if hasattr(part, "shape") or _has_parts(part))
    return batch[:0].copy() if isinstance(batch, np.ndarray) else batch[:0]


def _has_parts(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple)
