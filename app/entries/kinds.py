"""The kinds of entries, and the data that a charge is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from accounting.canonical import Json

#: The principals of entries that were made without a key: the local token, and the service itself for work that nobody
#: asked for.
LOOPBACK, SERVICE = "loopback", "service"
WITHOUT_A_KEY = frozenset({LOOPBACK, SERVICE})


class EntryKind(StrEnum):
    """An entry records one of these, such as the making of a budget, one step of a reservation, or a change by hand."""

    CREATE = "create"
    """A budget was opened."""
    RESERVE = "reserve"
    """Cost was held for events to come."""
    START = "start"
    """Noise was about to be drawn."""
    EXTEND = "extend"
    """A reservation was given more time."""
    COMMIT = "commit"
    """Events happened, all of those reserved or a part, and were charged."""
    VOID = "void"
    """A reservation was given up before any noise was drawn."""
    EXPIRE = "expire"
    """A reservation was not started in time."""
    CORRECT = "correct"
    """A charge was corrected, or something charged that no reservation held."""
    LIMIT = "limit"
    """A budget's limit was changed: by hand, or by the last approval of a request."""
    ASK = "ask"
    """Another limit was asked for. Charges nothing."""
    APPROVE = "approve"
    """A request for another limit got an approval that is not the last; the last one is a `limit`. Charges nothing."""
    REFUSE = "refuse"
    """A request for another limit was refused. Charges nothing."""
    WITHDRAW = "withdraw"
    """A request for another limit was taken back. Charges nothing."""
    LOSS = "loss"
    """Entries were lost with the database, and the service went on with an older copy. Charges nothing."""
    REGISTER = "register"
    """A data set was declared, a key made, a run queued or an audit kept. Charges nothing."""
    CHANGE = "change"
    """Something that the register says of a data set, a key or a run has changed."""
    END = "end"
    """A data set was deleted, a key revoked, or a run has ended."""


@dataclass(frozen=True)
class ChargedData:
    """The data that a charge is for.

    Attributes:
        dataset_id: The data set.
        version: The version of the data set.
        content: A keyed hash of the rows, which no other version of any data set has
            (`app.entries.registered.content_under`).
    """

    dataset_id: str
    version: int
    content: str

    def to_json(self) -> dict[str, Json]:
        """Return its canonical description."""
        return {"content": self.content, "id": self.dataset_id, "version": self.version}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> ChargedData:
        """Read what `to_json` wrote.

        Raises:
            ValueError, KeyError, TypeError: `to_json` did not write this.
        """
        if plain.keys() != {"content", "id", "version"}:
            raise ValueError("data that are charged for need an id, a version and a content hash")
        return cls(str(plain["id"]), int(plain["version"]), str(plain["content"]))
