"""Noise for tuning: the factor on a run's noise at which the whole selection meets a target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from accounting.composition.intersection import EVALUATORS, QUICK_EVALUATORS
from accounting.described import Described, Real
from accounting.errors import Unsupported
from accounting.events import Event, GaussianMixture, Mechanism, check_events
from accounting.intervals import Answer
from accounting.numbers import MAX_NOISE_MULTIPLIER, MIN_NOISE_MULTIPLIER
from accounting.relations import NeighboringRelation
from accounting.solve.decreasing import smallest_that_meets
from accounting.solve.solution import Range, Solution
from accounting.tuning.cost import epsilon_of_runs
from accounting.tuning.selection import Selection
from accounting.tuning.trials import FixedTrials, Trials

_TOLERANCE = 8e-6


@dataclass(frozen=True, slots=True)
class SelectionTarget(Described):
    """(epsilon, delta)-differential privacy of releasing the best of K runs.

    Attributes:
        trials: The law of K; a fixed K composes.
    """

    kind: ClassVar[str] = "approximate_dp"
    additive: ClassVar[bool] = False
    epsilon: Annotated[float, Real(0.0, 1e9, open_lower=True)]
    delta: Annotated[float, Real(0.0, 0.5)]
    trials: Trials

    @property
    def limit(self) -> float:
        return self.epsilon

    def assess(self, events: Sequence[Event], relation: NeighboringRelation, *, quick: bool = False) -> Answer:
        """Bound epsilon from above by the profile alone, which exceeds the smallest bound by at most a few per cent."""
        evaluators = QUICK_EVALUATORS if quick else EVALUATORS
        if isinstance(self.trials, FixedTrials):
            return epsilon_of_runs(events, relation, self.trials.trials, self.delta, evaluators)
        if quick:
            return Selection(
                check_events(events), relation, self.trials, evaluators, evaluators, by_orders=False
            ).epsilon_by_profile(self.delta)
        return Selection(check_events(events), relation, self.trials).epsilon_by_profile(self.delta)

    def level(self, figure: float) -> float:
        return figure

    def say(self, figure: float) -> str:
        return f"epsilon {figure:.6g} at delta {self.delta:g} for the selection"


def solve_noise_factor(events: Sequence[Event], relation: NeighboringRelation, target: SelectionTarget) -> Solution:
    """Return the smallest factor on every noise multiplier of a run at which the selection meets the target.

    Args:
        events: The events of one run; the proportions of their noise are kept. Stated guarantees stay as they are.
        relation: The neighbouring relation.
        target: The target of the whole selection.

    Returns:
        The factor and the certified epsilon of the selection with it; `with_noise_factor` makes the events.

    Guarantees:
        never_misses: achieved.value.upper <= target.epsilon, evaluated at the returned factor itself.

    Raises:
        Unsupported: If no event has a noise multiplier.
        Unreachable: If no factor meets the target, or every one does.

    >>> from accounting.events import Gaussian
    >>> from accounting.tuning.trials import TruncatedNegativeBinomial
    >>> target = SelectionTarget(2.0, 1e-5, TruncatedNegativeBinomial(0.0, 0.01))
    >>> found = solve_noise_factor([Event(Gaussian(1.0))], NeighboringRelation.ADD_OR_REMOVE_ONE, target)
    >>> found.achieved.value.upper <= 2.0, 2.0 < found.value < 4.0
    (True, True)
    """
    events, relation = check_events(events), NeighboringRelation(relation)
    noises = [noise for event in events for noise in _noise_multipliers(event.mechanism)]
    if not noises:
        raise Unsupported(
            "no event of the run has a noise multiplier to solve for: stated guarantees stay as they are",
            pointer=("events",),
        )
    least, most = MIN_NOISE_MULTIPLIER / min(noises), MAX_NOISE_MULTIPLIER / max(noises)
    words = Range(
        least_private=f"noise factor {least:.6g}",
        most_private=f"noise factor {most:.6g}",
        everything=f"every noise factor from {least:.6g} on",
        advice="allow a larger epsilon or delta, fewer expected trials, or a law with a smaller eta",
    )

    def assess(factor: float) -> Answer:
        return target.assess(with_noise_factor(events, factor), relation)

    def quick(factor: float) -> Answer:
        return target.assess(with_noise_factor(events, factor), relation, quick=True)

    inside = (least * (1.0 + 1e-12), most * (1.0 - 1e-12))
    return smallest_that_meets(assess, quick, target, inside, words, _TOLERANCE)


def with_noise_factor(events: Sequence[Event], factor: float) -> tuple[Event, ...]:
    """Return the events with every noise multiplier times ``factor``, those of a mixture's branches too.

    >>> from accounting.events import Laplace
    >>> with_noise_factor([Event(Laplace(2.0))], 1.5)[0].mechanism.noise_multiplier
    3.0
    """
    return tuple(replace(event, mechanism=_with_noise_factor(event.mechanism, factor)) for event in events)


def _noise_multipliers(mechanism: Mechanism) -> tuple[float, ...]:
    if isinstance(mechanism, GaussianMixture):
        return mechanism.noise_multipliers
    noise = getattr(mechanism, "noise_multiplier", None)
    return (noise,) if isinstance(noise, float) and math.isfinite(noise) else ()


def _with_noise_factor(mechanism: Mechanism, factor: float) -> Mechanism:
    noises = tuple(noise * factor for noise in _noise_multipliers(mechanism))
    if not noises:
        return mechanism
    if isinstance(mechanism, GaussianMixture):
        return replace(mechanism, noise_multipliers=noises)
    return replace(mechanism, noise_multiplier=noises[0])  # type: ignore[call-arg]  # it has one
