"""Tables of API keys and of versions of secrets. Accounts of an identity provider are rows of the table of keys.

No column holds a token or a secret.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import JSON, Double, Integer, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.tables.base import Base, UtcDateTime


class ApiKey(Base):
    """One key. The row of a revoked key is kept, so that a server that once had keys never again answers requests
    without a key."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    scopes: Mapped[list[str]] = mapped_column(JSON)
    #: The paths of the budgets that the key reaches, which never change; None for all budgets.
    budgets: Mapped[list[str] | None] = mapped_column(JSON(none_as_null=True))
    #: The key's own limit; 0 for no limit, None for the server's limit.
    requests_per_second: Mapped[float | None] = mapped_column(Double)
    concurrent_requests: Mapped[int | None] = mapped_column(Integer)
    token_hash: Mapped[str] = mapped_column(String(64), unique=True)
    #: The version of the secret under which the token is hashed.
    secret_version: Mapped[int] = mapped_column(Integer, server_default="1")
    #: The hash of the token before the last rotation, while that token is still valid.
    previous_token_hash: Mapped[str | None] = mapped_column(String(64))
    previous_secret_version: Mapped[int] = mapped_column(Integer, server_default="1")
    previous_token_until: Mapped[datetime | None] = mapped_column(UtcDateTime())
    created_at: Mapped[datetime] = mapped_column(UtcDateTime())
    rotated_at: Mapped[datetime | None] = mapped_column(UtcDateTime())
    #: The last use, rounded to a minute and written only now and then. It shows whether a key is still in use, and
    #: nothing more precise.
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime())
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime())
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime())
    #: The issuer of a provider's account (`app.auth.oidc.accounts`), which has no token or rights; None for a key.
    issuer: Mapped[str | None] = mapped_column(String(500))
    subject: Mapped[str | None] = mapped_column(String(255))

    __table_args__ = (UniqueConstraint("issuer", "subject"),)

    @property
    def is_account(self) -> bool:
        """Return whether this is an account of an identity provider and not a key."""
        return self.issuer is not None

    def has_ended(self, now: datetime) -> bool:
        """Return whether the key no longer authenticates anybody."""
        return self.revoked_at is not None or (self.expires_at is not None and self.expires_at <= now)

    def is_under_secret(self, version: int, now: datetime) -> bool:
        """Return whether a token that may still be valid is hashed under this version of the secret for keys."""
        until = self.previous_token_until
        has_previous = self.previous_token_hash is not None and until is not None and until > now
        return self.secret_version == version or (has_previous and self.previous_secret_version == version)


class SecretVersion(Base):
    """One version of the secret of one purpose. Versions are never removed."""

    __tablename__ = "secrets"

    #: A value of `app.secrets.material.Purpose`.
    purpose: Mapped[str] = mapped_column(String(32), primary_key=True)
    version: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    #: A keyed hash of a constant under the secret, or the public key of signatures; hexadecimal.
    check_value: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime())
    retired_at: Mapped[datetime | None] = mapped_column(UtcDateTime())
