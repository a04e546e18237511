"""The one module that asks dp-accounting. Its numbers are an independent check and never part of an answer.

Its pessimistic privacy loss distribution bounds from above except for rounding in its transforms, which can put delta
about 2e-13 below the truth (measured); use `REFEREE_ALLOWANCE`. It is imported when it is called, not with this
package. `accounting.dp_events` translates to its events.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any, Protocol, cast

from accounting.errors import Unsupported, inside, one_of
from accounting.events import (
    ApproximateDp,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    FullBatch,
    Gaussian,
    GaussianMixture,
    Laplace,
    Mechanism,
    Poisson,
    PureDp,
    RandomizedResponse,
    Sampling,
    check_events,
    group_events,
)
from accounting.events.schedules import resolve_schedules
from accounting.relations import NeighboringRelation

#: The absolute error in delta that is allowed for dp-accounting's rounding.
REFEREE_ALLOWANCE = 1e-12
#: The most steps for which dp-accounting's truncation keeps arrays small.
MAX_REFEREE_COUNT = 200_000
DEFAULT_INTERVAL = 1e-4
#: Mechanisms whose distributions dp-accounting has.
KNOWN = (
    Gaussian,
    GaussianMixture,
    Laplace,
    DiscreteLaplace,
    DiscreteGaussian,
    RandomizedResponse,
    PureDp,
    ApproximateDp,
)
#: Reasons why there is no second opinion, for kinds of mechanism whose name does not make the reason clear.
_WHY_NONE = {
    "tree_aggregation": (
        " (only its Renyi accountant takes trees, and it also counts a root above leaves that are never filled)"
    ),
    "zcdp": " (a bound on moments is not a distribution)",
    "renyi_dp": " (a bound on moments is not a distribution)",
    "generalized_gaussian": " (a bound on moments is not a distribution)",
    "without_replacement": " (only its Renyi accountant takes batches of a fixed size)",
    "with_replacement": " (only its Renyi accountant takes batches of a fixed size)",
    "truncated_poisson": " where any records may be dropped, or slots are drawn (its own drops records at random)",
}


class Distribution(Protocol):
    """The methods of dp-accounting's privacy loss distributions that are used here."""

    def self_compose(self, num_times: int) -> Distribution: ...
    def compose(self, other: Distribution) -> Distribution: ...
    def compute_mixture(self, other: Distribution, self_weight: float) -> Distribution: ...
    def get_delta_for_epsilon(self, epsilon: float) -> float: ...
    def get_epsilon_for_delta(self, delta: float) -> float: ...


def engine() -> str:
    """Return dp-accounting's name and version, without importing it."""
    return f"dp-accounting {version('dp-accounting')} PLD"


def referee_delta(
    events: Sequence[Event], relation: NeighboringRelation, epsilon: float, *, interval: float = DEFAULT_INTERVAL
) -> float:
    """Return dp-accounting's pessimistic delta at ``epsilon``; ``interval`` is its lattice step.

    Raises:
        Unsupported: If dp-accounting has no distribution for an event under this relation.
    """
    return float(referee_distribution(events, relation, interval).get_delta_for_epsilon(float(epsilon)))


def referee_epsilon(
    events: Sequence[Event], relation: NeighboringRelation, delta: float, *, interval: float = DEFAULT_INTERVAL
) -> float:
    """Return dp-accounting's pessimistic epsilon at ``delta``."""
    return float(referee_distribution(events, relation, interval).get_epsilon_for_delta(float(delta)))


def referee_distribution(events: Sequence[Event], relation: NeighboringRelation, interval: float) -> Distribution:
    """Return dp-accounting's distribution of the whole list.

    Raises:
        Unsupported: As `referee_delta` does. `check_referee` finds this out beforehand, at no cost.
    """
    total: Distribution | None = None
    for event in check_referee(events, relation):
        part = _distribution(event, relation, interval)
        total = part if total is None else total.compose(part)
    assert total is not None  # a list has one event at least
    return total


def check_referee(events: Sequence[Event], relation: NeighboringRelation) -> tuple[Event, ...]:
    """Return the list as dp-accounting composes it, with fixed schedules resolved and equal steps counted together.

    Raises:
        Unsupported: If dp-accounting has no distribution for an event. The pointer says for which one of ``events``.
    """
    relation = NeighboringRelation(relation)
    resolved = resolve_schedules(check_events(events), relation)
    for index, event in enumerate(resolved):
        with inside(index):
            _check(event, relation)
    grouped = group_events(resolved)
    if any(event.count > MAX_REFEREE_COUNT and not _is_closed(event) for event in grouped):
        raise Unsupported(f"dp-accounting is asked about at most {MAX_REFEREE_COUNT} steps of one event")
    return grouped


def _check(event: Event, relation: NeighboringRelation) -> None:
    mechanism, sampling = event.mechanism, event.sampling
    if not isinstance(mechanism, KNOWN):
        why, known = _WHY_NONE.get(mechanism.kind, ""), one_of([cls.kind for cls in KNOWN])
        raise Unsupported(f"dp-accounting has no distribution for {mechanism.kind}{why}; it has one for {known}")
    if not isinstance(sampling, FullBatch | Poisson):
        why = _WHY_NONE.get(sampling.kind, "")
        known = one_of([FullBatch.kind, Poisson.kind])
        raise Unsupported(
            f"dp-accounting has no distribution for {sampling.kind} sampling{why}; it has one for {known}"
        )
    replaces = relation is NeighboringRelation.REPLACE_ONE
    if isinstance(mechanism, Laplace) and isinstance(sampling, Poisson) and replaces:
        raise Unsupported("dp-accounting has no distribution for laplace with Poisson sampling under replace_one")
    if isinstance(mechanism, RandomizedResponse) and mechanism.flip_probability == 1.0:
        raise Unsupported("dp-accounting has no distribution for answers that are all drawn at random")


def _is_closed(event: Event) -> bool:
    """Return whether dp-accounting needs only one distribution for any number of steps."""
    return isinstance(event.mechanism, Gaussian) and isinstance(event.sampling, FullBatch)


def _distribution(event: Event, relation: NeighboringRelation, interval: float) -> Distribution:
    """Return the distribution of all steps of one event. Parameters are passed as floats, since dp-accounting rounds
    with integers."""
    factory = _Factory(event.sampling, relation, interval)
    if isinstance(event.mechanism, Gaussian) and _is_closed(event):
        return factory.gaussian(event.mechanism.noise_multiplier / math.sqrt(event.count))
    return factory.one_step(event.mechanism).self_compose(event.count)


@dataclass(frozen=True)
class _Factory:
    """Makes dp-accounting's distributions of single steps."""

    sampling: Sampling
    relation: NeighboringRelation
    interval: float

    def _make(self, name: str, *parameters: float, **options: object) -> Distribution:
        # Importing by name keeps its missing type information out of the type checker's way.
        factory: Any = import_module("dp_accounting.pld.privacy_loss_distribution")
        made = getattr(factory, f"from_{name}")(*parameters, value_discretization_interval=self.interval, **options)
        return cast(Distribution, made)

    def one_step(self, mechanism: Mechanism) -> Distribution:
        match mechanism:
            case Gaussian(noise):
                one = self.gaussian(noise)
            case GaussianMixture():
                one = self._gaussian_mixture(mechanism)
            case Laplace(noise):
                # dp-accounting has Laplace only under add/remove; under replace_one a full batch has twice the shift.
                scale = float(noise) / self.relation.sensitivity
                one = self._make("laplace_mechanism", scale, sampling_prob=self._probability)
            case DiscreteLaplace(noise, grid):
                one = self._make("discrete_laplace_mechanism", grid / noise, self._shift(grid), use_connect_dots=True)
            case DiscreteGaussian(noise, grid):
                one = self._make("discrete_gaussian_mechanism", noise / grid, self._shift(grid), use_connect_dots=True)
            case RandomizedResponse(categories, chance):
                one = self._make("randomized_response", chance, categories, neighboring_relation=self._theirs)
            case _:
                assert isinstance(mechanism, PureDp | ApproximateDp)  # `_check` let nothing else pass
                delta = mechanism.delta if isinstance(mechanism, ApproximateDp) else 0.0
                common = import_module("dp_accounting.pld.common")
                one = self._make("privacy_parameters", common.DifferentialPrivacyParameters(mechanism.epsilon, delta))
        return one

    def gaussian(self, noise: float) -> Distribution:
        return self._make(
            "gaussian_mechanism",
            float(noise),
            sampling_prob=self._probability,
            neighboring_relation=self._theirs,
        )

    def _gaussian_mixture(self, mechanism: GaussianMixture) -> Distribution:
        """Compose branch by branch, since the drawn scale is seen; each has its share of the branches so far."""
        total, mixed = mechanism.probabilities[0], self.gaussian(mechanism.noise_multipliers[0])
        for weight, noise in zip(mechanism.probabilities[1:], mechanism.noise_multipliers[1:], strict=True):
            total += weight
            mixed = mixed.compute_mixture(self.gaussian(noise), 1.0 - weight / total)
        return mixed

    @property
    def _probability(self) -> float:
        return float(self.sampling.sampling_probability) if isinstance(self.sampling, Poisson) else 1.0

    @property
    def _theirs(self) -> object:
        return import_module("dp_accounting.privacy_accountant").NeighboringRelation[self.relation.name]

    def _shift(self, grid: float) -> int:
        return round(self.relation.sensitivity / grid)


def library_epsilon(
    dp_event: Mapping[str, object], relation: NeighboringRelation, delta: float, accountant: str
) -> float:
    """Return the epsilon that one of dp-accounting's accountants reports for one of its events.

    Args:
        dp_event: The JSON form of the event (`accounting.dp_event_reader`), with numbers of the types that it has
            there.
        relation: The neighbouring relation.
        delta: In (0, 1).
        accountant: ``rdp`` or ``pld``.

    Raises:
        Exception: Whatever the library raises for events that it does not account.
    """
    package = import_module("dp_accounting")
    classes = import_module("dp_accounting.dp_event")

    def build(value: object) -> object:
        if isinstance(value, Mapping):
            fields = {key: build(item) for key, item in value.items() if key not in {"class_name", "module_name"}}
            return getattr(classes, str(value["class_name"]))(**fields)
        return [build(item) for item in value] if isinstance(value, list) else value

    theirs = package.NeighboringRelation[relation.name]
    if accountant == "rdp":
        found = import_module("dp_accounting.rdp").RdpAccountant(neighboring_relation=theirs)
    else:
        found = import_module("dp_accounting.pld").PLDAccountant(theirs)
    return float(found.compose(build(dp_event)).get_epsilon(delta))
