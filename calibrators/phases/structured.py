"""This module defines what all phases other than equal noisy gradient steps have in common. Each kind of phase has its
own file in this folder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Self, get_args, get_origin, get_type_hints

from accounting.canonical import Json
from accounting.described import Real, Whole
from accounting.errors import InvalidValue
from accounting.events import Event, FullBatch, Mechanism, event_from_json
from accounting.numbers import MAX_DATASET_SIZE
from accounting.relations import NeighboringRelation
from calibrators.provenance import Units

Positive = Annotated[float, Real(0.0, 1e30, open_lower=True)]
Nonnegative = Annotated[float, Real(0.0, 1e30)]
MaxGradNorm = Annotated[float, Real(0.0, open_lower=True)]
Records = Annotated[int, Whole(1, MAX_DATASET_SIZE)]


@dataclass(frozen=True, slots=True)
class Charge:
    """The form that the event of a phase must have.

    Attributes:
        mechanisms: The kinds of mechanism that the event may have.
        words: The rule as a sentence; a refusal quotes it.
        once: Whether the count of the event must be 1.
        full_batch: Whether the event must be on all records.
        pointer: The place to which a refusal points.
    """

    mechanisms: tuple[type[Mechanism], ...]
    words: str
    once: bool = True
    full_batch: bool = False
    pointer: tuple[str, ...] = ("event", "mechanism")

    def check(self, event: Event) -> None:
        """Refuse an event that does not have this form.

        Raises:
            InvalidValue: If the event does not have this form.
        """
        if (
            not isinstance(event.mechanism, self.mechanisms)
            or (self.once and event.count != 1)
            or (self.full_batch and not isinstance(event.sampling, FullBatch))
        ):
            raise InvalidValue(self.words, pointer=self.pointer)


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of a phase's steps; a number is None if the phase has no such number.

    Attributes:
        stddev_on_sum: The standard deviation per coordinate on the sum, in the unit of a record's contribution.
        stddev_on_mean: The standard deviation after the division by the public batch size.
        l2_sensitivity: The largest l2 distance between the sums of two neighbours, in the unit of a record's
            contribution.
        noise_scale: All noise scales, in the order in which noise is first drawn at each. They are given if the noise
            is not on one sum or mean, or if it has several sizes.
    """

    stddev_on_sum: float | None = None
    stddev_on_mean: float | None = None
    l2_sensitivity: float | None = None
    noise_scale: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class StructuredPhase(ABC):
    """A phase that is not a sequence of equal noisy gradient steps: its steps share records, noise or a cost.

    The JSON of a phase is its kind and its fields: an event, numbers and tuples of numbers. The range of a number is in
    its annotation. For a tuple, the range holds for each number. `check` tests all further conditions.

    Attributes:
        kind: The name of the kind in a plan.
        charge: The form that the phase's event must have.
        ranges: The range of each number, by the field's name; made from the annotations.
        units: The units of each number that has units, by the field's name.
        event: The charged event. It stands for all steps together, or for one step with the number of steps as its
            count.
    """

    kind: ClassVar[str]
    units: ClassVar[Mapping[str, Units]]
    charge: ClassVar[Charge]
    ranges: ClassVar[Mapping[str, Real | Whole]]
    event: Event

    def __init_subclass__(cls) -> None:
        annotations = get_type_hints(cls, include_extras=True)
        found = {name: _range_of(hint) for name, hint in annotations.items()}
        cls.ranges = {name: within for name, within in found.items() if within is not None}

    def __post_init__(self) -> None:
        self.charge.check(self.event)
        for name, within in self.ranges.items():
            object.__setattr__(self, name, _checked(name, getattr(self, name), within))
        self.check()

    def check(self) -> None:
        """Refuse numbers that contradict each other. The range of each number has been checked before.

        Raises:
            InvalidValue: If numbers contradict each other.
        """
        return

    @property
    @abstractmethod
    def steps(self) -> int:
        """The number of steps that a trainer carries out."""

    @property
    @abstractmethod
    def batch_size(self) -> int:
        """The nominal number of records that the first step reads."""

    @property
    @abstractmethod
    def contribution_bound(self) -> float:
        """The length of the longest gradient that a record may contribute, in gradient units and the phase's norm."""

    @property
    @abstractmethod
    def noise_scale(self) -> tuple[float, ...]:
        """The scales of the noise, in the order in which noise is first drawn at each."""

    @property
    def smallest_bound(self) -> float:
        """The smallest bound on a gradient, in gradient units."""
        return self.contribution_bound

    @property
    def smallest_noise(self) -> float | None:
        """The smallest noise on a sum, divided by the sum's contribution bound. None if sums are not formed in the
        run's numeric type.
        """
        return None

    def smallest_change(self, radius: float) -> float | None:
        """Return the smallest bound on a change of a gradient, divided by the bound on a gradient. None if no changes
        are summed.

        Args:
            radius: The radius of the ball that contains the steps.
        """
        return None

    def noise(self, relation: NeighboringRelation) -> Noise:
        """Return a description of the noise. By default it has only the scales; kinds of phase with one sum or mean
        state more.
        """
        return Noise(noise_scale=self.noise_scale)

    @property
    def is_executable(self) -> bool:
        return True

    def to_json(self) -> dict[str, Json]:
        described = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"kind": self.kind} | described | {"event": self.event.to_json()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read a phase from the output of `to_json`.

        Raises:
            KeyError: If a field is missing.
            InvalidValue: If a number is outside its range.
        """
        types = get_type_hints(cls)
        given = {field.name: _read(types[field.name], value[field.name]) for field in fields(cls)}
        return cls(**given)


def _range_of(annotation: Any) -> Real | Whole | None:
    """Return the range that an annotation gives for a number or for each number of a tuple; None if it gives none."""
    if get_origin(annotation) is tuple:
        return _range_of(get_args(annotation)[0])
    found: Real | Whole | None = get_args(annotation)[1] if get_origin(annotation) is Annotated else None
    return found


def _checked(name: str, value: Any, within: Real | Whole) -> Any:
    """Return a number, or a tuple of numbers, if each number is in the range. None stays None."""
    if value is None:
        return None
    if isinstance(value, tuple | list):
        return tuple(_checked(name, item, within) for item in value)
    return within.read(name, value)


def _read(annotation: Any, value: Any) -> Any:
    """Return a field's value from JSON. Numbers may be strings, as in canonical bytes."""
    if annotation is Event:
        return event_from_json(value)
    if get_origin(annotation) is tuple:
        return tuple(_read(get_args(annotation)[0], item) for item in value)
    if annotation == float | None:
        return None if value is None else float(value)
    if annotation in (int, float, str):
        return annotation(value)
    raise TypeError(
        f"a field of a phase must be an event, a number or None, a string, or a tuple of these, not {annotation}"
    )
