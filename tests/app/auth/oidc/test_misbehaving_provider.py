"""A provider that hangs, trickles, says too much, or lists keys that no provider lists."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from starlette.testclient import TestClient

from app.auth.oidc import configuration
from app.auth.oidc import provider as providers
from app.auth.oidc.asking import Unavailable, ask_for_object
from app.context import Context
from app.kit import asking
from tests.app.auth.oidc.provider_of_tests import FaultyProvider, new_key, public_jwk
from tests.app.auth.oidc.test_bearer import SELF, refusal, with_token


@contextmanager
def answering(parts: Callable[[], Iterator[bytes]], pause_s: float = 0.0) -> Iterator[tuple[str, list[bytes]]]:
    """An address that answers with these bytes, a pause before each part; and the requests that it was sent."""
    asked: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                asked.append(connection.recv(65536))
                try:
                    for part in parts():
                        connection.sendall(part)
                        time.sleep(pause_s)
                except OSError:
                    continue

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/", asked
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def whole(body: bytes, status: str = "200 OK", more: str = "") -> Callable[[], Iterator[bytes]]:
    return lambda: iter([f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body])


_BEGIN = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("beginning", "part"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (_BEGIN + b"X-Long: ", b"a"),
        (_BEGIN + _CHUNKED + b"1;", b"a"),
        (_BEGIN + _CHUNKED, b"1\r\n \r\n"),
        (_BEGIN + b"Content-Length: 100000\r\n\r\n", b" "),
    ],
    ids=["statuses", "header", "length", "chunks", "body"],
)
def test_an_answer_that_trickles_is_cut_off(beginning: bytes, part: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "DEADLINE_S", 0.5)
    with answering(lambda: chain([beginning], repeat(part, 1000)), pause_s=0.02) as (address, _):
        began = time.monotonic()
        with pytest.raises(Unavailable, match="TimeoutError"):
            ask_for_object(address)
        assert 0.5 <= time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (whole(b'{"a": "' + b"a" * (512 * 1024) + b'"}'), "ValueError"),
        (whole(b'{"a":' * 100_000), "RecursionError"),
        (whole(b'{"a": ' + b"1" * 5000 + b"}"), "ValueError"),
        (whole(b"[1]"), "not a JSON object"),
        (whole(b"{}", "302 Found", "Location: http://127.0.0.1:1/\r\n"), "status 302"),
        (whole(b"{}", "500 Oh"), "status 500"),
        (lambda: iter([b"nonsense\r\n\r\n"]), "BadStatusLine"),
        (lambda: iter([]), "RemoteDisconnected"),
    ],
)
def test_an_answer_that_no_provider_gives_is_none(parts: Callable[[], Iterator[bytes]], reason: str) -> None:
    with answering(parts) as (address, _), pytest.raises(Unavailable, match=reason):
        ask_for_object(address)


def test_what_stays_on_the_machine_goes_through_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's secret goes over http to the machine itself alone, and not in the clear to a proxy elsewhere."""
    with answering(whole(b"{}")) as (proxy, seen), answering(whole(b'{"a": 1}')) as (address, _):
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert ask_for_object(address, form={"code": "secret"}) == {"a": 1}
        assert seen == []
        # What goes out is encrypted to its end, and may take the proxy.
        monkeypatch.setenv("https_proxy", proxy)
        with pytest.raises(Unavailable):
            ask_for_object("https://login.example/", form={"code": "secret"})
        assert len(seen) == 1
        assert seen[0].startswith(b"CONNECT login.example:443")
        assert b"secret" not in seen[0]


def _leaked(key: Any) -> dict[str, Any]:
    return {**RSAAlgorithm.to_jwk(key, as_dict=True), "use": "sig", "alg": "RS256"}


def test_keys_that_nobody_may_trust_sign_nothing_and_spoil_nothing(
    stranger: TestClient, provider: FaultyProvider
) -> None:
    leaked, short = new_key(), rsa.generate_private_key(public_exponent=65537, key_size=1024)
    provider.key_set = {
        "keys": [
            {"kty": "RSA", "kid": "none", "alg": "none"},
            {**_leaked(leaked), "kid": "leaked"},
            public_jwk(short, "short", "RS256"),
            public_jwk(provider.keys["one"], "one", "RS256"),
        ]
    }
    assert stranger.get(SELF, headers=with_token(provider.token())).status_code == 200
    refusal(stranger, jwt.encode(provider.claims(), leaked, "RS256", {"kid": "leaked"}))
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        forged = jwt.encode(provider.claims(), short, "RS256", {"kid": "short"})
    assert "too short" in refusal(stranger, forged)


def test_nobody_waits_for_a_provider_that_hangs_where_its_keys_are_known(
    provider: FaultyProvider, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    known = providers.provider_of(context)
    assert known is not None
    known.clock = lambda: clock[0]
    assert known.key("one") is not None
    is_asked, may_end = threading.Event(), threading.Event()
    found: list[object] = []

    def hang(address: str) -> dict[str, Any]:
        is_asked.set()
        assert may_end.wait(60)
        return ask_for_object(address)

    monkeypatch.setattr(providers, "ask_for_object", hang)
    clock[0] += providers.FRESH_S
    first = threading.Thread(target=known.key, args=("one",))
    first.start()
    assert is_asked.wait(60)
    second = threading.Thread(target=known.key, args=("one",))
    second.start()
    second.join(10)
    is_waiting = second.is_alive()
    # Whoever has a token of a key that is not known waits, since the key may be among those that come.
    provider.keys["two"] = new_key()
    third = threading.Thread(target=lambda: found.append(known.key("two")))
    third.start()
    third.join(0.3)
    may_end.set()
    for thread in (first, second, third):
        thread.join()
    assert not is_waiting
    assert found[0] is not None
    assert len(provider.asked) == 4, "each document once at first, and once more"


def test_few_threads_wait_for_the_provider(provider: FaultyProvider, context: Context) -> None:
    known = providers.provider_of(context)
    assert known is not None
    assert known.key("one") is not None
    asked = len(provider.asked)
    with ExitStack() as waiting:
        for _ in range(providers._MOST_WAITING):
            waiting.enter_context(known._place())
        with pytest.raises(Unavailable, match="too many"):
            known.id_token("code", "verifier", "https://epsilond.example")
        assert len(provider.asked) == asked
    with pytest.raises(Unavailable, match="status 400"):
        known.id_token("code", "verifier", "https://epsilond.example")


@pytest.mark.parametrize("keys", [None, {}, "one", []])
def test_a_key_set_without_keys_is_no_word_of_the_provider(
    stranger: TestClient, provider: FaultyProvider, keys: object
) -> None:
    provider.key_set = {"keys": keys}
    answer = stranger.get(SELF, headers=with_token(provider.token()))
    assert answer.status_code == (401 if keys == [] else 503)


def test_groups_are_looked_for_in_nested_claims(
    stranger: TestClient, provider: FaultyProvider, configure: Callable[..., Path]
) -> None:
    configure(groups_claim=["realm_access", "roles"])
    configuration._read.cache_clear()
    good = provider.token(groups=None, realm_access={"roles": ["analysts"]})
    assert stranger.get(SELF, headers=with_token(good)).status_code == 200
    for claim in (None, "roles", ["roles"], {"roles": {"analysts": 1}}, {"roles": 1}, {"analysts": ["roles"]}):
        refusal(stranger, provider.token(realm_access=claim), 403, "no_rights")


def test_headers_and_claims_that_are_no_text_or_nest_too_deep_are_refused(
    stranger: TestClient, provider: FaultyProvider
) -> None:
    deep: Any = []
    for _ in range(500):
        deep = [deep]
    for headers in ({"x": deep}, {"x": json.loads("9" * 4000)}, {"typ": None}):
        assert stranger.get(SELF, headers=with_token(provider.token(headers=headers))).status_code in (200, 401)
    refusal(stranger, f"{'W' * 20_000}.e30.e30")
    refusal(stranger, f"{jwt.utils.base64url_encode(b'[' * 20_000).decode()}.e30.e30")
    refusal(stranger, provider.token(groups=["analysts"], padding="x" * 40_000))
    refusal(stranger, f"{provider.token()}.e30.e30".replace("..", "."), code="invalid_key")
