"""Sessions: a write is all or nothing, a read cannot write, and what it loaded stays readable."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from sqlalchemy import insert, text
from sqlalchemy.exc import DBAPIError, StatementError

from app.db.database import Database
from app.kit.idempotency import IdempotencyRecord


def _record(key: str, recorded_at: datetime) -> IdempotencyRecord:
    return IdempotencyRecord(principal_id="a", key=key, fingerprint="f", recorded_at=recorded_at)


NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def test_a_write_session_that_raises_leaves_nothing(database: Database) -> None:
    with pytest.raises(DBAPIError), database.write() as session:  # noqa: PT012 - the second statement fails the first
        session.add(_record("k", NOW))
        session.execute(text("INSERT INTO nothing VALUES (1)"))
    with database.read() as session:
        assert session.get(IdempotencyRecord, ("a", "k")) is None


def test_a_read_session_cannot_write_and_the_next_write_session_can(database: Database) -> None:
    with pytest.raises(DBAPIError), database.read() as session:
        session.execute(text("DELETE FROM budgets"))
    with pytest.raises(DBAPIError), database.read() as session:
        session.execute(insert(IdempotencyRecord).values(principal_id="a", key="k", fingerprint="f", recorded_at=NOW))
    with database.write() as session:
        session.add(_record("k", NOW))


def test_a_read_session_sees_one_moment(database: Database) -> None:
    with database.read() as session:
        assert session.get(IdempotencyRecord, ("a", "k")) is None
        with database.write() as writer:
            writer.add(_record("k", NOW))
        assert session.get(IdempotencyRecord, ("a", "k"), populate_existing=True) is None


def test_what_was_loaded_stays_readable(database: Database) -> None:
    with database.write() as session:
        session.add(_record("k", NOW))
    with database.read() as session:
        record = session.get_one(IdempotencyRecord, ("a", "k"))
    assert (record.fingerprint, record.recorded_at) == ("f", NOW)


def test_a_moment_without_a_zone_is_refused(database: Database) -> None:
    with pytest.raises(StatementError, match="needs a time zone"), database.write() as session:
        session.add(_record("k", NOW.replace(tzinfo=None)))


def test_sqlite_is_durable_and_checks_foreign_keys(database: Database) -> None:
    if database.is_sqlite:
        with database.read() as session:
            settings = [
                session.scalar(text(f"PRAGMA {name}")) for name in ("journal_mode", "synchronous", "foreign_keys")
            ]
        assert settings == ["wal", 2, 1]
    else:
        with database.read() as session:
            assert session.scalar(text("SHOW synchronous_commit")) == "on"
    assert database.is_reachable()


def test_a_write_session_that_reads_first_decides_on_what_is_there(database: Database) -> None:
    with database.write() as session:
        session.execute(text("CREATE TABLE counter (value integer)"))
        session.execute(text("INSERT INTO counter VALUES (0)"))
    lock = "" if database.is_sqlite else " FOR UPDATE"

    def increment(_: int) -> None:
        with database.write() as session:
            value = session.execute(text(f"SELECT value FROM counter{lock}")).scalar_one()
            session.execute(text("UPDATE counter SET value = :value"), {"value": value + 1})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(increment, range(40)))
    with database.read() as session:
        assert session.scalar(text("SELECT value FROM counter")) == 40
