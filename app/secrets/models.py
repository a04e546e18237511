"""The versions of secrets that belong to a database. What is stored of a secret recognises it, and reveals nothing."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, UtcDateTime


class SecretVersion(Base):
    """One version of the secret of one purpose. Versions are never removed."""

    __tablename__ = "secrets"

    #: A value of `app.secrets.material.Purpose`.
    purpose: Mapped[str] = mapped_column(String(32), primary_key=True)
    version: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    #: A keyed hash of a constant under the secret; of signatures, the public key. Hexadecimal.
    check_value: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime())
    retired_at: Mapped[datetime | None] = mapped_column(UtcDateTime())
