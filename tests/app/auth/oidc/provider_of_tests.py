"""An OpenID Connect provider on this machine that can be told to misbehave; its tokens are signed as real ones are."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

CLIENT_ID = "epsilond"
AUDIENCE = "https://epsilond.example/v1"


def new_key(kind: str = "RS256") -> Any:
    if kind.startswith("ES"):
        return ec.generate_private_key(ec.SECP256R1())
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def first_key() -> Any:
    """The key of each provider that no test has given another: making one takes a tenth of a second."""
    return new_key()


def public_jwk(key: Any, key_id: str, algorithm: str) -> dict[str, Any]:
    kind = ECAlgorithm if algorithm.startswith("ES") else RSAAlgorithm
    return {**kind.to_jwk(key.public_key(), as_dict=True), "kid": key_id, "use": "sig", "alg": algorithm}


@dataclass
class FaultyProvider:
    """What the provider says and does; a test changes it.

    Attributes:
        keys: That sign, by their names; the newest signs.
        document: Members of the discovery document that replace the right ones.
        codes: What each code is exchanged for: the claims of its ID token, the challenge of PKCE.
        is_down: Whether it answers 500.
        asked: The paths that it was asked for.
    """

    keys: dict[str, Any] = field(default_factory=lambda: {"one": first_key()})
    document: dict[str, Any] = field(default_factory=dict)
    key_set: dict[str, Any] | None = None
    codes: dict[str, tuple[dict[str, Any], str]] = field(default_factory=dict)
    is_down: bool = False
    asked: list[str] = field(default_factory=list)
    issuer: str = ""
    secret: str | None = None

    def claims(self, **changed: Any) -> dict[str, Any]:
        """The claims of a good token for a bearer; a claim that is None is left out."""
        now = int(time.time())
        good = {
            "iss": self.issuer,
            "sub": "user-1",
            "aud": AUDIENCE,
            "iat": now,
            "exp": now + 300,
            "groups": ["analysts"],
        }
        return {name: value for name, value in {**good, **changed}.items() if value is not None}

    def token(self, *, headers: dict[str, Any] | None = None, **changed: Any) -> str:
        """A token that the newest key signs."""
        key_id, key = list(self.keys.items())[-1]
        return jwt.encode(self.claims(**changed), key, "RS256", headers={"kid": key_id, **(headers or {})})

    def sign_in(self, address: str, **changed: Any) -> dict[str, str]:
        """What somebody's browser is sent back with, once they have signed in at the address that it was led to."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        code = f"code-{len(self.codes)}"
        claims = self.claims(**{"aud": CLIENT_ID, "nonce": query["nonce"], **changed})
        self.codes[code] = claims, query["code_challenge"]
        return {"code": code, "state": query["state"], "iss": self.issuer}

    def exchange(self, form: dict[str, str], authorization: str | None) -> dict[str, Any] | None:
        claims, challenge = self.codes.pop(form.get("code", ""), ({}, ""))
        verifier = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if self.secret is None:
            is_client = form.get("client_id") == CLIENT_ID and authorization is None
        else:
            pair = base64.b64encode(f"{CLIENT_ID}:{self.secret}".encode()).decode()
            is_client = authorization == f"Basic {pair}"
        if not claims or verifier.rstrip(b"=").decode() != challenge or not is_client:
            return None
        key_id, key = list(self.keys.items())[-1]
        return {"access_token": "opaque", "token_type": "Bearer", "id_token": self._signed(claims, key_id, key)}

    def _signed(self, claims: dict[str, Any], key_id: str, key: Any) -> str:
        return jwt.encode(claims, key, "RS256", headers={"kid": key_id})


class _Handler(BaseHTTPRequestHandler):
    provider: FaultyProvider

    def do_GET(self) -> None:
        self.provider.asked.append(self.path)
        if self.provider.is_down:
            self._answer(500, {})
        elif self.path.endswith("/.well-known/openid-configuration"):
            issuer = self.provider.issuer
            right = {
                "issuer": issuer,
                "authorization_endpoint": f"{issuer}/authorize",
                "token_endpoint": f"{issuer}/token",
                "jwks_uri": f"{issuer}/keys",
            }
            self._answer(200, {**right, **self.provider.document})
        elif self.path.endswith("/keys"):
            keys = [public_jwk(key, name, "RS256") for name, key in self.provider.keys.items()]
            self._answer(200, self.provider.key_set or {"keys": keys})
        else:
            self._answer(404, {})

    def do_POST(self) -> None:
        self.provider.asked.append(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        found = None if self.provider.is_down else self.provider.exchange(form, self.headers.get("Authorization"))
        self._answer(400 if found is None else 200, found or {"error": "invalid_grant"})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def faulty_provider() -> Iterator[FaultyProvider]:
    """A provider that listens on a port of this machine."""
    provider = FaultyProvider()
    handler = type("Handler", (_Handler,), {"provider": provider})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        provider.issuer = f"http://127.0.0.1:{server.server_port}/realm"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield provider
        server.shutdown()
        thread.join()
