"""What the pages about PostgreSQL and upgrades tell an operator to do is done; backups have a file of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from app.cli.launcher import write_launcher
from app.db.database import Database
from app.db.migrate import is_at_head, upgrade
from app.settings import Settings
from tests.contract.documents import DOCS, ROOT

BLOCK = re.compile(r"(?:^ {4,}\S.*\n)+", re.MULTILINE)


def commands(page: str) -> list[str]:
    """The indented blocks of a page, without their indentation."""
    text = (DOCS / "operating" / page).read_text()
    return [re.sub(r"^ +", "", block, flags=re.MULTILINE) for block in BLOCK.findall(text)]


def run(scripts: list[str], folder: Path, environment: dict[str, str]) -> str:
    """Run scripts in one shell, as an operator with an `epsilond` of this checkout."""
    programs = folder / "bin"
    programs.mkdir()
    write_launcher(programs, Path(sys.executable))
    result = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", "\n".join(scripts)],
        cwd=ROOT,
        env={"PATH": f"{programs}:{os.environ['PATH']}", "LANG": "C.UTF-8", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_role_that_the_page_makes_is_enough(postgresql_url: str) -> None:
    """Neither a superuser nor anybody else's database is needed."""
    [statements, *_] = commands("postgresql.md")
    created = [line for line in statements.splitlines() if line.startswith("CREATE")]
    assert len(created) == 2
    engine = create_engine(postgresql_url, isolation_level="AUTOCOMMIT")
    name, password = "epsilond_of_the_page", "a password"
    drop = [f"DROP DATABASE IF EXISTS {name} WITH (FORCE)", f"DROP ROLE IF EXISTS {name}"]
    with engine.connect() as connection:
        for statement in [*drop, *(re.sub(r"\bepsilond\b", name, line).replace("...", password) for line in created)]:
            connection.execute(text(statement))
    given = make_url(postgresql_url).set(drivername="postgresql", username=name, password=password, database=name)
    settings = Settings(database_url=given.render_as_string(hide_password=False))
    try:
        migrated_by_the_role(settings.sqlalchemy_url)
    finally:
        with engine.connect() as connection:
            for statement in drop:
                connection.execute(text(statement))
        engine.dispose()


def migrated_by_the_role(url: str) -> None:
    upgrade(url)
    database = Database(url)
    try:
        assert is_at_head(database)
        with database.read() as session:
            assert session.execute(text("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")).scalar() is False
    finally:
        database.dispose()


@pytest.mark.thorough
def test_the_commands_of_an_upgrade_work(tmp_path: Path) -> None:
    """On a ledger of SQLite at the first revision; what migrations make of rows is tested elsewhere."""
    kept = tmp_path / "kept"
    kept.mkdir()
    environment = {"EPSILOND_DATA_DIR": str(tmp_path / "data"), "KEPT": str(kept)}
    migrate, verify, reprice = commands("upgrades.md")
    assert [script.split()[:3] for script in (verify, reprice)] == [
        ["epsilond", "ledger", "verify"],
        ["epsilond", "ledger", "reprice"],
    ]
    (tmp_path / "data").mkdir(mode=0o700)
    upgrade(f"sqlite:///{tmp_path / 'data' / 'epsilond.sqlite3'}", "0001")
    export = 'epsilond ledger export --output "$KEPT/ledger.ndjson"'
    said = run([migrate, export, verify, reprice], tmp_path, environment)
    assert "valid" in said
