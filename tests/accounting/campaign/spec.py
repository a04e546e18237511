"""What a campaign asks and how it judges: specs, schemes, and what is drawn for all of them alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.events import Event, Gaussian, Laplace, Poisson, WithoutReplacement
from accounting.relations import NeighboringRelation
from tests.accounting import referee

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator], "Spec"]

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL
REPLACE = NeighboringRelation.REPLACE_ONE


@dataclass(frozen=True)
class Spec:
    """One random question: events, relation, delta, and how many records move together."""

    event: Event
    relation: NeighboringRelation
    delta: float
    group_size: int = 1

    @property
    def probability(self) -> float:
        sampling = self.event.sampling
        return sampling.sampling_probability if isinstance(sampling, Poisson | WithoutReplacement) else 1.0

    @property
    def sensitivity(self) -> float:
        """On purpose not the engine's own. Records of a group may all agree."""
        return (2.0 if self.relation is REPLACE else 1.0) * self.group_size

    @property
    def noise(self) -> float:
        mechanism = self.event.mechanism
        assert isinstance(mechanism, Gaussian | Laplace)
        return mechanism.noise_multiplier


@dataclass(frozen=True)
class Scheme:
    """How a scheme's specs are drawn and judged.

    Attributes:
        stream: Which random numbers: with it no scheme that comes or goes moves another one's specs.
        from_above: delta of the spec at an epsilon, never below the truth but for rounding.
        from_below: (mean, allowance) of what an attained pair costs; None where ``from_above`` is exact.
    """

    stream: int
    draw: Draw
    from_above: Callable[[Spec, float], float]
    from_below: Callable[[Spec, float, np.random.Generator], tuple[float, float]] | None


def uniform_in_log(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(math.log(low), math.log(high))))


def random_steps(rng: np.random.Generator, most: int = 2000) -> int:
    return int(uniform_in_log(rng, 1.0, most + 1.0))


def random_delta(rng: np.random.Generator) -> float:
    return uniform_in_log(rng, 1e-8, 1e-2)


def attained(
    pair: Callable[[Spec], referee.AttainedPair],
) -> Callable[[Spec, float, np.random.Generator], tuple[float, float]]:
    def from_below(spec: Spec, epsilon: float, rng: np.random.Generator) -> tuple[float, float]:
        draws = int(np.clip(100_000 / spec.event.count, 300, 8000))
        return pair(spec).estimate_delta(spec.event.count, epsilon, rng, draws)

    return from_below
