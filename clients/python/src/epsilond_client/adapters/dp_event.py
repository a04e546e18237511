"""dp-accounting's `DpEvent`, which JAX Privacy and TF Privacy use, as events to account and to reserve.

The service reads the tree itself (`/v1/import`). So there is only one reader, and one list of mechanisms without a
sound account.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from epsilond_client.answers import Answer
from epsilond_client.client import Client
from epsilond_client.transport import plain


def source_of(
    event: Any,
    *,
    accountant: Literal["rdp", "pld"] = "rdp",
    noise_over: Literal["contribution_bound", "sensitivity"] = "contribution_bound",
    batches: Literal["poisson", "shuffled"] = "poisson",
) -> dict[str, Any]:
    """Return the source of an import.

    Args:
        event: A `DpEvent`.
        accountant: The accountant whose number is compared.
        noise_over: The quantity that the noise multipliers are multiples of, which the event itself does not say.
        batches: How the loader drew batches, if the event says Poisson samples.
    """
    return {
        "kind": "dp_event",
        "event": to_json(event),
        "accountant": accountant,
        "noise_over": noise_over,
        "batches": batches,
    }


def import_event(
    client: Client, event: Any, *, delta: float, neighboring_relation: str | None = None, **source: Any
) -> Answer:
    """Return an event's cost: `epsilon` as an interval, and `events` to reserve.

    Args:
        client: A client of the server that reads the event.
        event: A `DpEvent`.
        delta: The delta at which the event is accounted.
        neighboring_relation: The relation, which an event does not carry; if left out, the service's default.
        source: The options of `source_of`.

    Raises:
        InvalidRequest: the event cannot be accounted soundly; the pointer leads to the part at fault.
    """
    return client.import_history(source_of(event, **source), delta=delta, neighboring_relation=neighboring_relation)


def to_json(event: Any) -> dict[str, Any]:
    """Return a `DpEvent` as JSON, with the fields of its `to_named_tuple`.

    Raises:
        TypeError: the object is no `DpEvent`.
    """
    if not hasattr(event, "to_named_tuple"):
        raise TypeError(f"the event must be a DpEvent of dp-accounting, not a {type(event).__name__}")
    converted: dict[str, Any] = plain(_fields(event.to_named_tuple()))
    return converted


def _fields(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return {name: _fields(inner) for name, inner in value._asdict().items()}
    if isinstance(value, Mapping):
        return {name: _fields(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_fields(inner) for inner in value]
    return value
