"""This module judges the noise that a paper prints. The accounting engine decides whether it meets the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from accounting.errors import AccountingError
from accounting.events import Event
from accounting.relations import NeighboringRelation
from accounting.targets import Target

#: Printed noise is called loose only if it exceeds the least noise that meets the target by more than this ratio.
_SLACK = 1.01


class Verdict(StrEnum):
    """A verdict on the noise that a paper prints, for one spec."""

    SOUND = "sound"
    """The noise meets the target and is close to the least that does."""
    LOOSE = "loose"
    """The noise meets the target but is larger than needed. `why` says by how much."""
    UNSOUND = "unsound"
    """The noise misses the target, its conditions fail here, or its proof fails."""


@dataclass(frozen=True, slots=True)
class AsPublished:
    """The paper's own calibration at this spec. It is shown for comparison; an unsound calibration is never executed.

    Attributes:
        verdict: The verdict at this spec; None if the verdict needs the accounting engine and the spec does not ask for
            it.
        why: The reason in sentences, with the numbers behind it.
        source: The paper, the theorem and the equation.
        formula: The formula, in LaTeX.
        noise_multiplier: The printed noise on the sum, divided by the contribution bound; None if there is no such
            number.
        noise_stddev_on_mean: The standard deviation of the printed noise on the mean; None if there is no such number.
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
        The verdict and the reason. The reason states the cost that the accounting engine certifies.

    Guarantees:
        - unsound_only_when_certain: the certified lower bound on the cost is above the target, or the reason says that
          the question could not be decided.
        - sound_only_when_certain: the certified upper bound on the cost meets the target.
    """
    try:
        cost = target.assess(events, relation).value
    except AccountingError as error:
        return Verdict.UNSOUND, f"The accounting engine cannot certify the printed noise ({setting}): {error.detail}"
    at = (
        f"With the printed noise, the accounting engine certifies a cost from {cost.lower:.6g} to {cost.upper:.6g} "
        f"({setting})"
    )
    if cost.lower > target.limit:
        return Verdict.UNSOUND, f"{at}. This is above the target of {target.limit:.6g}."
    if cost.upper > target.limit:
        return Verdict.UNSOUND, (
            f"{at}. The target of {target.limit:.6g} lies in this range, so it could not be decided whether the "
            "noise meets it."
        )
    if needed is not None and printed > _SLACK * needed:
        return (
            Verdict.LOOSE,
            f"{at}. It meets the target with {printed / needed:.4g} times the noise that is needed.",
        )
    return Verdict.SOUND, f"{at}. This meets the target of {target.limit:.6g}."
