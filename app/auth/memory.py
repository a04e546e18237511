"""What the database has just said of keys, so that not every request asks it again."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field

from app.auth import service
from app.auth.principal import Principal
from app.kit.context import Context

#: So long another process' word on a key may go unheard: a key that it revoked, the first key that it created.
SECONDS = 1.0
#: The use of a key is noted this often, seconds: a write, and nobody asks for more than living or dead.
NOTED_EVERY_S = 600.0
#: Keys that are remembered before all are forgotten.
_MOST = 1000


@dataclass
class KeyMemory:
    """The answers of `service.keys_exist` and `service.authenticate`, believed for `SECONDS`.

    What this process itself changes of the keys is known at once, and no token is believed past its own time. Tokens
    are kept as their hashes.
    """

    context: Context
    _keys_exist: bool = False
    _no_key_since: float | None = None
    _principals: dict[bytes, tuple[float, Principal]] = field(default_factory=dict)
    _noted: dict[str, float] = field(default_factory=dict)
    _changes: int = 0

    def keys_exist(self, *, ask: bool) -> bool | None:
        """Whether the server has, or ever had, a key; None if that is not known and ``ask`` is false.

        Keys are never deleted, only revoked: once there is one, that is so for ever.
        """
        self._hear_of_changes()
        if self._keys_exist or (self._no_key_since is not None and _is_fresh(self._no_key_since)):
            return self._keys_exist
        if not ask:
            return None
        since = time.monotonic()
        before, found = service.changes(self.context), service.keys_exist(self.context)
        if found:
            self._keys_exist = True
        # What changed while the database was asked may not be in its answer.
        if service.changes(self.context) == before:
            self._no_key_since = since
        return self._keys_exist

    def principal(self, token: str, *, ask: bool) -> Principal | None:
        """The principal of a token; None if it has none, or if that is not known and ``ask`` is false."""
        self._hear_of_changes()
        digest = _digest(token)
        known = self._principals.get(digest)
        if known is not None and _is_fresh(known[0]) and not self._is_over(known[1]):
            return known[1]
        if not ask:
            return None
        since = time.monotonic()
        before, principal = service.changes(self.context), service.authenticate(self.context, token)
        if principal is None:
            self._principals.pop(digest, None)
        elif service.changes(self.context) == before:
            if len(self._principals) >= _MOST:
                self._principals.clear()
            self._principals[digest] = (since, principal)
        return principal

    def knows(self, token: str) -> bool:
        """Whether the token was good when the database was last asked, however long ago."""
        return _digest(token) in self._principals

    def is_due_for_a_note(self, principal: Principal) -> bool:
        """Whether the use of the key is to be noted now; after that, not again for `NOTED_EVERY_S`."""
        now = time.monotonic()
        if now - self._noted.get(principal.id, -NOTED_EVERY_S) < NOTED_EVERY_S:
            return False
        if len(self._noted) >= _MOST:
            self._noted.clear()
        self._noted[principal.id] = now
        return True

    def _is_over(self, principal: Principal) -> bool:
        return principal.valid_until is not None and principal.valid_until <= self.context.clock()

    def _hear_of_changes(self) -> None:
        changes = service.changes(self.context)
        if changes != self._changes:
            self._changes, self._no_key_since = changes, None
            self._principals.clear()


def _is_fresh(since: float) -> bool:
    return time.monotonic() - since < SECONDS


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
