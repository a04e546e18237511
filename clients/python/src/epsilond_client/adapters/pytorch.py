"""PyTorch: a `DataLoader` whose batches are those of a sampler of `epsilond_client.samplers`, empty ones included.

    sampler = samplers.for_event(plan.events[0], dataset_size=len(dataset))
    loader = pytorch.data_loader(dataset, sampler)
    with client.guard(budget, noise_multiplier=noise, sampler=sampler) as guard:
        for batch in guard.steps(loader):  # all steps of the training in one loop
            ...

Options by which the loader would draw its own batches are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from epsilond_client.samplers import Sampler

#: The options of a loader with which it would draw batches in another way.
_REFUSED = {
    "batch_size": "the sampler decides how large a batch is",
    "shuffle": "shuffled batches are not what is charged",
    "batch_sampler": "the sampler is the batch_sampler",
    "drop_last": "every step counts and has its noise, so none may be left out",
}


def data_loader(
    dataset: Any, sampler: Sampler, *, collate_fn: Callable[[list[Any]], Any] | None = None, **options: Any
) -> Any:
    """Return a `torch.utils.data.DataLoader` over the sampler's batches.

    Args:
        dataset: A dataset with as many records as the sampler draws from.
        sampler: Draws the batches.
        collate_fn: Makes a batch from a list of records; PyTorch's own if it is left out. An empty batch is made from
            its batch of one record: the tensors keep their shape except for the first axis, which gets length 0.
        options: Any other options of the loader. With `num_workers`, batches are drawn ahead, so pass the number of
            taken steps to `state_dict`.

    Raises:
        ValueError: an option would draw batches in another way, or the dataset has another number of records.
    """
    for name in options:
        if name in _REFUSED:
            raise ValueError(f"leave {name} out: {_REFUSED[name]}")
    if len(dataset) != sampler.records:
        raise ValueError(f"the sampler draws from {sampler.records} records, but the dataset has {len(dataset)}")
    data: Any = import_module("torch.utils.data")
    return data.DataLoader(
        dataset, batch_sampler=sampler, collate_fn=_Collate(dataset, collate_fn or data.default_collate), **options
    )


class _Collate:
    """Makes batches, even without records if none was drawn."""

    def __init__(self, dataset: Any, collate_fn: Callable[[list[Any]], Any]) -> None:
        self._collate_fn = collate_fn
        self._empty = _emptied(collate_fn([dataset[0]])) if len(dataset) else []

    def __call__(self, records: list[Any]) -> Any:
        return self._collate_fn(records) if records else self._empty


def _emptied(batch: Any) -> Any:
    """Return a batch of one record without that record: its arrays with no rows, its lists of values empty."""
    if isinstance(batch, Mapping):
        return {name: _emptied(part) for name, part in batch.items()}
    if hasattr(batch, "_fields"):
        return type(batch)(*map(_emptied, batch))
    if isinstance(batch, list | tuple):
        return type(batch)(_emptied(part) for part in batch if hasattr(part, "shape") or _has_parts(part))
    return batch[:0].clone() if hasattr(batch, "clone") else batch[:0]


def _has_parts(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple)
