"""Phases that are not noisy gradient steps alike: each kind of them is a file here, and an entry in `PHASES`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

from accounting.canonical import Json
from accounting.events import Event, event_from_json
from calibrators.units import Units


@dataclass(frozen=True, slots=True)
class StructuredPhase(ABC):
    """Steps that share records, noise or a cost in a way of their own.

    Its JSON is its kind and its fields, which are an event, numbers and tuples of numbers. A subclass checks them in
    ``__post_init__``.

    Attributes:
        kind: Its name in a plan.
        units: Of each number that has any, by the field's name.
        event: What is charged: all steps together, or one step with as many counts as there are steps.
    """

    kind: ClassVar[str]
    units: ClassVar[Mapping[str, Units]]
    event: Event

    @property
    @abstractmethod
    def steps(self) -> int:
        """Number of steps that a trainer carries out."""

    @property
    @abstractmethod
    def batch_size(self) -> int:
        """Nominal number of records that the first step reads."""

    @property
    @abstractmethod
    def contribution_bound(self) -> float:
        """Longest gradient that a record may contribute, in gradient units and the phase's own norm."""

    @property
    @abstractmethod
    def noise_scale(self) -> tuple[float, ...]:
        """Of the noise, wherever it changes: in the order in which it is first drawn."""

    @property
    def is_executable(self) -> bool:
        return True

    def to_json(self) -> dict[str, Json]:
        described = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"kind": self.kind} | described | {"event": self.event.to_json()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """What `to_json` wrote.

        Raises:
            KeyError: a field is missing.
            InvalidValue: a number is outside its range.
        """
        types = get_type_hints(cls)
        given = {field.name: _read(types[field.name], value[field.name]) for field in fields(cls)}
        return cls(**given)


def _read(annotation: Any, value: Any) -> Any:
    """A field's value: canonical bytes write numbers as strings."""
    if annotation is Event:
        return event_from_json(value)
    if get_origin(annotation) is tuple:
        return tuple(_read(get_args(annotation)[0], item) for item in value)
    if annotation == float | None:
        return None if value is None else float(value)
    if annotation in (int, float, str):
        return annotation(value)
    raise TypeError(f"fields of phases are events, numbers (or None), strings and tuples of them, not {annotation}")
