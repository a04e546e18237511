"""Methods that derive a bound from guesses: the rules that each method may use, and the bound from their counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from accounting.accountant import epsilon_for_delta
from accounting.events import Event, Gaussian
from accounting.numbers import MAX_NOISE_MULTIPLIER
from accounting.relations import NeighboringRelation
from trainer.audit.bounds import epsilon_from_guesses, epsilon_from_rates, mu_from_rates
from trainer.audit.one_run import epsilon_from_one_run
from trainer.audit.trials import Counts, Rule, Trials, ranks, thresholds


@dataclass(frozen=True, slots=True)
class Method:
    """A method that derives a lower bound of epsilon from guesses.

    Attributes:
        name: The name of the method in a request.
        independent: Whether it needs trials that are independent of each other.
        curve: Whether it may compare at several deltas; otherwise it compares at the delta in question.
        rules: A function that returns the rules to choose from, with their counts on given trials.
        epsilon: A function that computes a lower bound of epsilon from counts, delta and confidence.
        merit: The number by which rules are compared; it grows with ``epsilon``, and may be quicker to compute.
    """

    name: str
    independent: bool
    curve: bool
    rules: Callable[[Trials], Iterator[tuple[Rule, Counts]]]
    epsilon: Callable[[Counts, float, float], float]
    merit: Callable[[Counts, float, float], float]


def _guesses(counts: Counts, delta: float, confidence: float) -> float:
    return epsilon_from_guesses(counts.trials, counts.guesses, counts.correct, delta, confidence, counts.kinds)


def _rates(counts: Counts, delta: float, confidence: float) -> float:
    others = counts.trials - counts.members
    return epsilon_from_rates(counts.hits, counts.members, counts.alarms, others, delta, confidence)


def _one_run(counts: Counts, delta: float, confidence: float) -> float:
    return epsilon_from_one_run(counts.trials, counts.guesses, counts.correct, delta, confidence)


def _gaussian(counts: Counts, delta: float, confidence: float) -> float:
    """Return the epsilon, at delta, of the Gaussian with the largest mu that is ruled out."""
    mu = _mu(counts, delta, confidence)
    if mu < 1.0 / MAX_NOISE_MULTIPLIER:
        return 0.0
    stated = [Event(Gaussian(min(1.0 / mu, MAX_NOISE_MULTIPLIER)))]
    return epsilon_for_delta(stated, NeighboringRelation.ADD_OR_REMOVE_ONE, delta).value.lower


def _mu(counts: Counts, _: float, confidence: float) -> float:
    others = counts.trials - counts.members
    return mu_from_rates(counts.hits, counts.members, counts.alarms, others, confidence)


def _both_kinds(trials: Trials) -> Iterator[tuple[Rule, Counts]]:
    return thresholds(trials, both=True)


def _members_alone(trials: Trials) -> Iterator[tuple[Rule, Counts]]:
    return thresholds(trials, both=False)


GUESSES = Method("guesses", True, True, _both_kinds, _guesses, _guesses)
RATES = Method("clopper_pearson", True, True, _members_alone, _rates, _rates)
ONE_RUN = Method("one_run", False, False, ranks, _one_run, _one_run)
GAUSSIAN_DP = Method("gaussian_dp", True, False, _members_alone, _gaussian, _mu)
METHODS: dict[str, Method] = {method.name: method for method in (GUESSES, RATES, ONE_RUN, GAUSSIAN_DP)}


def best_rule(
    method: Method, pilot: Trials, goals: Sequence[tuple[float, float]], confidence: float
) -> tuple[Rule, float]:
    """Return the rule and the delta that prove the most on trials that are not counted.

    Args:
        goals: Pairs of a delta and the epsilon that the bound should exceed there.

    Returns:
        The rule and the delta with the largest excess on the pilot, among those that prove something at all.
    """

    def merit(choice: tuple[Rule, Counts, tuple[float, float]]) -> tuple[bool, float]:
        _, counts, (delta, claimed) = choice
        bound = method.merit(counts, delta, confidence)
        return bound > 0.0, bound - claimed

    choices = ((rule, counts, goal) for rule, counts in method.rules(pilot) for goal in goals)
    rule, _, (delta, _) = max(choices, key=merit)
    return rule, delta
