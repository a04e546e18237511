"""The convention behind every privacy number, in words and numbers, for the answer that carries it."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.canonical import Json
from accounting.events import Event, Laplace, Poisson, WithoutReplacement
from accounting.relations import NeighboringRelation
from accounting.sampling.schedules import charged_sensitivity

_GAUSSIAN = "standard deviation of the noise on the sum of contributions, over the contribution bound, in l2"
_LAPLACE = "scale b of the noise on the sum of contributions, over the contribution bound, in l1"


def convention(relation: NeighboringRelation, events: Sequence[Event]) -> dict[str, Json]:
    """What the numbers of an answer mean.

    Returns:
        ``neighboring_relation``; ``contribution_bound`` C (its symbol: the value belongs to the training, not to the
        accounting); ``sensitivity`` of the sum in units of C that was charged, the largest one where events differ
        (fixed-size batches are charged 2 under replace_special too); ``norm`` it is measured in;
        ``noise_multiplier_is``; ``normalization`` of the released sum; ``sampling_probability`` where every event has
        the same one.

    Guarantees: multiplier_is_the_same_under_every_relation: only ``sensitivity`` changes.

    >>> convention(NeighboringRelation.REPLACE_ONE, [])["sensitivity"]
    2.0
    """
    laplace = [isinstance(event.mechanism, Laplace) for event in events]
    kinds = {True: ("l1", _LAPLACE), False: ("l2", _GAUSSIAN)}
    norm, meaning = kinds[bool(laplace) and all(laplace)]
    if any(laplace) and not all(laplace):
        norm, meaning = "l2 for gaussian, l1 for laplace", f"gaussian: {_GAUSSIAN}; laplace: {_LAPLACE}"
    answer: dict[str, Json] = {
        "neighboring_relation": str(relation),
        "contribution_bound": "C: max_grad_norm when clipping, 1 when normalising",
        "sensitivity": max((charged_sensitivity(e.sampling, relation) for e in events), default=relation.sensitivity),
        "norm": norm,
        "noise_multiplier_is": meaning,
        "normalization": "the noisy sum is divided by a public constant, never by a realised batch size",
    }
    sampled = [e.sampling for e in events if isinstance(e.sampling, Poisson | WithoutReplacement)]
    probabilities = {sampling.sampling_probability for sampling in sampled}
    if len(probabilities) == 1 and len(sampled) == len(events):
        answer["sampling_probability"] = probabilities.pop()
    return answer
