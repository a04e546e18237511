"""Sessions: a write is all or nothing, a read cannot write, and what it loaded stays readable."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import insert, make_url, text
from sqlalchemy.exc import DBAPIError, StatementError

from app.db.database import BRIEF_LOCK_TIMEOUT_S, PATIENCE_WITH_HOSTS, Database
from app.db.migrate import upgrade
from app.tables.idempotency import IdempotencyRecord
from tests.databases import DatabaseFactory, on_one_engine


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


@on_one_engine
@pytest.mark.parametrize(
    ("stored", "moment"),
    [
        ("2026-05-01 12:00:00.000000", NOW),
        ("2026-05-01 12:00:00", NOW),
        ("2026-05-01 12:00:00.250000", NOW.replace(microsecond=250_000)),
        ("2026-05-01 14:00:00+02:00", NOW),
        ("2026-05-01T14:00:00.5+0200", NOW.replace(microsecond=500_000)),
        ("2026-05-01", NOW.replace(hour=0)),
    ],
)
def test_a_moment_is_read_in_utc_however_it_is_written(database: Database, stored: str, moment: datetime) -> None:
    with database.write() as session:
        session.add(_record("k", NOW))
        session.flush()
        session.execute(text("UPDATE idempotency_records SET recorded_at = :stored"), {"stored": stored})
    with database.read() as session:
        read = session.get_one(IdempotencyRecord, ("a", "k")).recorded_at
    assert (read, read.tzinfo) == (moment, UTC)


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


@pytest.fixture
def parameters(postgresql_databases: DatabaseFactory) -> Callable[..., dict[str, str]]:
    """With what a connection is made, as libpq has it, for a URL with more in it."""
    url = make_url(postgresql_databases.migrated())

    def of(**more: str) -> dict[str, str]:
        database = Database(url.update_query_dict(more).render_as_string(hide_password=False))
        with database.read() as session:
            found = dict(session.connection().connection.dbapi_connection.info.get_parameters())  # type: ignore[union-attr]
            found["lock_timeout"] = session.scalar(text("SHOW lock_timeout"))
            found["work_mem"] = session.scalar(text("SHOW work_mem"))
        database.dispose()
        return found

    return of


def test_a_host_that_vanishes_is_not_waited_for_as_long_as_the_system_would(
    parameters: Callable[..., dict[str, str]],
) -> None:
    found = parameters()
    assert {name: int(found[name]) for name in PATIENCE_WITH_HOSTS if name in found} == {
        name: value for name, value in PATIENCE_WITH_HOSTS.items() if name in found
    }
    assert {"connect_timeout", "tcp_user_timeout", "keepalives_idle"} <= set(found)


def test_what_a_url_says_itself_wins_but_for_what_commands_rely_on(parameters: Callable[..., dict[str, str]]) -> None:
    said = {"connect_timeout": "7", "tcp_user_timeout": "1234", "options": "-c lock_timeout=77s -c work_mem=1234kB"}
    found = parameters(**said)
    assert (found["connect_timeout"], found["tcp_user_timeout"], found["work_mem"]) == ("7", "1234", "1234kB")
    assert found["keepalives_idle"] == str(PATIENCE_WITH_HOSTS["keepalives_idle"])
    assert found["lock_timeout"] == f"{BRIEF_LOCK_TIMEOUT_S}s"


def modes(file: Path) -> dict[str, int]:
    """Return the modes of a SQLite file and of those beside it."""
    return {each.name: each.stat().st_mode & 0o777 for each in file.parent.glob(f"{file.name}*")}


def test_a_sqlite_file_is_made_for_this_user_alone_wherever_it_lies(tmp_path: Path, open_umask: None) -> None:
    tmp_path.chmod(0o755)
    file = tmp_path / "elsewhere.sqlite3"
    upgrade(f"sqlite:///{file}")
    assert modes(file) == {file.name: 0o600}
    database = Database(f"sqlite:///{file}")
    with database.write() as session:
        session.add(_record("k", NOW))
        session.flush()
        assert modes(file) == {f"{file.name}{ending}": 0o600 for ending in ("", "-wal", "-shm")}
    database.dispose()


def test_the_mode_of_a_sqlite_file_that_was_there_is_the_operators(tmp_path: Path, open_umask: None) -> None:
    file = tmp_path / "shared.sqlite3"
    file.touch(0o660)
    upgrade(f"sqlite:///{file}")
    assert modes(file) == {file.name: 0o660}


def test_a_database_that_nobody_asks_makes_no_file(tmp_path: Path) -> None:
    Database(f"sqlite:///{tmp_path / 'nothing.sqlite3'}").dispose()
    assert list(tmp_path.iterdir()) == []
