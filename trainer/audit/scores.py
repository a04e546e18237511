"""Scores of canaries: numbers that are larger for those that took part.

An audit is sound with any score; these scores make it powerful. An attacker sees every point of the run. In a canary's
own direction, the steps show the numbers y_t = b_t + sigma Z_t, where b_t is 1 if the canary was drawn (in units of the
contribution bound) and 0 otherwise; under replace_one it is -1 for the record in its place. If noise is correlated,
these are the noisy sums with C applied, Y = C (b + C^-1 sigma Z), so that Z is independent again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import scipy

from accounting.events import (
    Blocks,
    CyclicPoisson,
    DisjointBatches,
    FullBatch,
    Gaussian,
    Poisson,
    RandomAllocation,
    Sampling,
    ShuffledEpochs,
    TruncatedPoisson,
    WithoutReplacement,
)
from accounting.relations import NeighboringRelation
from calibrators.plan import CorrelatedSteps, Phase, Plan

Floats = npt.NDArray[np.float64]

#: The names of the scores, and the claim that each tests best.
LIKELIHOOD_RATIO = "likelihood_ratio"
TOTAL = "total"
FIXED_BATCHES = "fixed_batches"
FRESH_NOISE = "fresh_noise"
RELEASED_MODEL = "released_model"


@dataclass(frozen=True, slots=True)
class Observation:
    """An attacker's observation of one run, along the directions of its m canaries.

    Attributes:
        displacement: The distance of the released model from zero, against the direction of the gradients: shape (m,).
        noisy_sums: The noisy sum of each step, in units of the contribution bound: shape (steps, m); None if the
            algorithm's points do not determine it.
        turns: Whether it was the turn of the canary's group, shape (steps, m); None if groups do not take turns. No run
            reveals it, but a claim also holds for attackers who know it, since the group of a record does not depend on
            whether it takes part.
    """

    displacement: Floats
    noisy_sums: Floats | None
    turns: npt.NDArray[np.bool_] | None = None


def scores(plan: Plan, seen: Observation) -> dict[str, Floats]:
    """Return every score of every canary, each of shape (m,).

    - ``likelihood_ratio``: ln of the densities of the y_t with and without the canary, under the plan's own sampling
      (of truncated batches, before they are cut); the most powerful test of the claim (Neyman & Pearson).
    - ``total``: sum of y_t / sigma_t^2, which detects canaries that are drawn too often; with full batches it would
      order canaries as the likelihood ratio does.
    - ``fixed_batches``: the likelihood ratio of a canary in the same batch of every epoch, which detects a sampler that
      cuts batches once although independent draws were charged.
    - ``fresh_noise``: the likelihood ratio as if correlated noise were independent, which detects a run whose noise is
      independent.
    - ``released_model``: the displacement, for attackers who see nothing else.
    """
    found = {RELEASED_MODEL: seen.displacement}
    if seen.noisy_sums is None:
        return found
    if seen.turns is not None:
        return found | _with_turns(plan, seen.noisy_sums, seen.turns)
    phases = [phase for phase in plan.phases if isinstance(phase, Phase)]
    starts = np.cumsum([0, *(phase.steps for phase in phases)])
    parts = [
        (phase, seen.noisy_sums[start : start + phase.steps]) for phase, start in zip(phases, starts, strict=False)
    ]
    other = -1.0 if plan.neighboring_relation is NeighboringRelation.REPLACE_ONE else 0.0

    def summed(part: Callable[[Phase, Floats, float], Floats]) -> Floats:
        zeros = np.zeros(seen.displacement.shape)
        return sum((part(phase, sums, 1.0) - part(phase, sums, other) for phase, sums in parts), zeros)

    found[LIKELIHOOD_RATIO] = summed(_log_likelihood)
    if not all(isinstance(phase.event.sampling, FullBatch) for phase in phases):
        found[TOTAL] = summed(_total)
    if any(_epoch(phase.event.sampling) > 1 for phase in phases):
        found[FIXED_BATCHES] = summed(_fixed_batches)
    return found


def _log_likelihood(phase: Phase, sums: Floats, level: float) -> Floats:
    """Return ln of the density of the column, if the canary contributes ``level``, over that of noise alone."""
    if level == 0.0:
        return np.zeros(sums.shape[1])
    terms = _terms(phase, sums, level)
    sampling = phase.event.sampling
    if isinstance(sampling, Poisson | TruncatedPoisson | WithoutReplacement):
        rate = sampling.sampling_probability
        with np.errstate(divide="ignore"):  # probability 1 leaves nothing out
            return _along_steps(np.logaddexp(np.log1p(-rate), np.log(rate) + terms))
    if isinstance(sampling, FullBatch):
        return _along_steps(terms)
    return _along_steps(
        np.stack([_one_of(terms[start:end], end - start) for start, end in _epochs(sampling, len(terms))])
    )


def _with_turns(plan: Plan, sums: Floats, turns: npt.NDArray[np.bool_]) -> dict[str, Floats]:
    """Return the scores of correlated steps: a canary's score counts only the steps that are its group's turn.

    At such a step the canary moves the rows of y from there on by b c. Given the turns, blocks of rows are disjoint, so
    their ratios of densities multiply: (1 - q) + q exp((<c, y_block> - |c|^2 / 2) / sigma^2).
    """
    other = -1.0 if plan.neighboring_relation is NeighboringRelation.REPLACE_ONE else 0.0
    found = {name: np.zeros(sums.shape[1]) for name in (LIKELIHOOD_RATIO, TOTAL, FRESH_NOISE)}
    first = 0
    for phase in plan.phases:
        assert isinstance(phase, CorrelatedSteps), "only their groups take turns"
        noise, sampling = phase.noise_multiplier, phase.event.sampling
        rate = sampling.sampling_probability if isinstance(sampling, CyclicPoisson) else 1.0
        own, has_turn = sums[first : first + phase.steps], turns[first : first + phase.steps]
        matched, norms = _matched(own, phase.coefficients)
        for level in (1.0, other):
            for name, products, squares in (
                (LIKELIHOOD_RATIO, matched, norms),
                (FRESH_NOISE, own, np.ones_like(norms)),
            ):
                terms = (2.0 * level * products - level * level * squares) / (2.0 * noise**2)
                with np.errstate(divide="ignore"):  # probability 1 leaves nothing out
                    ratios = np.logaddexp(np.log1p(-rate), np.log(rate) + terms) if level else np.zeros_like(terms)
                found[name] += level * _along_steps(np.where(has_turn, ratios, 0.0))
        found[TOTAL] += (1.0 - other) * _along_steps(matched) / noise**2
        first += phase.steps
    return found


def _matched(sums: Floats, coefficients: Sequence[float]) -> tuple[Floats, Floats]:
    """Return <c, y_block> for the block of rows from each step on, with y = C sums, and |c|^2 of the part of c inside
    the run.

    Returns:
        The two arrays, of shapes (steps, m) and (steps, 1).
    """
    steps = len(sums)
    whitened, matched, norms = np.zeros_like(sums), np.zeros_like(sums), np.zeros((steps, 1))
    lags = list(enumerate(coefficients[:steps]))
    for lag, coefficient in lags:
        whitened[lag:] += coefficient * sums[: steps - lag]
    for lag, coefficient in lags:
        matched[: steps - lag] += coefficient * whitened[lag:]
        norms[: steps - lag] += coefficient**2
    return matched, norms


def _epochs(sampling: Sampling, steps: int) -> list[tuple[int, int]]:
    """Return the beginnings and ends of the epochs, in each of which a record takes part in one step. The last may end
    after the steps."""
    if isinstance(sampling, DisjointBatches):
        return [(0, steps)]
    if isinstance(sampling, Blocks):
        bins, blocks = sampling.num_bins, sampling.participations
        starts = [number // blocks * bins + number % blocks * bins // blocks for number in range(steps + blocks + 1)]
        return [(start, end) for start, end in pairwise(starts) if start < steps]
    length = _epoch(sampling)
    return [(start, start + length) for start in range(0, steps, length)]


def _total(phase: Phase, sums: Floats, level: float) -> Floats:
    return _along_steps(level * sums) / _noise(phase) ** 2


def _fixed_batches(phase: Phase, sums: Floats, level: float) -> Floats:
    """Return what `_log_likelihood` does, for a record that is in the same batch of every epoch."""
    if level == 0.0:
        return np.zeros(sums.shape[1])
    terms = _terms(phase, sums, level)
    epoch = min(_epoch(phase.event.sampling), len(terms))
    return _mean_of_exponentials(np.stack([_along_steps(terms[batch::epoch]) for batch in range(epoch)]))


def _terms(phase: Phase, sums: Floats, level: float) -> Floats:
    return (2.0 * level * sums - level * level) / (2.0 * _noise(phase) ** 2)


def _noise(phase: Phase) -> float:
    assert isinstance(phase.event.mechanism, Gaussian)
    return phase.event.mechanism.noise_multiplier


def _epoch(sampling: Sampling) -> int:
    """Return the number of steps in which every record is drawn once on average."""
    match sampling:
        case Poisson() | TruncatedPoisson() | WithoutReplacement():
            return max(1, round(1.0 / sampling.sampling_probability))
        case RandomAllocation() | Blocks():
            return sampling.num_bins // sampling.participations
        case ShuffledEpochs():
            return sampling.steps_per_epoch
    return 1


def _along_steps(values: Floats) -> Floats:
    total: Floats = np.sum(values, axis=0)
    return total


def _one_of(terms: Floats, epoch: int) -> Floats:
    """Return ln of the mean of densities if one step of an epoch is drawn; the last steps of the epoch may be
    missing."""
    unseen = np.zeros((epoch - len(terms), terms.shape[1]))
    return _mean_of_exponentials(np.concatenate([terms, unseen]))


def _mean_of_exponentials(terms: Floats) -> Floats:
    mean: Floats = scipy.special.logsumexp(terms, axis=0) - np.log(len(terms))
    return mean
