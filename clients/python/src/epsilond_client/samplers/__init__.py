"""Samplers for your own training loops: they draw what their event says (needs NumPy).

    sampler = samplers.for_event(plan.events[0], dataset_size=50_000)
    for indices in sampler:        # one loop is the training; an empty batch has noise like others
        ...                        # clip, sum, add noise, divide by sampler.divisor

PyTorch takes a sampler as ``DataLoader(batch_sampler=...)``; `epsilond_client.adapters.pytorch` makes a loader that can
handle empty batches, and `epsilond_client.adapters.grain` makes a dataset of Grain.

A sampler is a pseudorandom function under a key that the operating system draws. The key, the step and the record alone
decide whether the record takes part in the step. So nothing is stored, a loop can continue where it was, and every
machine draws its own part without communication. Key and batches are as secret as the noise: against somebody who knows
who was in a batch, the amplification that was charged does not hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from epsilond_client.samplers.epochs import Blocks, FixedOrderEpochs, RandomAllocation
from epsilond_client.samplers.poisson import CyclicPoisson, Poisson, TruncatedPoisson
from epsilond_client.samplers.sampler import Sampler, arguments_of

__all__ = [
    "Blocks",
    "CyclicPoisson",
    "FixedOrderEpochs",
    "Poisson",
    "RandomAllocation",
    "Sampler",
    "TruncatedPoisson",
    "for_event",
]

SAMPLERS: dict[str, type[Sampler]] = {
    cls.kind: cls for cls in (Poisson, TruncatedPoisson, RandomAllocation, Blocks, CyclicPoisson, FixedOrderEpochs)
}


def for_event(event: Mapping[str, Any], *, dataset_size: int, **options: Any) -> Sampler:
    """Return the sampler that draws as an event of a calibration or a reservation says.

    Args:
        event: An event with its `sampling` and `count`.
        dataset_size: The public number of records.
        options: The options of `Sampler`.

    Raises:
        ValueError: there is no sampler for the event.

    >>> event = {"sampling": {"kind": "poisson", "sampling_probability": 0.5}, "count": 3}
    >>> for_event(event, dataset_size=10).divisor
    5.0
    """
    sampling = event.get("sampling") or {"kind": "full_batch"}
    kind, arguments = sampling["kind"], arguments_of(sampling)
    if kind not in SAMPLERS:
        raise ValueError(f"there is no sampler for {kind}; there is one for each of {', '.join(SAMPLERS)}")
    if "slots" not in arguments and sampling.get("dataset_size", dataset_size) != dataset_size:
        raise ValueError(f"the event is for {sampling['dataset_size']} records, but dataset_size is {dataset_size}")
    return SAMPLERS[kind](dataset_size, int(event.get("count", 1)), **arguments, **options)
