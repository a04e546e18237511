"""Records whose fields declare their ranges. The ranges are checked when a record is made, and shown in the interface.

A field is annotated with its type and its range, such as ``Annotated[float, Real(0.0, 1.0, "Share of the records.")]``.
The schemas of the HTTP contract are made from the same annotations and docstrings, so that each range is written only
once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, ClassVar, TypeVar, get_args, get_origin, get_type_hints

from accounting.canonical import Json
from accounting.errors import InvalidValue, one_of
from accounting.numbers import read_integer, read_real


@dataclass(frozen=True, slots=True)
class Real:
    """A real number.

    Attributes:
        lower, upper: The ends of its range; ``open_lower`` excludes the lower one.
        meaning: What the number is, in its unit, for a person who sends it.
    """

    lower: float
    upper: float = 1e12
    meaning: str = ""
    open_lower: bool = False

    def read(self, name: str, value: object) -> float:
        return read_real(name, value, self.lower, self.upper, open_lower=self.open_lower)


@dataclass(frozen=True, slots=True)
class Whole:
    """An integer from ``lower`` to ``upper``; ``meaning`` is what it counts."""

    lower: int
    upper: int
    meaning: str = ""

    def read(self, name: str, value: object) -> int:
        return read_integer(name, value, self.lower, self.upper)


@dataclass(frozen=True, slots=True)
class Word:
    """One of a few words, each with its meaning."""

    meanings: Mapping[str, str]

    @property
    def meaning(self) -> str:
        """All words with their meanings, as Markdown."""
        return " ".join(f"`{word}`: {meaning}" for word, meaning in self.meanings.items())

    def read(self, name: str, value: object) -> str:
        if not isinstance(value, str) or value not in self.meanings:
            raise InvalidValue(f"{name} must be {one_of(list(self.meanings))}", pointer=(name,))
        return value


@dataclass(frozen=True, slots=True)
class Reals:
    """A list of 1 to ``most`` real numbers, all in the same range; ``meaning`` is what the list says."""

    each: Real
    most: int
    meaning: str = ""

    def read(self, name: str, value: object) -> tuple[float, ...]:
        items = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else []
        if not 1 <= len(items) <= self.most:
            raise InvalidValue(f"{name} must be a list of 1 to {self.most} numbers", pointer=(name,))
        return tuple(self._read_item(name, index, item) for index, item in enumerate(items))

    def _read_item(self, name: str, index: int, item: object) -> float:
        try:
            return self.each.read(name, item)
        except InvalidValue as error:
            error.pointer = (name, index)
            raise


Range = Real | Whole | Word | Reals


@dataclass(frozen=True, slots=True)
class Described:
    """A kind of record. A subclass is a frozen dataclass, and each of its fields is annotated with its range.

    Attributes:
        kind: The name of the kind in JSON.
        ranges: The range of each field, by the field's name.

    Raises:
        InvalidValue: If a field is outside its range.
    """

    kind: ClassVar[str]
    ranges: ClassVar[Mapping[str, Range]]

    def __init_subclass__(cls) -> None:
        hints = get_type_hints(cls, include_extras=True)
        cls.ranges = {name: get_args(hint)[1] for name, hint in hints.items() if get_origin(hint) is Annotated}

    def __post_init__(self) -> None:
        for name, within in self.ranges.items():
            object.__setattr__(self, name, within.read(name, getattr(self, name)))

    def to_json(self) -> dict[str, Json]:
        """Return the record as the HTTP contract writes it; `from_json` reads it back to an equal one."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"kind": self.kind} | {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


D = TypeVar("D", bound=Described)


def register(cls: type[D], known: dict[str, type[D]]) -> None:
    """Add a kind to those that are known.

    Raises:
        ValueError: If another class has the same kind.
        TypeError: If a field has no range.
    """
    if cls.kind in known:
        raise ValueError(f"{known[cls.kind].__name__} has the kind {cls.kind!r}; give {cls.__name__} another one")
    for field in fields(cls):
        if field.name not in cls.ranges:
            raise TypeError(
                f"annotate {cls.__name__}.{field.name} with its range, such as Annotated[float, Real(0, 1)]"
            )
    known[cls.kind] = cls


def from_json(value: object, known: Mapping[str, type[D]], *place: str) -> D:
    """Read what `Described.to_json` wrote, or the same with numbers as canonical strings.

    Args:
        known: The kinds that are possible.
        place: The path of the value in the JSON that is read.

    Raises:
        InvalidValue: If the kind is unknown, or a field is outside its range.
    """
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(kind, str) or kind not in known:
        raise InvalidValue(f"{'.'.join((*place, 'kind'))} must be {one_of(list(known))}", pointer=(*place, "kind"))
    return known[kind](**{name: _value(item) for name, item in value.items() if name != "kind"})


def _value(item: object) -> object:
    """Return a number, which may be written as its canonical string, a word, or a tuple of numbers."""
    if isinstance(item, list | tuple):
        return tuple(_value(entry) for entry in item)
    try:
        return float(str(item))
    except ValueError:
        return item
