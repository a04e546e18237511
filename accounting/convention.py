"""The convention behind every privacy number, in words and numbers, for the answer that carries it."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.canonical import Json
from accounting.events import MECHANISMS, Event, Gaussian, Poisson, TruncatedPoisson, WithoutReplacement
from accounting.relations import NeighboringRelation


def convention(relation: NeighboringRelation, events: Sequence[Event]) -> dict[str, Json]:
    """Describe what the numbers of an answer mean.

    Returns:
        ``neighboring_relation``; ``contribution_bound`` C (only the symbol, since its value belongs to the training and
        not to the accounting); ``sensitivity``, which is that of the sum, in units of C, as it was charged (the largest
        one where events differ; with a null record it is 2 in fixed-size batches with Laplace noise); ``norm`` in which
        it is measured; ``noise_multiplier_is``, by mechanism where they differ; ``normalization`` of the released sum;
        ``sampling_probability`` where every event has the same one.

    Guarantees: multiplier_is_the_same_under_every_relation: only ``sensitivity`` changes.

    >>> convention(NeighboringRelation.REPLACE_ONE, [])["sensitivity"]
    2.0
    """
    present = {type(event.mechanism) for event in events}
    noisy = [cls for cls in MECHANISMS.values() if cls in present and cls.norm] or [Gaussian]
    norm, meaning = noisy[0].norm, noisy[0].noise_multiplier_is
    if len({cls.norm for cls in noisy}) > 1:
        norm = ", ".join(f"{cls.norm} for {cls.kind}" for cls in noisy)
    if len(noisy) > 1:
        meaning = "; ".join(f"{cls.kind}: {cls.noise_multiplier_is}" for cls in noisy)
    charged = [event.sampling.charged_sensitivity(relation, event.mechanism) for event in events]
    answer: dict[str, Json] = {
        "neighboring_relation": str(relation),
        "contribution_bound": "C: max_grad_norm when clipping, 1 when normalising",
        "sensitivity": max(charged, default=relation.sensitivity),
        "norm": norm,
        "noise_multiplier_is": meaning,
        "normalization": "the noisy sum is divided by a public constant, never by a realised batch size",
    }
    sampled = [e.sampling for e in events if isinstance(e.sampling, Poisson | TruncatedPoisson | WithoutReplacement)]
    probabilities = {sampling.sampling_probability for sampling in sampled}
    if len(probabilities) == 1 and len(sampled) == len(events):
        answer["sampling_probability"] = probabilities.pop()
    return answer
