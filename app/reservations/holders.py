"""The principals who may act on a reservation: its maker, and owners."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from app.auth.principal import Principal
from app.context import Context
from app.db.database import Database
from app.problems import Problem
from app.reservations import repository

# The principals that made reservations. They never change, so each is read once.
_MAKERS: WeakKeyDictionary[Database, dict[str, str]] = WeakKeyDictionary()
_MOST_REMEMBERED = 100_000


def is_known_to_hold(context: Context, reservation_id: str, principal: Principal) -> bool:
    """Return whether the principal is known to be allowed to act on it, without asking the database."""
    maker = _MAKERS.get(context.database, {}).get(reservation_id, "")
    return principal.acts_for(maker)


def check_holder(context: Context, reservation_id: str, principal: Principal) -> None:
    """Refuse principals that are neither the maker nor an owner. Whoever starts, extends, commits or voids a
    reservation states what was released, and a stranger cannot know that. A reservation that does not exist is not
    refused here.

    Raises:
        Problem: 403 ``not_your_reservation``.
    """
    if is_known_to_hold(context, reservation_id, principal):
        return
    with context.database.read() as session:
        row = repository.find(session, reservation_id)
    if row is None:
        return
    remember(context, reservation_id, row.principal_id)
    if not principal.acts_for(row.principal_id):
        detail = "Another key made this reservation. Only that key, or a key with the scope owner, can act on it."
        raise Problem(403, "not_your_reservation", detail)


def remember(context: Context, reservation_id: str, maker: str) -> None:
    """Remember who made a reservation."""
    known = _MAKERS.setdefault(context.database, {})
    if len(known) >= _MOST_REMEMBERED:
        known.clear()
    known[reservation_id] = maker
