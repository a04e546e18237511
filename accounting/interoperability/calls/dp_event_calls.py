"""Events of dp-accounting as they are written in Python, and JAX Privacy's functions that make them.

Source: dp-accounting 0.6, `dp_event.py`, `privacy_accountant.py`; JAX Privacy 2.0, `experimental/accounting.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from accounting.dp_event_reader import FIELDS, REFUSED
from accounting.errors import InvalidValue, Unsupported, one_of
from accounting.interoperability.batches import Batches
from accounting.interoperability.calls.facts import Facts, Signature
from accounting.interoperability.calls.pasted import DpEventJson, PastedCall, Surroundings, sampled_gaussian
from accounting.interoperability.calls.snippet import Call, Unread, Value
from accounting.numbers import MAX_COUNT
from accounting.relations import NeighboringRelation

#: dp-accounting's accountants by the names of their classes, and the arguments that they take.
_ACCOUNTANTS = {
    "RdpAccountant": ("rdp", Signature("orders neighboring_relation")),
    "PLDAccountant": ("pld", Signature("neighboring_relation value_discretization_interval")),
}
_RELATIONS = {each.name: each.value for each in NeighboringRelation}
_GET_EPSILON = Signature("target_delta")
_COMPOSE = Signature("event count")
_POISSON = "noise_multiplier iterations * sampling_prob"
_TRUNCATED = Signature(f"{_POISSON} num_examples truncated_batch_size")
#: Functions of JAX Privacy that return an event.
EVENT_FUNCTIONS: Mapping[str, Signature] = {
    "dpsgd_event": Signature(_POISSON),
    "fixed_dpsgd_event": Signature("noise_multiplier iterations * dataset_size batch_size replace"),
    "truncated_dpsgd_event": _TRUNCATED,
    "amplified_bandmf_event": Signature(f"{_POISSON} num_bands"),
    "truncated_amplified_bandmf_event": Signature(f"{_POISSON} num_bands largest_group_size truncated_batch_size"),
}
#: All names of events.
EVENTS = (*FIELDS, *REFUSED, *EVENT_FUNCTIONS)


def dp_event(call: Call, facts: Facts, around: Surroundings) -> PastedCall:
    """Read an event that was pasted by itself, with the accountant in the text around it, if there is one."""
    times = around.last("compose")
    composed = times is not None and call in times.arguments[:1]
    event = event_of(call, facts)
    if composed and times is not None:
        event = {"class_name": "SelfComposedDpEvent", "event": event, "count": _count(times, facts)}
    return pasted_event(call, facts, around, event, "dp-accounting" if call.name in FIELDS else "JAX Privacy")


def compose(call: Call, facts: Facts, around: Surroundings) -> PastedCall:
    """Read `accountant.compose(event, count)`."""
    given = _COMPOSE.bind(call)
    composed = given.get("event")
    if not isinstance(composed, Call):
        shown = composed.text if isinstance(composed, Unread) else "it"
        raise InvalidValue(f"the composed event must be written out, not {shown} ({call.place}); paste the event, too")
    event = {"class_name": "SelfComposedDpEvent", "event": event_of(composed, facts), "count": _count(call, facts)}
    return pasted_event(call, facts, around, event, "dp-accounting")


def pasted_event(call: Call, facts: Facts, around: Surroundings, event: DpEventJson, library: str) -> PastedCall:
    """Return a call whose library charges this event.

    Args:
        call, facts, around: The pasted call, its facts, and the code around it.
        event: The event as JSON.
        library: The library of the call.
    """
    accountant, theirs = accountant_of(facts, around)
    asked = around.last("get_epsilon")
    delta = facts.delta("target_delta", {} if asked is None else _GET_EPSILON.bind(asked))
    batches = around.batches(
        facts, Batches.POISSON, ("The event states how batches are drawn; the loader must draw them in this way.")
    )
    facts.settle()
    return PastedCall(
        library=library,
        function=call.name,
        said=facts.said,
        record=event,
        charged=event,
        charged_relation=theirs,
        accountant=accountant,
        batches=batches,
        relation=around.relation(facts, batches, theirs),
        assumed=tuple(facts.assumed),
        delta=delta,
        target_epsilon=None,
    )


def accountant_of(facts: Facts, around: Surroundings) -> tuple[str, NeighboringRelation]:
    """Return the accountant of dp-accounting that was pasted, with its relation; by default the Renyi accountant."""
    found = around.last(*_ACCOUNTANTS)
    if found is None:
        facts.suppose("accountant", "rdp", "No accountant was pasted.")
        return "rdp", NeighboringRelation.ADD_OR_REMOVE_ONE
    name, signature = _ACCOUNTANTS[found.name]
    relation = facts.word("neighboring_relation", signature.bind(found), _RELATIONS, "ADD_OR_REMOVE_ONE")
    return name, NeighboringRelation(relation)


def event_of(call: Call, facts: Facts) -> DpEventJson:
    """Return an event as JSON, of a class of dp-accounting or a function of JAX Privacy.

    Raises:
        InvalidValue, Unsupported: If the value is not an event, or a part of it is not written out.
    """
    if call.name in EVENT_FUNCTIONS:
        return _made(call, facts)
    if call.name in REFUSED:
        raise Unsupported(f"{call.name}: {REFUSED[call.name]} ({call.place})")
    if call.name not in FIELDS:
        raise InvalidValue(
            f"{call.path} is not an event that can be read ({call.place}); the events that can are "
            f"{one_of(['SelfComposedDpEvent', *FIELDS])}"
        )
    fields = FIELDS[call.name]
    given = Signature(" ".join(fields)).bind(call)
    return {"class_name": call.name} | {name: _field(call, name, value, facts) for name, value in given.items()}


def _field(call: Call, name: str, value: Value, facts: Facts) -> Any:
    if isinstance(value, Call):
        return event_of(value, facts)
    if isinstance(value, Unread):
        raise InvalidValue(f"{name} of {call.name} must be written out, not {value.text} ({call.place})")
    if isinstance(value, tuple):
        return [_field(call, name, each, facts) for each in value]
    return value


def _made(call: Call, facts: Facts) -> DpEventJson:
    """Return the event that a function of JAX Privacy makes, by the function's own arithmetic."""
    given = EVENT_FUNCTIONS[call.name].bind(call)
    noise = facts.noise("noise_multiplier", given)
    steps = facts.count("steps", "iterations", given)
    whole = {name: facts.number(name, given, 0, 1e13) for name in given if name in _WHOLE}
    probability = facts.number("sampling_prob", given, 0.0, 1.0)
    is_fixed = call.name == "fixed_dpsgd_event"
    records = facts.count("dataset_size", "dataset_size", given) if is_fixed else 0
    size = facts.count("batch_size", "batch_size", given) if is_fixed else 0
    facts.settle()
    steps = math.ceil(steps / max(1, int(whole.get("num_bands", 1))))
    if is_fixed:
        replaces = facts.flag("replace", given, False)
        kind = "SampledWithReplacementDpEvent" if replaces else "SampledWithoutReplacementDpEvent"
        gaussian = {"class_name": "GaussianDpEvent", "noise_multiplier": float(noise)}
        sizes = {"source_dataset_size": records, "sample_size": size}
        return repeated({"class_name": kind, **sizes, "event": gaussian}, steps)
    if "truncated_batch_size" in whole:
        whole_group = whole.get("num_examples", whole.get("largest_group_size", 0))
        return repeated(truncated(noise, probability, int(whole_group), int(whole["truncated_batch_size"])), steps)
    return sampled_gaussian(noise, probability, steps)


_WHOLE = ("num_bands", "num_examples", "largest_group_size", "truncated_batch_size")


def truncated(noise: float, probability: float, records: int, most: int) -> DpEventJson:
    """Return one step on a Poisson sample of which at most this many records are kept."""
    return {
        "class_name": "TruncatedSubsampledGaussianDpEvent",
        "dataset_size": records,
        "sampling_probability": float(probability),
        "truncated_batch_size": most,
        "noise_multiplier": float(noise),
    }


def repeated(event: DpEventJson, steps: int) -> DpEventJson:
    """Return an event that repeats another one this many times."""
    return {"class_name": "SelfComposedDpEvent", "event": event, "count": steps}


def _count(call: Call, facts: Facts) -> int:
    given = _COMPOSE.bind(call)
    return int(facts.number("count", given, 1, MAX_COUNT, default=1.0))
