"""This module has the questions that both sides answer. Random ones have fixed seeds, so that every run asks the
same."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from accounting.relations import NeighboringRelation


@dataclass(frozen=True, slots=True)
class Training:
    """A question: the epsilon at ``delta`` of DP-SGD with Poisson batches.

    Attributes:
        reference: The epsilon at ``delta`` from a contour integral with 30 digits; None if none was computed.
    """

    noise_multiplier: float
    sampling_probability: float
    steps: int
    delta: float
    relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE
    reference: float | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A question: the noise that DP-SGD with Poisson batches needs for (epsilon, delta)."""

    sampling_probability: float
    steps: int
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class FixedSize:
    """A question: the epsilon at ``delta`` of batches of a fixed size without replacement, under replace_one.

    Attributes:
        noise_multiplier: The noise's standard deviation divided by the contribution bound, which is half the
            sensitivity under this relation.
    """

    noise_multiplier: float
    batch_size: int
    dataset_size: int
    steps: int
    delta: float


TARGETS = (
    Target(0.02, 5000, 3.0, 1e-5),
    Target(0.01, 10_000, 2.0, 1e-5),
    Target(0.001, 20_000, 4.0, 1e-6),
)

#: Training runs of every size. Each delta belongs to the epsilon in ``reference``, which a computation with 30 digits
#: confirms.
TRAININGS = (
    Training(1.0, 0.02, 5000, 1.0039287035e-5, reference=9.4),
    Training(4.0, 0.01, 10_000, 1.0000000121e-5, reference=0.9468668),
    Training(0.7, 0.001, 20_000, 1.0062238837e-6, reference=2.02),
    Training(20.0, 0.3, 2000, 1.0002769454e-6, reference=3.126),
    Training(2.0, 0.005, 50_000, 0.0023505008696, reference=1.5),
    Training(10.0, 0.9, 300, 0.0026461243256, reference=5.0),
    Training(1.0, 0.001, 1000, 4.3850656965e-7, reference=0.2),
    Training(50.0, 0.5, 1_000_000, 2.2220275351e-5, reference=90.0),
    Training(4.0, 1e-4, 100_000_000, 8.3795203131e-5, reference=0.8),
    Training(4.0, 0.01, 1000, 1.0008490687e-25, reference=0.8357),
)

#: Targets for a thousand steps. The same targets with a million steps need more noise, and show whether the cost of an
#: answer depends on the number of steps.
MATCHED = (
    Target(0.01, 1000, 2.0, 1e-5),
    Target(0.02, 1000, 3.0, 1e-5),
    Target(0.001, 1000, 1.0, 1e-6),
    Target(0.1, 1000, 1.0, 1e-6),
    Target(0.05, 1000, 8.0, 1e-5),
)
FEW_STEPS, MANY_STEPS = 1000, 1_000_000

FIXED_SIZES = (
    FixedSize(8.0, 1024, 50_000, 10_000, 1e-5),
    FixedSize(5.0, 10, 1000, 50, 1e-5),
    FixedSize(4.0, 600, 60_000, 2000, 1e-5),
    FixedSize(2.0, 4096, 1_000_000, 5000, 1e-7),
    FixedSize(3.0, 100, 10_000, 1000, 1e-5),
)


def random_targets(count: int, seed: int = 71) -> Iterator[Target]:
    """Return random targets as people choose them."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        q, epsilon, delta = _log_uniform(rng, 1e-4, 0.1), _log_uniform(rng, 0.1, 10.0), _log_uniform(rng, 1e-8, 1e-4)
        yield Target(q, round(_log_uniform(rng, 100, 1e5)), epsilon, delta)


def few_participations(count: int, seed: int = 72) -> Iterator[Training]:
    """Return runs of 2 to 100 steps with fewer than two expected participations, where a characteristic function decays
    slowly.

    Each delta is below the probability that a record takes part at all. Above this probability, epsilon is 0.
    """
    rng = np.random.default_rng(seed)
    for _ in range(count):
        steps = round(_log_uniform(rng, 2, 100))
        q = _log_uniform(rng, 1e-5, min(1.0, 2.0 / steps))
        noise, fraction = _log_uniform(rng, 0.3, 5.0), _log_uniform(rng, 1e-8, 1e-1)
        yield Training(noise, q, steps, fraction * -math.expm1(steps * math.log1p(-min(q, 0.999))))


def wide_draw(count: int, seed: int = 73) -> Iterator[Training]:
    """Return random cases from the whole range in which the engine promises narrow intervals. The logarithms of their
    numbers are uniform."""
    rng = np.random.default_rng(seed)
    relations = (NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE)
    for index in range(count):
        noise, q = _log_uniform(rng, 0.05, 1e3), _log_uniform(rng, 1e-8, 1.0)
        steps, delta = round(_log_uniform(rng, 1, 1e8)), _log_uniform(rng, 1e-30, 0.5)
        yield Training(noise, q, steps, delta, relations[index % 2])


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))
