"""Events of dp-accounting (JAX Privacy, TF Privacy), and the reasons why its accountants report other numbers."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import Any

from accounting.dp_event_reader import class_name, event_of_json
from accounting.dp_events import NoiseOver, from_dp_event
from accounting.interoperability.batches import SHUFFLED_CHARGED_AS_POISSON, Batches, taken_as
from accounting.interoperability.difference import Difference, Imported, Reported
from accounting.relations import NeighboringRelation

_SAMPLES = {"PoissonSampledDpEvent", "SampledWithoutReplacementDpEvent", "SampledWithReplacementDpEvent"}


def import_dp_event(
    dp_event: Any,
    relation: NeighboringRelation,
    accountant: str,
    *,
    noise_over: NoiseOver = NoiseOver.CONTRIBUTION_BOUND,
    batches: Batches = Batches.POISSON,
    reported_epsilon: float | None = None,
) -> Imported:
    """Return a `DpEvent`, or its JSON form, as events, with the reasons why dp-accounting's number differs.

    Args:
        dp_event: As for `from_dp_event`.
        relation: The neighbouring relation under which its owner accounts.
        accountant: The accountant whose number is compared: ``rdp`` or ``pld``.
        noise_over: The unit of its noise multipliers.
        batches: The batches of the loader, if the event says Poisson samples.
        reported_epsilon: dp-accounting's number, if it is known.

    Raises:
        InvalidValue, Unsupported: As `from_dp_event` does.

    >>> event = {"class_name": "GaussianDpEvent", "noise_multiplier": 1.0}
    >>> found = import_dp_event(event, NeighboringRelation.REPLACE_ONE, "rdp")
    >>> [difference.code for difference in found.differences]
    ['renyi_conversion', 'noise_over_the_sensitivity']
    """
    tree = event_of_json(dp_event)
    relation = NeighboringRelation(relation)
    events = from_dp_event(tree, relation, noise_over=noise_over)
    nodes = list(_nodes(tree))
    names = {class_name(node) for node in nodes}
    differences = [_RENYI if accountant == "rdp" else _LATTICE]
    if relation is NeighboringRelation.REPLACE_ONE and noise_over is NoiseOver.CONTRIBUTION_BOUND and (
        accountant == "rdp" and names & {"GaussianDpEvent", "LaplaceDpEvent"}
    ):  # fmt: skip
        differences.append(_FACTOR_TWO)
    if accountant == "rdp" and any(_forgets_composition(node) for node in nodes):
        differences.append(_INTEGER)
    if accountant == "rdp" and names & {"SampledWithoutReplacementDpEvent", "SampledWithReplacementDpEvent"}:
        differences.append(_FIXED_SIZE)
    if accountant == "pld" and "RandomizedResponseDpEvent" in names and any(event.count > 1 for event in events):
        differences.append(_RESPONSES)
    if "SingleEpochTreeAggregationDpEvent" in names:
        differences.append(_TREES)
    if batches is Batches.SHUFFLED:
        events = taken_as(events, batches)
        differences.insert(0, SHUFFLED_CHARGED_AS_POISSON)
    return Imported(events, Reported("dp-accounting", accountant, relation, reported_epsilon), tuple(differences))


def _nodes(event: Any) -> Iterator[Any]:
    """Yield the event and all events inside it; `from_dp_event` has bounded their number."""
    yield event
    name = class_name(event)
    if name == "ComposedDpEvent":
        for part in event.events:
            yield from _nodes(part)
    elif name == "SelfComposedDpEvent" or name in _SAMPLES:
        yield from _nodes(event.event)


def _forgets_composition(event: Any) -> bool:
    """Return whether the Renyi accountant counts only one of several Gaussians on a batch, as it does for integer
    multipliers."""
    if class_name(event) not in _SAMPLES or class_name(event.event) not in {"ComposedDpEvent", "SelfComposedDpEvent"}:
        return False
    return any(
        class_name(node) == "GaussianDpEvent" and isinstance(node.noise_multiplier, Integral)
        for node in _nodes(event.event)
    )


_RENYI = Difference(
    "renyi_conversion",
    "dp-accounting converts Renyi moments at a fixed set of orders into epsilon, which loses some precision; the "
    "interval here is computed from the privacy loss itself.",
    unsound=False,
)
_LATTICE = Difference(
    "lattice_of_losses",
    "dp-accounting rounds privacy losses up to a lattice of 1e-4 and truncates their tails, which costs a little more.",
    unsound=False,
)
_FACTOR_TWO = Difference(
    "noise_over_the_sensitivity",
    "Under replace_one dp-accounting's Renyi accountant reads a noise multiplier as a multiple of the "
    "sensitivity, which is twice the bound on one record's contribution; the classes' documentation, its PLD "
    "accountant and the events here read it as a multiple of that bound. If the sensitivity was meant, set "
    "noise_over.",
    unsound=True,
)
_INTEGER = Difference(
    "integer_noise_multiplier",
    "With an integer noise multiplier inside a sampled composition dp-accounting's Renyi accountant ignores the "
    "composition and charges one mechanism on the batch. Here the type of the number makes no difference.",
    unsound=True,
)
_FIXED_SIZE = Difference(
    "fixed_size_bound",
    "dp-accounting bounds batches of a fixed size by a general theorem on their Renyi moments; the pair used here "
    "costs less.",
    unsound=False,
)
_RESPONSES = Difference(
    "repetitions_of_randomized_response",
    "dp-accounting 0.6's PLD accountant charges repeated randomised response once, whatever its count.",
    unsound=True,
)
_TREES = Difference(
    "nodes_of_a_tree",
    "dp-accounting also counts a root above leaves that are never filled; here a record is charged only for nodes "
    "that are released.",
    unsound=False,
)
