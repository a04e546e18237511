"""The only door to dp-accounting: an independent referee, never on the path of an answer.

Its pessimistic privacy loss distribution bounds from above except for rounding in its transforms, which can put delta
about 2e-13 below the truth (measured); use `REFEREE_ALLOWANCE`. It is imported when it is called, not with this
package.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from accounting.errors import Unsupported
from accounting.events import Event, Gaussian, Laplace, Poisson, check_events, group_events
from accounting.relations import NeighboringRelation

#: Absolute, in delta.
REFEREE_ALLOWANCE = 1e-12
#: Steps beyond which its truncation no longer keeps arrays small.
MAX_REFEREE_COUNT = 200_000


class _Distribution(Protocol):
    def self_compose(self, num_times: int) -> _Distribution: ...
    def compose(self, other: _Distribution) -> _Distribution: ...
    def get_delta_for_epsilon(self, epsilon: float) -> float: ...
    def get_epsilon_for_delta(self, delta: float) -> float: ...


class _Factory(Protocol):
    def from_gaussian_mechanism(
        self, standard_deviation: float, *, sampling_prob: float, value_discretization_interval: float
    ) -> _Distribution: ...
    def from_laplace_mechanism(self, parameter: float, *, value_discretization_interval: float) -> _Distribution: ...


def referee_delta(
    events: Sequence[Event], relation: NeighboringRelation, epsilon: float, *, interval: float = 1e-4
) -> float:
    """dp-accounting's pessimistic delta at ``epsilon``; ``interval`` is its lattice step.

    Raises:
        Unsupported: an event for which it has no distribution under this relation.
    """
    return float(_composed(events, relation, interval).get_delta_for_epsilon(float(epsilon)))


def referee_epsilon(
    events: Sequence[Event], relation: NeighboringRelation, delta: float, *, interval: float = 1e-4
) -> float:
    """dp-accounting's pessimistic epsilon at ``delta``."""
    return float(_composed(events, relation, interval).get_epsilon_for_delta(float(delta)))


def _composed(events: Sequence[Event], relation: NeighboringRelation, interval: float) -> _Distribution:
    # Importing by name keeps its missing type information out of the type checker's way.
    factory = cast(_Factory, import_module("dp_accounting.pld.privacy_loss_distribution"))
    parts = [
        _single(factory, event, relation, interval).self_compose(event.count)
        for event in group_events(check_events(events))
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total.compose(part)
    return total


def _single(factory: _Factory, event: Event, relation: NeighboringRelation, interval: float) -> _Distribution:
    """One step. Its parameters are floats: an integer noise makes it round silently."""
    mechanism, sampling = event.mechanism, event.sampling
    if event.count > MAX_REFEREE_COUNT:
        raise Unsupported(f"the referee is not asked about more than {MAX_REFEREE_COUNT} steps of one event")
    sampled = isinstance(sampling, Poisson) and sampling.sampling_probability < 1.0
    if sampled and relation is NeighboringRelation.REPLACE_ONE:
        raise Unsupported("dp-accounting has no distribution for Poisson sampling under replace_one")
    probability = sampling.sampling_probability if isinstance(sampling, Poisson) else 1.0
    if isinstance(mechanism, Gaussian):
        deviation = float(mechanism.noise_multiplier) / relation.sensitivity
        return factory.from_gaussian_mechanism(
            deviation, sampling_prob=float(probability), value_discretization_interval=interval
        )
    if isinstance(mechanism, Laplace) and math.isfinite(mechanism.noise_multiplier):
        scale = float(mechanism.noise_multiplier) / relation.sensitivity
        return factory.from_laplace_mechanism(scale, value_discretization_interval=interval)
    raise Unsupported(f"the referee has no distribution for {mechanism.kind}")
