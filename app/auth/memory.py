"""A short-lived memory of the database's answers about keys, so that not every request asks again."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field

from app.auth import local_token, service, sessions
from app.auth.principal import Principal
from app.context import Context

#: The seconds for which a change of keys by another process may go unnoticed: a revocation, or the first key.
SECONDS = 1.0
#: The seconds between two notes of a key's use. Each is a write, and readers only ask whether a key is still in use.
NOTED_EVERY_S = 600.0
#: The number of keys that are remembered; beyond that, all are forgotten.
_MOST = 1000


@dataclass(frozen=True)
class _Moment:
    """The moment just before the database was asked; its answer may lack later changes."""

    time: float
    changes: int


@dataclass
class KeyMemory:
    """The answers of `service.keys_exist` and `service.authenticate`, remembered for `SECONDS`.

    Changes that this process makes to keys take effect at once, and no token is accepted after its end. Only hashes of
    tokens are kept.
    """

    context: Context
    _keys_exist: bool = False
    _no_key: _Moment | None = None
    _principals: dict[bytes, tuple[_Moment, Principal]] = field(default_factory=dict)
    _noted: dict[str, float] = field(default_factory=dict)

    def keys_exist(self, *, ask: bool) -> bool | None:
        """Return whether the server has, or ever had, a key; None if that is not known and ``ask`` is false.

        Keys are revoked but never deleted, so the answer stays true once it is true.
        """
        if self._keys_exist or (self._no_key is not None and self._is_fresh(self._no_key)):
            return self._keys_exist
        if not ask:
            return None
        moment = self._moment()
        if service.keys_exist(self.context):
            self._keys_exist = True
            local_token.remove(self.context)  # the key may have been made on another machine
        self._no_key = moment
        return self._keys_exist

    def principal(self, token: str, *, ask: bool) -> Principal | None:
        """Return the principal of a token; None if it has none, or if this is not known and ``ask`` is false."""
        digest = _digest(token)
        known = self._principals.get(digest)
        if known is not None and self._is_fresh(known[0]) and not self._is_over(known[1]):
            return known[1]
        if not ask:
            return None
        moment, principal = self._moment(), self._look_up(token)
        if principal is None:
            self._principals.pop(digest, None)
            return None
        if len(self._principals) >= _MOST:
            self._principals.clear()
        self._principals[digest] = (moment, principal)
        return principal

    def knows(self, token: str) -> bool:
        """Return whether the token was valid when the database was last asked, however long ago."""
        return _digest(token) in self._principals

    def is_due_for_a_note(self, principal: Principal) -> bool:
        """Return whether to record the use of the key now; it is then not recorded again for `NOTED_EVERY_S`."""
        now = time.monotonic()
        if now - self._noted.get(principal.id, -NOTED_EVERY_S) < NOTED_EVERY_S:
            return False
        if len(self._noted) >= _MOST:
            self._noted.clear()
        self._noted[principal.id] = now
        return True

    def _look_up(self, token: str) -> Principal | None:
        if self.context.settings.oidc_file is not None and token.count(".") == 2:
            from app.auth.oidc import accounts  # noqa: PLC0415  # only where there is a provider: it loads cryptography

            return accounts.authenticate(self.context, token)
        return service.authenticate(self.context, token)

    def _is_over(self, principal: Principal) -> bool:
        return principal.valid_until is not None and principal.valid_until <= self.context.clock()

    def _moment(self) -> _Moment:
        return _Moment(time.monotonic(), service.changes(self.context))

    def _is_fresh(self, moment: _Moment) -> bool:
        """Return whether this process has changed no key since this time, and at most `SECONDS` have passed."""
        return moment.changes == service.changes(self.context) and time.monotonic() - moment.time < SECONDS


class SessionMemory(KeyMemory):
    """The memory of sessions, whose cookies are used in place of tokens."""

    def _look_up(self, token: str) -> Principal | None:
        return sessions.authenticate(self.context, token)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
