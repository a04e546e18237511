"""Principals: each request acts for one, whose scopes say what it may do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from app.entries import kinds


class Scope(StrEnum):
    """A key has scopes, which say what it allows. ``admin`` implies every other."""

    OWNER = "owner"
    """Opens budgets, registers data, raises charges by corrections, decides requests for other limits, and may do all
    that analysts and auditors may."""
    ANALYST = "analyst"
    """Calibrates, reserves, starts, commits, runs, and asks for other limits."""
    AUDITOR = "auditor"
    """Reads all of budgets, entries and spending; exports and verifies the ledger."""
    LIMITS = "limits"
    """Changes a budget's limit."""
    CORRECTIONS = "corrections"
    """Lowers a charge that was wrong."""
    REFUNDS = "refunds"
    """States which steps of a plan were never taken, so that a part of its charge is given back."""
    METRICS = "metrics"
    """Reads `/metrics`."""
    ADMIN = "admin"
    """May do all of this, declares rows public, and makes, rotates and revokes keys."""


@dataclass(frozen=True)
class Principal:
    """The principal for which a request acts: a key, or on a server without keys ``loopback`` or ``anybody``.

    Attributes:
        id: The id of the key.
        name: The name of the key, for people.
        scopes: The scopes of the key.
        budgets: Paths of the budgets that it reaches, with all below them; None for all budgets.
        valid_until: The end of the token that was sent; None for no end.
        requests_per_second, concurrent_requests: The key's own limits; 0 for no limit, None for those of the settings.
    """

    id: str
    scopes: frozenset[Scope]
    name: str = ""
    budgets: tuple[str, ...] | None = None
    valid_until: datetime | None = None
    requests_per_second: float | None = None
    concurrent_requests: int | None = None

    def may(self, *scopes: Scope) -> bool:
        """Return whether the principal has any of ``scopes``."""
        return Scope.ADMIN in self.scopes or not self.scopes.isdisjoint(scopes)

    def reaches(self, path: str) -> bool:
        """Return whether the key reaches the budget at ``path``, which has the ids from the root on, as in the budget's
        row."""
        return self.budgets is None or any(path == each or path.startswith(f"{each}/") for each in self.budgets)

    def acts_for(self, principal_id: str) -> bool:
        """Return whether it may continue or end what a principal has begun: its own work, or as an owner anybody's."""
        return self.id == principal_id or self.may(Scope.OWNER)

    def visible_part(self, path: str) -> list[str]:
        """Return the ids in ``path`` of the budgets that the key reaches; budgets above them stay hidden.

        >>> Principal("key_1", frozenset(), budgets=("bud_a/bud_b",)).visible_part("bud_a/bud_b/bud_c")
        ['bud_b', 'bud_c']
        """
        ids = path.split("/")
        return [each for place, each in enumerate(ids, 1) if self.reaches("/".join(ids[:place]))]


#: The principal on a server without keys who sends the token of `app.auth.local_token` from the server's own machine.
LOOPBACK = Principal(kinds.LOOPBACK, frozenset(Scope), "this machine")
#: Everyone on the machine of a server without keys who sends no token. The guard allows them calculations only, and
#: they reach nothing that is stored.
ANYBODY = Principal("anybody", frozenset({Scope.ANALYST}), "anybody", budgets=())
#: The service itself, for work that no request asked for.
SERVICE = Principal(kinds.SERVICE, frozenset(), "the service")
