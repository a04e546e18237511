"""Checks whether a loop's batches are drawn as they are charged, and warns if this is unknown."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from typing import Any

#: The dataset classes of Grain that keep each element at its index; others reorder, repeat, drop or cut elements.
_KEEP_THEIR_PLACES = (
    "SourceMapDataset",
    "MapMapDataset",
    "RandomMapMapDataset",
    "MapWithIndexMapDataset",
    "_WithSeedMapDataset",
    "WithOptionsMapDataset",
    "PrefetchIterDataset",
    "ThreadPrefetchIterDataset",
    "MapIterDataset",
    "RandomMapIterDataset",
    "WithOptionsIterDataset",
)
#: The schemes that cost less because batches are drawn at random and kept secret, or because a record's steps are far
#: apart. For any other schedule that is fixed in advance every order costs the same, so its loader is not examined.
_LOOKED_AT = (
    "poisson",
    "truncated_poisson",
    "random_allocation",
    "blocks",
    "without_replacement",
    "with_replacement",
    "cyclic_poisson",
    "fixed_order_epochs",
)


def check_batches(sampling: Mapping[str, Any] | None, batches: Any, *, stacklevel: int) -> None:
    """Compare the way in which batches are drawn with the charged one.

    Args:
        sampling: The sampling of the reserved event; None stands for full batches.
        batches: A sampler of `epsilond_client.samplers`, a loader that has one, or anything else with batches.
        stacklevel: The stack level of the warning.

    Raises:
        ValueError: the batches are drawn in another way than is charged.

    Warns:
        RuntimeWarning: it is unknown how the batches are drawn.
    """
    if sampling is None or sampling.get("kind") not in _LOOKED_AT:
        return
    drawn_by = getattr(batches, "batch_sampler", batches)
    of_grain = _batches_of_grain(batches)
    declared = declared_by(drawn_by if of_grain is None else of_grain.sampler)
    if declared is not None:
        if dict(declared) != dict(sampling):
            raise ValueError(f"the batches are drawn as {dict(declared)}, but the reservation is for {dict(sampling)}")
        if of_grain is not None:
            of_grain.hand_out()
    elif sampling["kind"] == "fixed_order_epochs" and _keeps_its_order(batches, sampling["steps_per_epoch"]):
        return
    elif _cuts_an_order(batches) or _cuts_an_order_in_grain(batches):
        raise ValueError(
            f"the batches are charged as {sampling['kind']}, but this loader cuts them from an order of the records, "
            f"as with shuffle=True: give it a batch_sampler of epsilond_client.samplers{_or_else(sampling, batches)}"
        )
    else:
        warnings.warn(
            f"the batches are charged as {sampling['kind']}, and nothing here can tell whether they are drawn so: take "
            "a sampler of epsilond_client.samplers, or a loader whose batch_sampler it is",
            RuntimeWarning,
            stacklevel=stacklevel + 1,
        )


def declared_by(sampler: Any) -> Mapping[str, Any] | None:
    """Return how a known sampler draws its batches, in the form of an event; None for any other object."""
    if _is_a(sampler, "epsilond_client.samplers", "Sampler") or _is_a(
        sampler, "epsilond_client.adapters.jax_privacy", "Batches"
    ):
        found: Mapping[str, Any] = sampler.sampling
        return found
    if _is_a(sampler, "opacus.utils.uniform_sampler", "UniformWithReplacementSampler"):
        return {"kind": "poisson", "sampling_probability": float(sampler.sample_rate)}
    return None


def _cuts_an_order(batches: Any) -> bool:
    """Return whether this is a PyTorch loader with a batch size, or without batches."""
    if not _is_a(batches, "torch.utils.data", "DataLoader"):
        return False
    return batches.batch_sampler is None or _is_a(batches.batch_sampler, "torch.utils.data", "BatchSampler")


def _batches_of_grain(batches: Any) -> Any:
    """Return the source of a Grain dataset, if the source is one of `epsilond_client.adapters.grain`.

    Raises:
        ValueError: the dataset does not leave every step its own batch.
    """
    chain = _chain_of_grain(batches)
    source = getattr(chain[-1], "_source", None) if chain else None
    if not _is_a(source, "epsilond_client.adapters.grain", "Batches"):
        return None
    for dataset in chain:
        if type(dataset).__name__ not in _KEEP_THEIR_PLACES:
            raise ValueError(
                f"{type(dataset).__name__} of Grain does not leave every step the batch that was drawn for it: map and "
                "prefetch a dataset of batches, and do nothing else with it"
            )
    return source


def _chain_of_grain(batches: Any) -> list[Any]:
    """Return a Grain dataset and its chain of sources, as far as each has only one source."""
    chain: list[Any] = []
    if _is_a(batches, "grain", "MapDataset") or _is_a(batches, "grain", "IterDataset"):
        chain.append(batches)
        while len(parents := list(getattr(chain[-1], "parents", ()))) == 1:
            chain += parents
    return chain


def _cuts_an_order_in_grain(batches: Any) -> bool:
    """Return whether this is a Grain loader, or a dataset that Grain shuffles or cuts into batches."""
    names = [type(dataset).__name__ for dataset in _chain_of_grain(batches)]
    return _is_a(batches, "grain", "DataLoader") or any("Shuffle" in name or "Batch" in name for name in names)


def _keeps_its_order(batches: Any, steps_per_epoch: int) -> bool:
    """Return whether this is a PyTorch loader that hands out the records in order, in this many batches.

    A loader with a batch_sampler also has a sequential sampler, which draws nothing.
    """
    if not _cuts_an_order(batches) or _length(batches) != str(steps_per_epoch):
        return False
    data, cuts = sys.modules["torch.utils.data"], batches.batch_sampler
    drawn_by = batches.sampler if cuts is None else cuts.sampler
    return type(drawn_by) is data.SequentialSampler and (cuts is None or type(cuts) is data.BatchSampler)


def _is_a(thing: Any, module: str, name: str) -> bool:
    """Return whether an object is of this class. It can only be if the library of the class is loaded."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(thing, getattr(loaded, name))


def _or_else(sampling: Mapping[str, Any], batches: Any) -> str:
    """Return advice on an alternative. There is none for correlated noise, which has no proof for orders that are drawn
    anew."""
    if sampling["kind"] in ("cyclic_poisson", "fixed_order_epochs"):
        return ""
    return f', or reserve sampling={{"kind": "shuffled_epochs", "steps_per_epoch": {_length(batches)}}}'


def _length(loader: Any) -> str:
    try:
        return str(len(loader))
    except TypeError:
        return "..."
