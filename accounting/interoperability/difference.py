"""The answer to an import: our events, the library's own number for them, and each reason why the two differ."""

from __future__ import annotations

from dataclasses import dataclass

from accounting.events import Event
from accounting.relations import NeighboringRelation


@dataclass(frozen=True, slots=True)
class Difference:
    """One reason why a library's number is not ours.

    Attributes:
        code: Stable name.
        detail: One or two sentences: what the library does, and what is right.
        unsound: Whether the library may report too little privacy loss because of it.
    """

    code: str
    detail: str
    unsound: bool


@dataclass(frozen=True, slots=True)
class Reported:
    """The number that the library reports.

    Attributes:
        library, accountant: The library and the accountant of the number.
        relation: The neighbouring relation that it means.
        epsilon: At the delta that was asked; None if it has none, or where its accountant has not been asked.
    """

    library: str
    accountant: str
    relation: NeighboringRelation
    epsilon: float | None


@dataclass(frozen=True, slots=True)
class Imported:
    """A history of another library in events of this engine.

    Attributes:
        events: To be accounted under the relation that was asked for.
        reported: The library's number for what it was told.
        differences: Why it is not that of the events.
    """

    events: tuple[Event, ...]
    reported: Reported
    differences: tuple[Difference, ...]
