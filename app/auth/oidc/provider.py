"""The provider's addresses and signing keys, which this process fetches and remembers."""

from __future__ import annotations

import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from weakref import WeakKeyDictionary

import jwt

from app.auth.oidc.asking import Unavailable, ask_for_object
from app.auth.oidc.configuration import Configuration, configuration_of, is_trusted_address
from app.context import Context
from app.db.database import Database

#: The signature algorithms that are accepted: a signature of each needs the provider's private key. ``none`` and
#: algorithms with a shared secret are not among them.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
#: The seconds for which the provider's description of itself is used before it is fetched again.
FRESH_S = 300.0
#: The seconds for which the description is still used if the provider does not answer.
STALE_S = 3600.0
#: If a token names an unknown key, the keys are fetched again, but at most once in this many seconds.
ASKED_AGAIN_AFTER_S = 10.0
_MOST_KEYS = 100
_MOST_WAITING = 16
_ADDRESSES = ("authorization_endpoint", "token_endpoint", "jwks_uri")


@dataclass(frozen=True)
class _Known:
    """An answer of the provider, and its time."""

    addresses: Mapping[str, str]
    keys: Mapping[str | None, jwt.PyJWK]
    time: float


@dataclass
class Provider:
    """The provider of a configuration. Its methods may wait for the network: they are called in threads.

    Attributes:
        configuration: The configuration from the file.
        clock: A monotonic clock, in seconds.
    """

    configuration: Configuration
    clock: Callable[[], float] = time.monotonic
    _known: _Known | None = None
    _tried: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _places: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(_MOST_WAITING))

    def authorization_endpoint(self) -> str:
        """Return the address at which browsers sign in.

        Raises:
            Unavailable: the provider has never given it.
        """
        return self._recent().addresses["authorization_endpoint"]

    def key(self, key_id: str | None) -> jwt.PyJWK | None:
        """Return the key of a token that names ``key_id``; None if the provider signs with no such key.

        If a token names no key and the provider has exactly one, that key is returned.

        Raises:
            Unavailable: the provider's keys are not known.
        """
        known = self._recent()
        if key_id not in known.keys:
            known = self._recent(fresh_s=ASKED_AGAIN_AFTER_S)
        return known.keys.get(key_id)

    def id_token(self, code: str, verifier: str, redirect_uri: str) -> str:
        """Exchange a code for the token that says who has signed in.

        Raises:
            Unavailable: the provider gives no token, because the code is wrong, used or expired, or the client's secret
                is wrong.
        """
        configuration, address = self.configuration, self._recent().addresses["token_endpoint"]
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        headers, secret = {}, configuration.client_secret
        if secret is None:
            form["client_id"] = configuration.client_id
        else:
            pair = f"{quote(configuration.client_id, safe='')}:{quote(secret, safe='')}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        with self._place():
            token = ask_for_object(address, form=form, headers=headers).get("id_token")
        if not isinstance(token, str):
            raise Unavailable(f"{address}: the answer has no id_token")
        return token

    def _recent(self, fresh_s: float = FRESH_S) -> _Known:
        """Return the provider's answer, asking again if it is older than ``fresh_s``."""
        known = self._known
        if known is not None and self.clock() - known.time < fresh_s:
            return known
        # If the known answer is recent enough, a thread does not wait for another thread's request to the provider.
        does = fresh_s == FRESH_S and known is not None and self.clock() - known.time < STALE_S
        if self._is_due() and not (does and self._lock.locked()):
            with suppress(Unavailable), self._place(), self._lock:
                if self._known is known and self._is_due():  # no other thread asked while this one waited
                    try:
                        self._known = self._asked()
                    finally:
                        self._tried = self.clock()
        if self._known is None or self.clock() - self._known.time >= STALE_S:
            raise Unavailable(f"{self.configuration.issuer}: its configuration and keys are not known at present")
        return self._known

    def _is_due(self) -> bool:
        return self._tried is None or self.clock() - self._tried >= ASKED_AGAIN_AFTER_S

    @contextmanager
    def _place(self) -> Iterator[None]:
        """Take a place among the threads that may wait for the provider, so that a provider that hangs blocks no
        others.

        Raises:
            Unavailable: all places are taken.
        """
        if not self._places.acquire(blocking=False):
            raise Unavailable(f"{self.configuration.issuer}: too many requests wait for it")
        try:
            yield
        finally:
            self._places.release()

    def _asked(self) -> _Known:
        issuer = self.configuration.issuer
        document = ask_for_object(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if document.get("issuer") != issuer:
            raise Unavailable(f"{issuer}: its discovery document names another issuer")
        addresses = {name: document.get(name) for name in _ADDRESSES}
        for name, address in addresses.items():
            if not isinstance(address, str) or not is_trusted_address(address):
                raise Unavailable(f"{issuer}: its discovery document has no usable {name}")
        found = {name: str(address) for name, address in addresses.items()}
        return _Known(found, _signing_keys(ask_for_object(found["jwks_uri"])), self.clock())


def _signing_keys(document: Mapping[str, Any]) -> dict[str | None, jwt.PyJWK]:
    """Return the signing keys by their names; a single key also without a name."""
    entries = document.get("keys")
    if not isinstance(entries, list):
        raise Unavailable("the provider's key set has no keys")
    keys: dict[str | None, jwt.PyJWK] = {}
    for entry in entries[:_MOST_KEYS]:
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig" or entry.get("kty") == "oct":
            continue
        if entry.get("alg") not in (None, *ALGORITHMS) or "d" in entry:  # "d" is the private key
            continue
        try:
            key = jwt.PyJWK(entry)
        except (jwt.PyJWTError, ValueError, TypeError):
            continue  # keys of this kind are not supported: tokens that they sign are refused
        if key.algorithm_name in ALGORITHMS:
            keys[entry.get("kid") if isinstance(entry.get("kid"), str) else None] = key
    if len(keys) == 1:
        keys[None] = next(iter(keys.values()))
    else:
        keys.pop(None, None)
    return keys


_PROVIDERS: WeakKeyDictionary[Database, Provider] = WeakKeyDictionary()


def provider_of(context: Context) -> Provider | None:
    """Return the provider of this process; None if nobody signs in by one.

    Raises:
        Wrong: the configuration cannot be used.
    """
    configuration = configuration_of(context.settings)
    if configuration is None:
        return None
    provider = _PROVIDERS.get(context.database)
    if provider is None or provider.configuration != configuration:
        provider = _PROVIDERS[context.database] = Provider(configuration)
    return provider
