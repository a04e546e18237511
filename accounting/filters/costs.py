"""Costs of events in filters: which cells of the table exist, what a cost is, and how costs add up.

T = steps of full batches (shuffled epochs: passes; disjoint batches: 1; random allocation: participations, begun
allocations in full), s = noise multiplier, eps = sens / b for a Laplace event of scale b, h = nodes of a tree over one
record, d = the delta at which the reservation is priced (`charge_delta`). UNAMPLIFIED costs come with a warning.

| event | pure_dp | approximate_dp | approximate_gaussian_dp | zcdp | gaussian_dp | renyi_dp, order a |
|---|---|---|---|---|---|---|
| gaussian, full batch | none | tight at d | covered | sens^2 T / (2 s^2) | sens^2 T / s^2 | a sens^2 T / (2 s^2) |
| gaussian, sampled | none | tight at d | covered | UNAMPLIFIED | UNAMPLIFIED | moment of the sampled pair |
| gaussian_mixture | none | tight at d | covered | sens^2 T / (2 min s^2) | sens^2 T / min s^2 | exact moment |
| gaussian_mixture, sampled | none | tight at d | covered | UNAMPLIFIED | UNAMPLIFIED | sampled moment |
| laplace | T eps | T eps | covered | T (eps + e^-eps - 1) | T m(e^(-eps/2) / 2) | exact moment |
| laplace, sampled | T eps' | T eps' | covered | best of both | best of both | moment of the sampled pair |
| gaussian or laplace, with replacement or truncated Poisson | none | tight at d | covered | none | none | none |
| pure_dp or approximate_dp, shuffle model | none | tight at d | covered | none | none | none |
| pure_dp | T eps | T eps | covered | T eps tanh(eps / 2) | T m(1 / (1 + e^eps)) | moment of randomised response |
| generalized_gaussian | none | tight at d | covered | kappa sens^2 T / (2 s^2) | none | a kappa sens^2 T / (2 s^2) |
| tree_aggregation | none | tight at d | covered | sens^2 T h / (2 s^2) | sens^2 T h / s^2 | a sens^2 T h / (2 s^2) |
| randomized_response | T eps | tight at d | covered | T smallest rho | T smallest mu^2 | exact moment |
| discrete_laplace | T eps | tight at d | covered | T smallest rho | T smallest mu^2 | exact moment |
| discrete_gaussian | none | tight at d | covered | sens^2 T / (2 s^2) | none | a sens^2 T / (2 s^2) |
| exponential, noisy max (gumbel) | T eps | tight at d | covered | T eps^2 / 8 at most | as pure_dp | largest moment |
| noisy max (laplace, exponential) | T eps | tight at d | covered | as pure_dp | as pure_dp | as pure_dp |
| zcdp | none | tight at d | covered | T rho | none | T rho a |
| renyi_dp | none | tight at d | covered | none | none | T divergence, interpolated between its orders |
| approximate_dp | none | T eps, T delta | covered, and T delta | none | none | none |

m(x) = (2 Phi^-1(x))^2; eps' is the sampled step's largest loss; "best of both": of the unsampled step's cost, which no
sampling exceeds, and of the cost of an eps'-DP step. "Covered": mu squared of the smallest failing Gaussian whose
profile is above that of the whole list, and the delta with which it fails (`gaussian_cover`); or the gaussian_dp cell
and no delta, if that is smaller. If there is a pure_dp cell, it is charged beside them.

There is no conversion outside this table. A sampled Gaussian has no amplified cost in zcdp (its Renyi divergence over
the order tends to 1 / (2 s^2) at least as the order grows, whatever the sampling probability) and none in gaussian_dp
(a mu-GDP step has divergence a mu^2 / 2 at most).

With samples of a fixed size under replace_special, the batches are drawn from a public number of positions, and the
null record keeps the position of the record that it replaces. Given the batches, neighbours differ in at most T of
them, by at most the contribution bound. Without amplification, then, sens is 1. The sampled pair is that of
replace_one, of distance 2, because with the batches hidden a record is compared with another one in its place.

A positive loss costs at least one unit, in every cell of the table and at every Renyi order: `charged` lifts the cost
of each step that reveals something to `SMALLEST_COST` at least, and sums are rounded up to whole units. So no step is
free because a float has underflowed. (In approximate_dp it is a unit of epsilon, or a unit of delta for an event whose
epsilon is 0.)

A float stands for the shortest decimal that reads back to it, which is how events and limits are written and hashed;
rational costs are computed exactly from those decimals, so that a million charges of 1e-6 fill 1 exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from accounting.errors import NoCostInFilter, inside, one_of
from accounting.events import Event
from accounting.events.schedules import is_sampled, resolve_schedules
from accounting.losses.rules import rules_of
from accounting.relations import NeighboringRelation
from accounting.schedule_warnings import same_randomizer_required
from accounting.units import Amounts, Between, exact

NO_AMPLIFICATION = "no_amplification"
SAME_RANDOMIZER_REQUIRED = "same_randomizer_required"
_NAMES = {"zcdp": "zCDP", "gaussian_dp": "Gaussian DP"}
#: One atto-unit, the grain in which delta is counted.
SMALLEST_DELTA = 1e-18
#: The least cost of a step that reveals something, in whole units. Underflowing floats lose their digits; numbers of
#: this size still have all of them. All steps of the longest list together cost far less than a nano-unit at this size.
SMALLEST_COST = Fraction(1, 10**290)


@dataclass(frozen=True, slots=True)
class CostWarning:
    """A sentence that belongs beside a cost, with a stable code."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Cost:
    """Amounts in the filter's units, rounded up: one amount, one for each order, or epsilon and delta."""

    amounts: Amounts
    warnings: tuple[CostWarning, ...] = ()


def checked(events: tuple[Event, ...], relation: NeighboringRelation, kind: str) -> tuple[Event, ...]:
    """Return the list with its schedules resolved, or refuse it if an event has no cost in the filter."""
    for index, event in enumerate(events):
        restricted = event.sampling.filters
        working = [each for each in event.mechanism.filters if restricted is None or each in restricted]
        if kind not in working:
            by_mechanism = kind not in event.mechanism.filters
            sampled = "" if by_mechanism else f" with {event.sampling.kind} batches"
            raise NoCostInFilter(
                f"a {event.mechanism.kind} event{sampled} has no proved additive cost in a {kind} budget; it has one "
                f"in {one_of(working)}",
                pointer=("events", index, "mechanism" if by_mechanism else "sampling"),
            )
    with inside("events"):
        return resolve_schedules(events, relation)


def total(
    events: tuple[Event, ...], relation: NeighboringRelation, unit: Callable[[Event, NeighboringRelation], Between]
) -> Between:
    """Return the sum of the costs of all steps, without rounding it to units."""
    least = most = Fraction(0)
    for event in events:
        count, cost = participations(event), unit(event, relation)
        most += count * charged(cost.most, event)
        least += count * charged(cost.least, event)
    return Between(least, most)


def charged(cost: Fraction, *events: Event) -> Fraction:
    """Return a cost, lifted to `SMALLEST_COST` if it is smaller although an event reveals something.

    Guarantees: positive_where_something_is_revealed: so that it takes at least one unit of a budget.

    >>> from accounting.events import PureDp
    >>> charged(Fraction(0), Event(PureDp(1e-300))) > 0, charged(Fraction(0), Event(PureDp(0.0)))
    (True, Fraction(0, 1))
    """
    if cost >= SMALLEST_COST or all(event.mechanism.reveals_nothing for event in events):
        return cost
    return SMALLEST_COST


def participations(event: Event) -> int:
    """Return how many times the cost of one step counts: for random allocation, once for each participation of a
    record."""
    return event.sampling.steps_charged(event.count)


def unamplified(events: tuple[Event, ...], kind: str) -> tuple[CostWarning, ...]:
    """Return the warning that a budget of this kind charges sampled Gaussians as full batches, if a list has any."""
    if all(rules_of(event.mechanism).amplified_sums or not is_sampled(event) for event in events):
        return ()
    detail = (
        f"Sampling does not lower the cost in a {kind} budget: no amplified {_NAMES[kind]} holds for a sampled "
        "Gaussian, so it is charged as if every record took part in every step. A renyi_dp budget charges the "
        "amplified cost."
    )
    return (CostWarning(NO_AMPLIFICATION, detail),)


def without_failures(events: tuple[Event, ...]) -> tuple[tuple[Event, ...], Fraction]:
    """Return the events without their stated deltas, and the sum of these deltas."""
    parts, stated = [], Fraction(0)
    for event in events:
        if is_sampled(event):
            parts.append(event)
            continue
        mechanism, delta = rules_of(event.mechanism).without_failure(event.mechanism)
        stated += event.count * exact(delta)
        parts.append(Event(mechanism, event.sampling, event.count))
    return tuple(parts), stated


def same_randomizer_warning(events: tuple[Event, ...]) -> tuple[CostWarning, ...]:
    """Return the warning that the shuffle model requires one randomizer, if a list has such events."""
    requirement = same_randomizer_required(events)
    return () if requirement is None else (CostWarning(SAME_RANDOMIZER_REQUIRED, requirement),)
