"""Signing a browser in: to the provider and back (OpenID Connect Core 1.0, authorization code flow with PKCE).

A cookie of the browser keeps what an attempt needs when it comes back: the state, the nonce, the verifier of PKCE, and
the page to show afterwards. A keyed code under the service's secret covers all of it. The cookie is valid for ten
minutes and only for the redirect address, and the answer that signs in removes it. Without the cookie, an address with
somebody else's code and state signs nobody in.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlencode

from app.auth import sessions
from app.auth.oidc.accounts import admit
from app.auth.oidc.provider import Provider
from app.auth.oidc.tokens import Refused, id_claims
from app.auth.sessions import Session
from app.context import Context
from app.settings import Settings

LIFETIME = timedelta(minutes=10)
START = f"{sessions.SIGN_IN}/provider"
#: The path to which the provider sends the browser back; it is registered with the provider.
BACK = f"{START}/back"
_LABEL = "sign_in_attempt"
#: The longest address of the page to show afterwards. The cookie contains this address, and browsers keep no cookie
#: above 4096 characters.
_LONGEST_PAGE = 1200


@dataclass(frozen=True)
class Attempt:
    """An attempt to sign in.

    Attributes:
        address: The address of the provider, where the browser goes.
        cookie: The cookie that the browser keeps until it comes back.
    """

    address: str
    cookie: str


def begin(context: Context, provider: Provider, own_address: str) -> Attempt:
    """Send a browser to the provider.

    Args:
        context: The process's context.
        provider: The provider.
        own_address: The page to show afterwards (`sessions.own_address`); if the address is too long, the first page is
            shown.

    Raises:
        Unavailable: the provider's address is not known.
    """
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    query = {
        "response_type": "code",
        "client_id": provider.configuration.client_id,
        "redirect_uri": redirect_uri(context.settings),
        "scope": " ".join(["openid", *provider.configuration.request_scopes]),
        "state": state,
        "nonce": nonce,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    end = int((context.clock() + LIFETIME).timestamp())
    shown = own_address if len(own_address) <= _LONGEST_PAGE else sessions.START
    kept = {"state": state, "nonce": nonce, "verifier": verifier, "next": shown, "end": end}
    text = base64.urlsafe_b64encode(json.dumps(kept).encode()).rstrip(b"=").decode()
    endpoint = provider.authorization_endpoint()
    joint = "&" if "?" in endpoint else "?"
    return Attempt(f"{endpoint}{joint}{urlencode(query)}", f"{text}.{context.keyed_hash(_LABEL, text.encode())}")


def finish(
    context: Context, provider: Provider, cookie: str | None, query: Mapping[str, str]
) -> tuple[Session | None, str]:
    """Sign in a browser that comes back from the provider.

    Args:
        context: The process's context.
        provider: The provider.
        cookie: The cookie of the attempt, as the browser sent it.
        query: The query of the address that the provider sent the browser to.

    Returns:
        The session and the page to show. There is no session if the account is barred.

    Raises:
        Refused: the attempt has expired or belongs to another browser, the provider refused, or its token is not
            accepted.
        Unavailable: the provider does not answer, or rejects the code.
        Problem: 403 if the account has no rights.
    """
    kept = _kept(context, cookie)
    if kept is None or not hmac.compare_digest(kept["state"].encode(), query.get("state", "").encode()):
        raise Refused("this attempt to sign in is over, or began in another browser")
    if "iss" in query and query["iss"] != provider.configuration.issuer:
        raise Refused("another provider sent you here")
    if "error" in query or not query.get("code"):
        raise Refused("the provider did not sign you in")
    token = provider.id_token(query["code"], kept["verifier"], redirect_uri(context.settings))
    claims = id_claims(provider, token, kept["nonce"])
    configuration = provider.configuration
    account = admit(context, configuration, claims)
    right = configuration.right_of(claims.subject, claims.groups)
    group = None if right is None else right.group
    lifetime = timedelta(minutes=configuration.session_minutes)
    return sessions.begin_of_account(context, account.id, group, lifetime), sessions.own_address(kept["next"])


def redirect_uri(settings: Settings) -> str:
    """Return the address to register at the provider."""
    return f"{settings.public_url}{BACK}"


def cookie_place(settings: Settings, *, is_https: bool) -> tuple[str, str]:
    """Return the name and the path of the attempt's cookie."""
    name, path = sessions.cookie_place(settings, is_https=is_https)
    return f"{name}_attempt", path


def _kept(context: Context, cookie: str | None) -> dict[str, str] | None:
    """Return the contents of a sign-in attempt's cookie; None if the attempt has expired or the cookie is not ours."""
    text, _, code = (cookie or "").rpartition(".")
    if not hmac.compare_digest(context.keyed_hash(_LABEL, text.encode()).encode(), code.encode()):
        return None
    kept: dict[str, str] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return kept if int(kept["end"]) > context.clock().timestamp() else None
