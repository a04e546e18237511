"""The declarative base of all models, and column types that behave the same on both database engines."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import DateTime, Dialect, MetaData, TypeDecorator
from sqlalchemy.orm import DeclarativeBase

# Constraints have names, so that a migration can drop or change each of them on both engines.
NAMING_CONVENTION = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING_CONVENTION)


_LENGTH_ON_SQLITE = len("2026-01-02 03:04:05.000000")


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC. SQLite stores no time zone, so the zone is attached when a value is read. A value without a zone
    is refused."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a stored time needs a time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)

    def result_processor(self, dialect: Dialect, coltype: Any) -> Callable[[Any], datetime | None] | None:
        """Return one function that does the work of the driver's processor and of `process_result_value`. It is short,
        since verifying a ledger calls it millions of times."""
        general = super().result_processor(dialect, coltype)
        if dialect.name != "sqlite" or general is None:
            return general

        def read(text: str | None) -> datetime | None:
            # Texts of another form than the one written here may have a time zone or lack a time of day.
            if text is not None and len(text) == _LENGTH_ON_SQLITE:
                try:
                    return datetime.fromisoformat(f"{text}+00:00")
                except ValueError:
                    pass
            return general(text)

        return read
