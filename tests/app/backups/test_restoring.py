"""A backup and its way back, from each kind of database to each."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.backups import contents as listed
from app.backups import making
from app.backups.manifest import ArchiveRefused
from app.backups.restoring import RestoreRefused
from app.db.database import Database
from app.db.migrate import upgrade
from app.fence.marks import Reason
from app.fence.watching import fence_of
from app.ledger import transparency
from app.ledger.certificate_verification import verify_certificates
from app.ledger.verdicts import CertificateReport
from app.runs import loss as losses
from app.runs import worker
from tests.app.backups.conftest import Home
from tests.app.datasets.persons import Datasets
from tests.app.problem_assertions import assert_problem
from tests.app.runs.interrupted import kinds
from tests.databases import DatabaseFactory

EVENTS = {"events": [{"mechanism": {"kind": "zcdp", "rho": 1e-3}}], "purpose": "p"}


def without_what_is_left_out(rows: dict[str, list[tuple[object, ...]]]) -> dict[str, list[tuple[object, ...]]]:
    (tree,) = rows["merkle_trees"]
    return rows | {"merkle_trees": [(*tree[:5], None, None, tree[7])]}


@pytest.mark.one_in(1000)
def test_everything_comes_back_on_either_database(home: Home, other_databases: DatabaseFactory, tmp_path: Path) -> None:
    home.save(tmp_path / "b")
    there = home.elsewhere(tmp_path / "there", other_databases)
    before = home.rows()
    there.restore(tmp_path / "b")
    assert there.rows() == without_what_is_left_out(before)
    for folder in ("datasets", "models"):
        files = {path.name: path.read_bytes() for path in (home.folder / folder).iterdir()}
        restored = sorted((there.folder / folder).iterdir())
        assert files, folder
        assert {path.name: path.read_bytes() for path in restored} == files
        assert {path.stat().st_mode & 0o777 for path in restored} == {0o600}
    assert not (there.folder / "checkpoints").exists()
    assert not there.settings.unfinished_restore_file.exists()
    if there.url.startswith("sqlite"):
        assert Path(there.url.removeprefix("sqlite:///")).stat().st_mode & 0o777 == 0o600
    with there.service() as service:
        assert fence_of(service.context).check() is None, "nothing was acknowledged since"
        assert service.get(f"/v1/runs/{home.names['run']}/model") == home.names["model"]
        budget = service.budget()
        assert service.post(f"/v1/budgets/{budget['id']}/reservations", EVENTS).status_code == 201
        assert transparency.verified(service.context).valid
        with service.context.database.read() as session:
            places = session.execute(sa.text("SELECT leaf_index FROM entries ORDER BY leaf_index")).scalars().all()
    assert len(places) == len(before["entries"]) + 2


def test_a_certificate_comes_back_with_the_charge_that_it_is_of(home: Home, tmp_path: Path) -> None:
    gaussian = {"mechanism": {"kind": "gaussian", "noise_multiplier": 9.0}}
    body = {"events": [gaussian], "purpose": "p", "charge": {"delta": 1e-5}, "certificate": True}
    with home.service() as service:
        budget = service.budget(filter={"kind": "approximate_dp", "epsilon": 8, "delta": "1e-4"})
        held = service.post(f"/v1/budgets/{budget['id']}/reservations", body).json()
        certificate = service.client.get(f"/v1/reservations/{held['id']}/certificate").content
    home.save(tmp_path / "b")
    there = home.elsewhere(tmp_path / "there")
    there.restore(tmp_path / "b")
    with there.service() as service:
        assert service.client.get(f"/v1/reservations/{held['id']}/certificate").content == certificate
        with service.context.database.read() as session:
            assert verify_certificates(session) == CertificateReport(1, 1, None)


def test_the_schema_is_that_of_a_migrated_database(home: Home, tmp_path: Path) -> None:
    """What was opened to write the rows is closed again: triggers, references and their kinds."""
    home.save(tmp_path / "b")
    there = home.elsewhere(tmp_path / "there")
    there.restore(tmp_path / "b")
    assert schema_of(there.url) == schema_of(home.databases.migrated())
    engine = sa.create_engine(there.url)
    for statement in ("DELETE FROM entries", "UPDATE entries SET kind = 'void'", "UPDATE merkle_trees SET size = 0"):
        with pytest.raises(sa.exc.DBAPIError, match="append-only"), engine.begin() as connection:
            connection.execute(sa.text(statement))
    engine.dispose()


def schema_of(url: str) -> list[tuple[object, ...]]:
    engine = sa.create_engine(url)
    if engine.dialect.name == "sqlite":
        statements = ["SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"]
    else:
        statements = [
            "SELECT tgname, tgrelid::regclass::text, tgenabled, tgdeferrable, tginitdeferred FROM pg_trigger "
            "WHERE NOT tgisinternal ORDER BY 1, 2",
            "SELECT conname, conrelid::regclass::text, contype, condeferrable, condeferred, convalidated "
            "FROM pg_constraint WHERE conrelid <> 0 ORDER BY 1, 2",
            "SELECT tgenabled, count(*) FROM pg_trigger GROUP BY 1",
        ]
    with engine.connect() as connection:
        found = [tuple(row) for statement in statements for row in connection.execute(sa.text(statement))]
    # The constraints of a table that was made anew by a migration have no order.
    found = [(*row[:-1], sorted(re.split(r",\s", row[-1]))) if isinstance(row[-1], str) else row for row in found]
    engine.dispose()
    assert found
    return found


def test_a_run_that_was_interrupted_is_not_gone_on_with(home: Home, tmp_path: Path) -> None:
    """Its checkpoint, which knows its noise, is in no backup; nobody draws other noise under its charge."""
    assert list((home.folder / "checkpoints").iterdir())
    home.save(tmp_path / "b")
    there = home.elsewhere(tmp_path / "there")
    there.restore(tmp_path / "b")
    run = home.names["interrupted"]
    with there.service() as service:
        assert fence_of(service.context).check() is None
        while worker.work_once(service.context, "wrk_test"):
            pass
        ended = service.get(f"/v1/runs/{run['id']}")
        assert (ended["state"], ended["problem"]["code"]) == ("failed", "worker_lost")
        assert kinds(service, run) == ["reserve", "start", "commit"], "the charge stands"
        # What was never started may still be: nothing of it was drawn.
        assert service.get(f"/v1/runs/{home.names['queued']['id']}")["state"] == "succeeded"


def test_what_was_acknowledged_since_is_missed(home: Home, tmp_path: Path) -> None:
    home.save(tmp_path / "b")
    with home.service() as service:
        worker.work_once(service.context, "wrk_test")
        worker.work_once(service.context, "wrk_test")
        assert service.get(f"/v1/runs/{home.names['queued']['id']}")["state"] == "succeeded"
    there = home.elsewhere(tmp_path / "there")
    there.restore(tmp_path / "b")
    with there.service() as service:
        loss = fence_of(service.context).check()
        assert loss is not None
        assert (loss.reason, loss.entries, len(loss.missing)) == (Reason.BEHIND, 5, 3)
        assert_problem(service.client.get("/v1/budgets"), 503, "database_behind_fence")
        assert not worker.work_once(service.context, "wrk_test")
        done = losses.acknowledge(service.context, "the disk failed")
        assert (done.runs, done.charged) == (2, 2)
        assert not worker.work_once(service.context, "wrk_test")
        assert service.get(f"/v1/runs/{home.names['queued']['id']}")["problem"]["code"] == "database_restored"
        assert transparency.verified(service.context).valid


def test_without_a_fence_nobody_knows_what_is_missing(home: Home, tmp_path: Path) -> None:
    home.save(tmp_path / "b")
    there = home.elsewhere(tmp_path / "there")
    (there.folder / "fence").unlink()
    there.restore(tmp_path / "b")
    with there.service() as service:
        loss = fence_of(service.context).check()
        assert loss is not None
        assert (loss.reason, loss.entries) == (Reason.NO_FENCE, None)
        assert_problem(service.client.get("/v1/budgets"), 503, "database_behind_fence")
        assert losses.acknowledge(service.context, "the machine is gone").life == 2


def test_a_copy_that_is_acknowledged_with_the_same_fence_ends_the_original(home: Home, tmp_path: Path) -> None:
    home.save(tmp_path / "b")
    with home.service() as service:
        service.budget()
    there = home.elsewhere(tmp_path / "there")
    there.restore(tmp_path / "b")
    with there.context() as context:
        losses.acknowledge(context, "the original is away")
    # Both name one fence, as servers of one ledger do.
    (home.folder / "fence").write_bytes((there.folder / "fence").read_bytes())
    with home.service() as service:
        assert_problem(service.client.get("/v1/budgets"), 503, "database_behind_fence")
        loss = fence_of(service.context).loss
        assert loss is not None
        assert loss.reason is Reason.OTHER_LIFE


def test_the_fence_of_another_ledger_is_refused_before_anything_is_written(home: Home, tmp_path: Path) -> None:
    home.save(tmp_path / "b")
    # A copy of a database that was migrated before would be of the same ledger.
    other = replace(home, folder=tmp_path / "other", url=home.databases.empty())
    upgrade(other.url)
    with other.context() as context:
        fence_of(context).check()
    there = home.elsewhere(tmp_path / "there")
    (there.folder / "fence").write_bytes((other.folder / "fence").read_bytes())
    before = contents(there)
    with pytest.raises(RestoreRefused, match="The fence belongs to the ledger led_"):
        there.restore(tmp_path / "b")
    assert contents(there) == before


def contents(home: Home) -> tuple[list[str], bool]:
    database = Database(home.url)
    if database.is_sqlite:
        is_empty = not Path(home.url.removeprefix("sqlite:///")).exists()
    else:
        with database.read() as session:
            is_empty = not sa.inspect(session.connection()).get_table_names()
    database.dispose()
    return sorted(str(path.relative_to(home.folder)) for path in home.folder.rglob("*")), is_empty


def test_what_is_not_empty_is_left_alone(home: Home, tmp_path: Path) -> None:
    home.save(tmp_path / "b")
    there = home.elsewhere(tmp_path / "there")
    for name in ("datasets", "models", "checkpoints"):
        (there.folder / name).mkdir()
        (there.folder / name / "theirs").write_bytes(b"x")
        with pytest.raises(RestoreRefused, match=f"{name} is not empty"):
            there.restore(tmp_path / "b")
        (there.folder / name / "theirs").unlink()
    there.restore(tmp_path / "b")
    before = there.rows()
    with pytest.raises(RestoreRefused, match="is not empty"):
        there.restore(tmp_path / "b")
    assert there.rows() == before


def test_without_the_secret_nothing_is_written_and_no_secret_is_made(home: Home, tmp_path: Path) -> None:
    home.save(tmp_path / "b")
    there = home.elsewhere(tmp_path / "there", carried=False)
    with pytest.raises(RestoreRefused, match="There is no secret at"):
        there.restore(tmp_path / "b")
    assert contents(there) == ([], True)


@pytest.mark.parametrize("databases", ["sqlite"], indirect=True)
def test_an_archive_of_another_secret_is_refused_before_anything_is_written(home: Home, tmp_path: Path) -> None:
    home.save(tmp_path / "b")
    there = home.elsewhere(tmp_path / "there")
    (there.folder / "secret.key").write_bytes(b"k" * 64)
    before = contents(there)
    with pytest.raises(ArchiveRefused, match="seal does not match this content secret"):
        there.restore(tmp_path / "b")
    assert contents(there) == before


@pytest.mark.parametrize("table", ["budgets", "entries"])
def test_rows_that_do_not_fit_together_are_refused(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """Rows that are missing although others refer to them, under a seal that is right; no row is quoted."""
    write = making._write_table

    def without_rows(*args: Any) -> Any:
        with monkeypatch.context() as patch:
            if args[3] == table:
                patch.setattr(making, "encoded", lambda *_: iter(()))
            return write(*args)

    monkeypatch.setattr(making, "_write_table", without_rows)
    home.save(tmp_path / "b")
    there = home.elsewhere(tmp_path / "there")
    before = contents(there)
    with pytest.raises(
        (ArchiveRefused, RestoreRefused), match=r"The rows of the backup do not fit together|are not valid"
    ) as caught:
        there.restore(tmp_path / "b")
    assert "bud_" not in str(caught.value).partition("budget bud_")[0]
    assert contents(there) == before


def names_of_columns(url: str) -> set[str]:
    """The names of all tables of a database, and of all columns as ``table.column``."""
    engine = sa.create_engine(url)
    found = sa.inspect(engine)
    tables = {name: found.get_columns(name) for name in found.get_table_names()}
    engine.dispose()
    return {*tables, *(f"{name}.{column['name']}" for name, columns in tables.items() for column in columns)}


def test_an_older_schema_is_brought_to_the_newest(home: Home, tmp_path: Path) -> None:
    """The archive of a version that knew no webhooks."""
    older = home.databases.empty()
    upgrade(older, "0018")
    gone = dict.fromkeys(names_of_columns(home.url) - names_of_columns(older), "It is newer.")
    assert set(gone) >= {"webhooks", "webhook_messages", "datasets.person_column"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listed, "LEFT_OUT", dict(listed.LEFT_OUT) | gone)
        patch.setattr(making, "head_revision", lambda: "0018")
        manifest = home.save(tmp_path / "b")
    assert manifest.revision == "0018"
    there = home.elsewhere(tmp_path / "there")
    there.restore(tmp_path / "b")
    assert there.rows()["entries"] == home.rows()["entries"]
    assert there.rows()["ledger_lives"] == home.rows()["ledger_lives"]


def test_a_schema_that_is_newer_than_the_program_is_refused(home: Home, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(making, "head_revision", lambda: "9999")
        home.save(tmp_path / "b")
    there = home.elsewhere(tmp_path / "there")
    before = contents(there)
    with pytest.raises(RestoreRefused, match="the schema 9999, which this version does not know"):
        there.restore(tmp_path / "b")
    assert contents(there) == before


def test_books_that_are_not_valid_are_not_restored(home: Home, tmp_path: Path) -> None:
    engine = sa.create_engine(home.url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE budgets SET spent = '[0]'"))
    engine.dispose()
    home.save(tmp_path / "b", verifies=False)
    there = home.elsewhere(tmp_path / "there")
    before = contents(there)
    with pytest.raises(RestoreRefused, match="The books of the backup are not valid: budget bud_"):
        there.restore(tmp_path / "b")
    assert contents(there) == before


@pytest.mark.parametrize("databases", ["postgresql"], indirect=True)
def test_the_owner_of_the_database_needs_no_other_right(home: Home, tmp_path: Path) -> None:
    """As the page about PostgreSQL makes it: a role that is no superuser."""
    home.save(tmp_path / "b")
    there = home.elsewhere(tmp_path / "there")
    url, role = sa.make_url(there.url), f"owner_{tmp_path.stat().st_ino}"
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE ROLE {role} LOGIN PASSWORD 'p'"))
        connection.execute(sa.text(f'ALTER DATABASE "{url.database}" OWNER TO {role}'))
    own = replace(there, url=url.set(username=role, password="p").render_as_string(hide_password=False))
    try:
        own.restore(tmp_path / "b")
        assert len(own.rows()["entries"]) == len(home.rows()["entries"])
    finally:
        with engine.connect() as connection:
            connection.execute(sa.text(f"DROP OWNED BY {role} CASCADE"))
            connection.execute(sa.text(f'ALTER DATABASE "{url.database}" OWNER TO CURRENT_USER'))
            connection.execute(sa.text(f"DROP ROLE {role}"))
        engine.dispose()


def test_persons_are_deleted_after_a_restore_as_before(home: Home, tmp_path: Path) -> None:
    with home.service() as service:
        dataset_id = Datasets(service.client, service.context).uploaded()
    home.save(tmp_path / "b")
    there = home.elsewhere(tmp_path / "there")
    there.restore(tmp_path / "b")
    with there.service() as service:
        restored = Datasets(service.client, service.context)
        second = restored.deleted(dataset_id, "K-0001", "K-0004")
        assert restored.ages(second["id"]) == [50.5, 120.0]
        assert not restored.files.path(dataset_id).exists()
