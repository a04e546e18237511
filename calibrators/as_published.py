"""The paper's own calibration, checked by the engine: it decides whether the printed noise meets the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from accounting.errors import AccountingError
from accounting.events import Event
from accounting.relations import NeighboringRelation
from accounting.targets import Target

#: If the printed noise exceeds the least that meets the target by at most this ratio, it is not called loose.
_SLACK = 1.01


class Verdict(StrEnum):
    """The verdict on the noise that a paper prints, for one spec."""

    SOUND = "sound"
    """It meets the target, and less noise would hardly do."""
    LOOSE = "loose"
    """It meets the target with room to spare; `AsPublished.why` says how much."""
    UNSOUND = "unsound"
    """It misses the target, its conditions fail at this spec, or its proof does."""


@dataclass(frozen=True, slots=True)
class AsPublished:
    """The paper's own calibration at this spec. It is shown for comparison: an unsound one is never executed.

    Attributes:
        verdict: The verdict at this spec; None if it takes the engine and the spec does not ask for it.
        why: The reason in sentences, with the numbers behind it.
        source: The paper, the theorem and the equation.
        formula: The formula, in LaTeX.
        noise_multiplier: The printed noise on the sum, over the contribution bound; None if it has none.
        noise_stddev_on_mean: Its standard deviation on the mean; None if it has none.
    """

    verdict: Verdict | None
    why: str
    source: str
    formula: str
    noise_multiplier: float | None = None
    noise_stddev_on_mean: float | None = None


def judge(
    events: Sequence[Event],
    relation: NeighboringRelation,
    target: Target,
    *,
    printed: float,
    needed: float | None,
    setting: str,
) -> tuple[Verdict, str]:
    """Return whether events with the noise that a paper prints meet the target.

    Args:
        events: Events with the printed noise, under the paper's own sampling.
        relation: The paper's own neighbouring relation.
        target: The target of the spec.
        printed: The printed noise.
        needed: The least noise, in the same unit, that meets the target under the same sampling and relation; None if
            it was not computed.
        setting: The paper's sampling and relation, in words.

    Returns:
        The verdict and the reason, with the cost that the engine certifies.

    Guarantees:
        - unsound_only_when_certain: the certified lower end of the cost is above the target.
        - sound_only_when_certain: the certified upper end meets it. Between the two the verdict is unsound, and the
          reason says that it could not be decided.
    """
    try:
        cost = target.assess(events, relation).value
    except AccountingError as error:
        return Verdict.UNSOUND, f"The engine has no certificate for the printed noise ({setting}): {error.detail}"
    at = f"With the printed noise the engine certifies {cost.lower:.6g} to {cost.upper:.6g} ({setting})"
    if cost.lower > target.limit:
        return Verdict.UNSOUND, f"{at}, above the target of {target.limit:.6g}."
    if cost.upper > target.limit:
        return Verdict.UNSOUND, f"{at}: whether that meets the target of {target.limit:.6g} could not be decided."
    if needed is not None and printed > _SLACK * needed:
        return Verdict.LOOSE, f"{at}: it meets the target with {printed / needed:.4g} times the noise that is needed."
    return Verdict.SOUND, f"{at}, which meets the target of {target.limit:.6g}."
