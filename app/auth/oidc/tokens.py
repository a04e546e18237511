"""Check tokens of the provider before anything in them is used."""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import jwt

from app.auth.oidc.provider import ALGORITHMS, Provider

#: A token is accepted this many seconds before it becomes valid, since clocks differ. It is never accepted after its
#: end.
_EARLY_S = 60
_LONGEST = 32 * 1024
_LONGEST_SUBJECT = 255
_MOST_GROUPS = 2000
#: The last second that a `datetime` can hold.
_LAST_END = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp())
#: The form of a signed token; keys of this service contain no dots.
_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_REASONS: Mapping[type[jwt.PyJWTError], str] = {
    jwt.ExpiredSignatureError: "it has expired",
    jwt.ImmatureSignatureError: "the token is not valid yet",
    jwt.InvalidIssuerError: "another issuer made it",
    jwt.InvalidAudienceError: "the token is for another audience",
    jwt.InvalidAlgorithmError: "the token is not signed with a private key of the provider",
    jwt.InvalidSignatureError: "its signature is wrong",
    jwt.InvalidKeyError: "the provider's key is too short",
    jwt.MissingRequiredClaimError: "a claim is missing: iss, sub, aud, exp and iat are needed",
}


class Refused(Exception):
    """A token is not accepted; the message says why, without quoting the token."""


@dataclass(frozen=True)
class Claims:
    """The claims of a token that was verified.

    Attributes:
        subject: The person or machine that the token is about, as the issuer identifies it. Of all claims, only this
            one never changes and belongs to nobody else.
        groups: The groups to which the provider assigns the subject.
        shown_name: A name for people; no decision depends on it.
        ends: When the token ends.
    """

    subject: str
    groups: frozenset[str]
    shown_name: str
    ends: datetime


def looks_like_token(text: str) -> bool:
    """Return whether a bearer token may be one of a provider."""
    return len(text) <= _LONGEST and _FORM.fullmatch(text) is not None


def id_claims(provider: Provider, token: str, nonce: str) -> Claims:
    """Return the claims of an ID token about the person who has just signed in.

    Args:
        provider: The provider that must have made it.
        token: The token that the provider gave in exchange for a code.
        nonce: The nonce of this attempt to sign in.

    Raises:
        Refused: it is not believed.
        Unavailable: the provider's keys are not known.
    """
    client_id = provider.configuration.client_id
    found = _verified(provider, token, client_id)
    if not hmac.compare_digest(str(found.get("nonce", "")).encode(), nonce.encode()):
        raise Refused("the token's nonce does not match this attempt to sign in")
    # A token for several audiences names the client that it was issued to (OpenID Connect Core, 3.1.3.7).
    audiences, party = found["aud"], found.get("azp")
    if party != client_id and (party is not None or (isinstance(audiences, list) and len(audiences) > 1)):
        raise Refused("the token was issued to another client")
    return _claims(provider, found)


def bearer_claims(provider: Provider, token: str) -> Claims:
    """Return the claims of an access token about its sender.

    Raises:
        Refused: it is not believed.
        Unavailable: the provider's keys are not known.
    """
    audience = provider.configuration.audience
    if audience is None:
        raise Refused("this server accepts tokens of the provider only for signing in")
    found = _verified(provider, token, audience)
    if isinstance(found["aud"], list) and provider.configuration.client_id in found["aud"]:
        raise Refused("the token was also issued to the client that signs people in")
    return _claims(provider, found)


def _verified(provider: Provider, token: str, audience: str) -> dict[str, Any]:
    if not looks_like_token(token):
        raise Refused("the token is not signed")
    try:
        header = jwt.get_unverified_header(token)
        if header.get("alg") not in ALGORITHMS:
            raise jwt.InvalidAlgorithmError
        key = provider.key(header.get("kid"))
        if key is None:
            raise Refused("the token is not signed with a current key of the provider")
        options = {"require": ["iss", "sub", "aud", "exp", "iat"], "enforce_minimum_key_length": True}
        found = jwt.decode(
            token,
            key,
            algorithms=list(ALGORITHMS),
            audience=audience,
            issuer=provider.configuration.issuer,
            options=options,  # type: ignore[arg-type]
            leeway=_EARLY_S,
        )
        if int(found["exp"]) <= time.time():
            raise jwt.ExpiredSignatureError
    except jwt.PyJWTError as error:
        reasons = (reason for kind, reason in _REASONS.items() if isinstance(error, kind))
        raise Refused(next(reasons, "the token cannot be read")) from None
    return dict(found)


def _claims(provider: Provider, found: Mapping[str, Any]) -> Claims:
    subject = found["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= _LONGEST_SUBJECT or not subject.isprintable():
        raise Refused("the token's subject does not have 1 to 255 printable characters")
    shown = next((found[each] for each in ("preferred_username", "name") if _is_shown(found.get(each))), subject)
    return Claims(
        subject=subject,
        groups=_groups(found, provider.configuration.groups_claim),
        shown_name=str(shown)[:200],
        ends=datetime.fromtimestamp(min(int(found["exp"]), _LAST_END), UTC),
    )


def _groups(found: Mapping[str, Any], names: Sequence[str]) -> frozenset[str]:
    """Return the groups in a claim, which may be nested in others. Only a text or a list of texts counts."""
    value: Any = found
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    groups = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return frozenset(each for each in groups[:_MOST_GROUPS] if isinstance(each, str))


def _is_shown(text: Any) -> bool:
    return isinstance(text, str) and bool(text.strip()) and text.isprintable()
