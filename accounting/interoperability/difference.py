"""The answer to an import: our events, the library's own number for them, and each reason why the two differ."""

from __future__ import annotations

from dataclasses import dataclass

from accounting.events import Event
from accounting.relations import NeighboringRelation


@dataclass(frozen=True, slots=True)
class Difference:
    """One reason why a library's number is not ours.

    Attributes:
        code: A stable name.
        detail: One or two sentences that say what the library does and what would be right.
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
        relation: The neighbouring relation of the number.
        epsilon: The epsilon at the given delta; None if it is not finite, or if the accountant was not asked.
    """

    library: str
    accountant: str
    relation: NeighboringRelation
    epsilon: float | None


@dataclass(frozen=True, slots=True)
class Imported:
    """A history of another library in events of this engine.

    Attributes:
        events: The events, to be accounted under the given relation.
        reported: The library's number for the history that it recorded.
        differences: The reasons why it differs from that of the events.
    """

    events: tuple[Event, ...]
    reported: Reported
    differences: tuple[Difference, ...]
