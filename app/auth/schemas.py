"""Requests and answers of `/v1/keys`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from app.auth.principal import Scope
from app.auth.service import MAX_BUDGETS, MAX_OVERLAP_S, Terms, budget_ids, state_of
from app.entries.quotas import Quota
from app.kit.fields import INTEGRAL, Identifier, Integer, Name, OptionalInteger, Schema
from app.problems import unprocessable
from app.tables.access import ApiKey

#: Ten years. Whoever wants a key for longer should make one without an end.
MAX_EXPIRES_IN_S = 10 * 366 * 24 * 3600

Rate = Annotated[float, Field(ge=0, le=1e6)]
Number = Annotated[int, Field(ge=0, le=100_000), INTEGRAL]

#: The description of a member that says who a `principal_id` is.
PRINCIPAL_NAME = "What people call the key; null if it is not known here."

_OWN_RATE = "The key's limit on each server process, on average; 0 for no limit, null for the server's own."
_OWN_NUMBER = "The key's limit on each server process, at one time; 0 for no limit, null for the server's own."


class KeyRequest(Schema):
    """A key to be made."""

    name: Name = Field(description="What the key is for.")
    scopes: list[Annotated[Scope, Field(strict=False)]] = Field(
        min_length=1, max_length=len(Scope), description="What it allows; `admin` implies all others."
    )
    budgets: list[Identifier] | None = Field(
        None,
        min_length=1,
        max_length=MAX_BUDGETS,
        description="The key reaches these budgets and all below them, and nothing else; absent: everything. Not with "
        "`admin`.",
    )
    expires_in: OptionalInteger = Field(None, ge=1, le=MAX_EXPIRES_IN_S, description="The number of seconds from now.")
    expires_at: Annotated[AwareDatetime, Field(strict=False)] | None = Field(
        None, description="The end, in place of `expires_in`; a key with neither ends when it is revoked."
    )
    requests_per_second: Rate | None = Field(None, description=_OWN_RATE)
    concurrent_requests: Number | None = Field(None, description=_OWN_NUMBER)

    def terms(self, now: datetime) -> Terms:
        """Return the requested terms.

        Raises:
            Problem: 422 if the end is given twice, or is in the past.
        """
        expires_at = None if self.expires_in is None else now + timedelta(seconds=self.expires_in)
        if self.expires_at is not None:
            if expires_at is not None:
                detail = "expires_in and expires_at both set the end of the key; leave one out"
                raise unprocessable("overdetermined", detail, "expires_at")
            expires_at = self.expires_at
            if not now < expires_at <= now + timedelta(seconds=MAX_EXPIRES_IN_S):
                detail = "the end of a key must be in the future, at most ten years away; to set no end, leave it out"
                raise unprocessable("out_of_range", detail, "expires_at")
        return Terms(
            self.name,
            tuple(self.scopes),
            None if self.budgets is None else tuple(self.budgets),
            None if expires_at is None else expires_at.replace(microsecond=0),
            self.requests_per_second,
            self.concurrent_requests,
        )


class RotateRequest(Schema):
    """Settings for a new token of a key."""

    overlap_s: Integer = Field(
        3600,
        ge=0,
        le=MAX_OVERLAP_S,
        description="Seconds for which the old token remains valid; with 0, every older token ends now.",
    )


class KeyBody(Schema):
    """A key, without what authenticates."""

    id: str
    name: str
    scopes: list[str]
    budgets: list[str] | None = Field(description="It reaches these and all below them; null: everything.")
    state: Literal["active", "expired", "revoked"] = Field(
        description="`active`: It is let in. `expired`: Its time is over. `revoked`: It was ended for ever."
    )
    requests_per_second: float | None = Field(description=_OWN_RATE)
    concurrent_requests: int | None = Field(description=_OWN_NUMBER)
    created_at: datetime
    expires_at: datetime | None
    rotated_at: datetime | None
    previous_token_until: datetime | None = Field(description="The token before the last rotation is good until then.")
    last_used_at: datetime | None = Field(
        description="The minute of the last recorded use, written about every ten minutes. It shows which keys nobody "
        "uses."
    )
    revoked_at: datetime | None
    issuer: str | None = Field(
        description="The provider of the account; null for a key. An account has no "
        "token, and its rights are those that the server's configuration gives its groups."
    )
    subject: str | None = Field(description="The provider's name for the account, which no other account has.")

    @classmethod
    def of(cls, key: ApiKey, now: datetime) -> KeyBody:
        """Return what an administrator sees of a key."""
        until = key.previous_token_until
        reached = budget_ids(key.budgets)
        return cls.model_validate(
            {
                "id": key.id,
                "name": key.name,
                "scopes": key.scopes,
                "budgets": None if reached is None else list(reached),
                "state": state_of(key, now),
                "requests_per_second": key.requests_per_second,
                "concurrent_requests": key.concurrent_requests,
                "created_at": key.created_at,
                "expires_at": key.expires_at,
                "rotated_at": key.rotated_at,
                "previous_token_until": until if until is not None and until > now else None,
                "last_used_at": key.last_used_at,
                "revoked_at": key.revoked_at,
                "issuer": key.issuer,
                "subject": key.subject,
            }
        )


class KeyWithToken(KeyBody):
    """A key with its fresh token."""

    token: str | None = Field(
        description="`epsilond_...`. Only the first answer has it, because only a keyed hash of it is stored. Null in "
        "an answer that is replayed under its Idempotency-Key; rotate the key for another token."
    )


class QuotaBody(Schema):
    """A quota of a key: how much it may write to the ledger or hold, and how much of that it has used."""

    quota: Quota = Field(description="`entries` and `bytes` are those of today (UTC).")
    used: int
    limit: int = Field(
        description="Beyond it, requests for anything new are answered 429 `quota_exceeded`; 0 for no quota."
    )


class OwnKeyBody(Schema):
    """The rights of the key that sent the request, and when they end."""

    id: str = Field(description="`loopback` on a server without keys.")
    name: str
    scopes: list[str]
    budgets: list[str] | None = Field(description="It reaches these and all below them; null: everything.")
    valid_until: datetime | None = Field(description="The end of the token that was sent; null for no end.")
    requests_per_second: float = Field(description="The limit that applies to it; 0 for no limit.")
    concurrent_requests: int = Field(description="The limit that applies to it; 0 for no limit.")
    quotas: list[QuotaBody] = Field(description="Empty if nothing is counted, as on a server without keys.")
