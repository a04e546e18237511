"""This module describes loaders of records: the batches that they can make, and the cost if batches are not sampled.

Without sampling there is no privacy amplification. With a fixed order of records, noise that is correlated over steps
makes up for most of this loss. Its error is compared with the error of fresh noise, both with the same batches and with
Poisson batches, at the same target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from accounting.events import CyclicPoisson, DisjointBatches, FixedOrderEpochs, FullBatch, Poisson, ShuffledEpochs
from accounting.events.samplings import Sampling
from calibrators.correlation import Alternative


class Loader(StrEnum):
    """The way in which a loader makes batches."""

    POISSON = "poisson"
    """Each step draws each record independently, or samples as the algorithm asks."""
    SHUFFLED = "shuffled"
    """Each epoch goes through all records, in a new order."""
    FIXED_ORDER = "fixed_order"
    """Each epoch goes through all records, in the same order."""


#: The sampling schemes that each loader can carry out, the best first. A loader that samples can carry out all schemes.
#: The cost of shuffled epochs does not depend on how the orders are made, so it also holds for a fixed order.
_SCHEMES: Mapping[Loader, tuple[type[Sampling], ...]] = {
    Loader.SHUFFLED: (ShuffledEpochs, DisjointBatches, FullBatch),
    Loader.FIXED_ORDER: (FixedOrderEpochs, ShuffledEpochs, DisjointBatches, FullBatch),
}


def scheme_of(loader: Loader, samplings: Sequence[type[Sampling]]) -> type[Sampling] | None:
    """Return the sampling scheme with which the loader can serve an algorithm; None if there is none.

    >>> scheme_of(Loader.SHUFFLED, (Poisson, ShuffledEpochs)).kind, scheme_of(Loader.SHUFFLED, (CyclicPoisson,))
    ('shuffled_epochs', None)
    """
    if loader is Loader.POISSON:
        return samplings[0]
    return next((each for each in _SCHEMES[loader] if each in samplings), None)


@dataclass(frozen=True, slots=True)
class Batches:
    """One way of making batches, with the least noise for the target.

    Attributes:
        algorithm: The name of an algorithm that takes such batches.
        sampling: The kind of sampling.
        bands: The number of bands of the noise; 1 is fresh noise in every step.
        noise_multiplier: The standard deviation of the normal numbers that make up the noise, divided by the
            contribution bound.
        error: The root mean square error of the sums of gradients that training follows, in contribution bounds.
        ratio: This error divided by the error of fresh noise without sampling.
        is_possible: Whether the loader can make these batches.
    """

    algorithm: str
    sampling: str
    bands: int
    noise_multiplier: float
    error: float
    ratio: float
    is_possible: bool


@dataclass(frozen=True, slots=True)
class LoaderAdvice:
    """A comparison of a loader's batches with Poisson batches, and choices with smaller errors.

    Attributes:
        loader: The loader, which makes the batches.
        detail: The loss of accuracy compared with Poisson batches, in sentences.
        ranked: The ways of making batches, the least error first.
    """

    loader: Loader
    detail: str
    ranked: tuple[Batches, ...]


def advice_of(loader: Loader, alternatives: Sequence[Alternative], correlating: str, independent: str) -> LoaderAdvice:
    """Return the advice that follows from the alternatives under both kinds of sampling.

    Args:
        loader: The loader, which makes the batches.
        alternatives: The alternatives of a calibration in a fixed order. Its neighbouring relation must be one under
            which sampled batches are accounted, too.
        correlating, independent: Names of the algorithms with correlated noise and with fresh noise.
    """
    alone = next(each for each in alternatives if each.bands == 1 and each.sampling == FixedOrderEpochs.kind)

    def batches(each: Alternative) -> Batches:
        is_fixed, is_fresh = each.sampling == FixedOrderEpochs.kind, each.bands == 1
        if is_fresh:
            scheme, name = (ShuffledEpochs.kind if is_fixed else Poisson.kind), independent
        else:
            scheme, name = each.sampling, correlating
        can = loader is Loader.POISSON or (is_fixed and (is_fresh or loader is Loader.FIXED_ORDER))
        return Batches(name, scheme, each.bands, each.noise_multiplier, each.error, each.error / alone.error, can)

    found = [batches(alone)]
    for kind in (FixedOrderEpochs.kind, CyclicPoisson.kind):
        own = [each for each in alternatives if each.sampling == kind and each.is_allowed]
        some = [min(own, key=lambda each: each.error)] if own else []
        if kind == CyclicPoisson.kind:
            some += [each for each in own if each.bands == 1]
        found += [batches(each) for each in dict.fromkeys(some) if each is not alone]
    ranked = tuple(sorted(found, key=lambda each: each.error))
    return LoaderAdvice(loader, " ".join(_sentences(loader, ranked)), ranked)


def _sentences(loader: Loader, ranked: Sequence[Batches]) -> Sequence[str]:
    kinds = {(each.sampling, each.bands > 1): each for each in reversed(ranked)}
    poisson, fixed = kinds.get((Poisson.kind, False)), kinds.get((FixedOrderEpochs.kind, True))
    alone = kinds[ShuffledEpochs.kind, False]
    found = []
    if loader is not Loader.POISSON and poisson is not None:
        found.append(
            f"Your loader cannot draw Poisson batches. Without amplification by sampling, {alone.algorithm} has "
            f"{1.0 / poisson.ratio:.3g} times the error of the gradient sums that it would have with Poisson "
            "batches."
        )
    if loader is not Loader.POISSON and fixed is not None:
        where = (
            "If your loader keeps the same order in all epochs,"
            if loader is Loader.SHUFFLED
            else "In the loader's fixed order,"
        )
        found.append(
            f"{where} {fixed.algorithm} with {fixed.bands} bands has {100.0 * (1.0 - fixed.ratio):.0f} % less error."
        )
    best = ranked[0]
    if loader is Loader.POISSON and poisson is not None and best.error < poisson.error:
        found.append(
            f"{best.algorithm} with {best.bands} bands has {100.0 * (1.0 - best.error / poisson.error):.0f} % "
            f"less error of the gradient sums than {poisson.algorithm} with Poisson batches."
        )
    return found
