"""Random requests, as people may send them, with the engine's own answers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.accountant import epsilon_for_delta
from accounting.events import Event, FullBatch, Gaussian, Poisson, WithoutReplacement
from accounting.relations import NeighboringRelation

KINDS = ("poisson", "poisson", "list", "fixed_size", "full_batch")
_SEED, _LEAST, _MOST = 11, 0.01, 30.0


@dataclass(frozen=True)
class Request:
    """One request whose epsilon is between 0.01 and 30, and both ends of the engine's answer."""

    kind: str
    events: tuple[Event, ...]
    relation: NeighboringRelation
    delta: float
    lower: float
    upper: float


def drawn(number: int) -> Request:
    """Return the request of this number; its kind goes round."""
    rng = np.random.default_rng([_SEED, number])
    kind = KINDS[number % len(KINDS)]
    while True:
        relation = list(NeighboringRelation)[rng.integers(3)]
        if kind == "fixed_size":
            relation = NeighboringRelation.REPLACE_ONE
        if kind == "list":
            kinds = ["poisson", "poisson", "full_batch"]
            kinds += ["fixed_size"] if relation is NeighboringRelation.REPLACE_ONE else []
            events = tuple(_event(kinds[rng.integers(len(kinds))], rng) for _ in range(rng.integers(2, 5)))
        else:
            events = (_event(kind, rng),)
        delta = _rounded(_between(rng, 1e-10, 1e-4))
        value = epsilon_for_delta(events, relation, delta).value
        if _LEAST <= value.upper <= _MOST:
            return Request(kind, events, relation, delta, value.lower, value.upper)


def _event(kind: str, rng: np.random.Generator) -> Event:
    noise, count = _rounded(_between(rng, 0.5, 300.0)), int(_between(rng, 1.0, 1e6))
    if kind == "poisson":
        return Event(Gaussian(noise), Poisson(_rounded(_between(rng, 1e-5, 0.3))), count)
    if kind == "fixed_size":
        size = int(_between(rng, 100.0, 1e6))
        return Event(Gaussian(noise), WithoutReplacement(max(1, int(size * _between(rng, 1e-5, 0.3))), size), count)
    return Event(Gaussian(max(noise, 2.0 * math.sqrt(count / 1000.0))), FullBatch(), count)


def _between(rng: np.random.Generator, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _rounded(number: float) -> float:
    return float(f"{number:.3g}")
