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
#: Keys that are remembered before all are forgotten.
_MOST = 1000


@dataclass
class KeyMemory:
    """The answers of `service.keys_exist` and `service.authenticate`, believed for `SECONDS`.

    What this process itself changes of the keys is known at once. Tokens are kept as their hashes.
    """

    context: Context
    _keys_exist: bool = False
    _no_key_until: float = 0.0
    _principals: dict[bytes, tuple[float, Principal]] = field(default_factory=dict)
    _changes: int = 0

    def keys_exist(self, *, ask: bool) -> bool | None:
        """Whether the server has, or ever had, a key; None if that is not known and ``ask`` is false.

        Keys are never deleted, only revoked: once there is one, that is so for ever.
        """
        self._hear_of_changes()
        if self._keys_exist or time.monotonic() < self._no_key_until:
            return self._keys_exist
        if not ask:
            return None
        before, found = service.changes(self.context), service.keys_exist(self.context)
        if found:
            self._keys_exist = True
        # What changed while the database was asked may not be in its answer.
        if service.changes(self.context) == before:
            self._no_key_until = time.monotonic() + SECONDS
        return self._keys_exist

    def principal(self, token: str, *, ask: bool) -> Principal | None:
        """The principal of a token; None if it has none, or if that is not known and ``ask`` is false."""
        self._hear_of_changes()
        digest = hashlib.sha256(token.encode()).digest()
        until, principal = self._principals.get(digest, (0.0, None))
        if time.monotonic() < until:
            return principal
        if not ask:
            return None
        before, principal = service.changes(self.context), service.authenticate(self.context, token)
        if principal is not None and service.changes(self.context) == before:
            if len(self._principals) >= _MOST:
                self._principals.clear()
            self._principals[digest] = (time.monotonic() + SECONDS, principal)
        return principal

    def _hear_of_changes(self) -> None:
        changes = service.changes(self.context)
        if changes != self._changes:
            self._changes, self._no_key_until = changes, 0.0
            self._principals.clear()
