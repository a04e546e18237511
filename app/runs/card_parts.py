"""The parts of a privacy card: sections of paragraphs, tables and points, and values in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import BaseModel

from app.kit.timestamps import format_moment

NONE = "none"
#: Of longer lists of numbers, only the first and the last are shown.
LISTED_NUMBERS = 12


@dataclass(frozen=True)
class Cell:
    """A text. `is_code` marks texts that are copied rather than read, such as ids, hashes and formulas."""

    text: str
    is_code: bool = False


@dataclass(frozen=True)
class Table:
    """A table in which the first cell of each row is its heading."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Section:
    title: str
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    points: tuple[str, ...] = ()


@dataclass(frozen=True)
class Card:
    """A page for decision makers, and an appendix with every fact.

    Attributes:
        title: The title of the card.
        statement: The guarantee in a sentence.
        summary: The sections of the first page.
        appendix: All other sections.
    """

    title: str
    statement: str
    summary: tuple[Section, ...] = field(default=())
    appendix: tuple[Section, ...] = field(default=())


def show(value: object) -> str:
    """Return the text that shows a value of the card.

    >>> show({"kind": "poisson", "sampling_probability": 0.02}), show([1.0, 2.0]), show(None), show(True)
    ('poisson: sampling_probability 0.02', '1.0, 2.0', 'none', 'yes')
    """
    if isinstance(value, BaseModel):
        value = dict(value)
    if isinstance(value, Mapping):
        parts = [f"{name} {show(item)}" for name, item in value.items() if name != "kind"]
        return ": ".join(part for part in (str(value.get("kind", "")), ", ".join(parts)) if part) or NONE
    if isinstance(value, list | tuple):
        return _show_list(list(value))
    return _show_one(value)


def _show_one(value: object) -> str:
    match value:
        case None:
            return NONE
        case bool():
            return "yes" if value else "no"
        case float():
            return repr(value)
        case datetime():
            return format_moment(value)
    return str(value)


def _show_list(values: list[object]) -> str:
    numbers = [value for value in values if isinstance(value, int | float)]
    if len(numbers) == len(values) > LISTED_NUMBERS:
        return (
            f"{len(values)} numbers, from {show(values[0])} to {show(values[-1])}, the least {show(min(numbers))} and "
            f"the greatest {show(max(numbers))}"
        )
    return ", ".join(map(show, values)) or NONE


def fact_table(caption: str, pairs: Iterable[tuple[str, object]], *, codes: Iterable[str] = ()) -> Table:
    """Return a table of names and values; values of the names in ``codes`` are copied rather than read."""
    named = set(codes)
    rows = tuple(
        (Cell(name.replace("_", " ")), Cell(show(value), name in named and value is not None)) for name, value in pairs
    )
    return Table(caption, ("what", "is"), rows)
