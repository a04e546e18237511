"""The units of docs/operating/systemd: what they run and set exists, systemd takes them, and their commands work."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.launcher import write_launcher
from app.cli.main import cli
from app.db.migrate import upgrade
from app.settings import Settings
from tests.contract.documents import DOCS, ROOT

PAGE = DOCS / "operating" / "one_machine.md"
UNITS = DOCS / "operating" / "systemd"
SERVICES = sorted(UNITS.glob("*.service"))
TIMERS = sorted(UNITS.glob("*.timer"))
#: Of the files, to the folders of a test.
FOLDERS = ("/opt/epsilond", "/etc/epsilond", "/var/lib/epsilond", "/srv/epsilond-fence", "/var/backups/epsilond")


def read(unit: Path) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(delimiters=("=",), comment_prefixes=("#",), strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit.read_text())
    return parser


def settings() -> dict[str, str]:
    lines = (UNITS / "epsilond.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def epsilond_calls(text: str) -> list[list[str]]:
    """The commands of the service in a text, up to their first option or argument."""
    found = re.findall(r"(?:^|[ /'])epsilond ((?:[a-z][a-z-]+ ?)+)", text, re.MULTILINE)
    return [call.split() for call in found]


def test_every_setting_exists() -> None:
    known = {f"EPSILOND_{name.upper()}" for name in Settings.model_fields}
    assert {name for name in settings() if name.startswith("EPSILOND_")} <= known
    assert settings().keys() - known == {"PATH", "KEPT", "KEEP_DAYS"}


def test_every_command_exists() -> None:
    """In the units, in the script and on the page; what follows a command's name there is an argument."""
    lines = [read(unit)["Service"]["ExecStart"] for unit in SERVICES]
    lines.append((UNITS / "epsilond-nightly").read_text())
    lines += re.findall(r"^    as_service (epsilond .*)$", PAGE.read_text(), re.MULTILINE)
    calls = [call for line in lines for call in epsilond_calls(line)]
    assert {call[0] for call in calls} >= {"serve", "ledger", "backup", "check-backup", "migrate", "keys", "secrets"}
    for call in calls:
        result = CliRunner().invoke(cli, [*call, "--help"])
        assert result.exit_code == 0, (call, result.output)


def test_every_unit_and_file_is_on_the_page_and_in_the_folder() -> None:
    text = PAGE.read_text()
    for unit in SERVICES:
        assert f"(systemd/{unit.name})" in text
    assert {timer.stem for timer in TIMERS} == {unit.stem for unit in SERVICES} - {"epsilond"}
    enabled = set(re.findall(r"epsilond[a-z-]*\.(?:timer|service)", "".join(re.findall(r"systemctl enable.*", text))))
    assert enabled == {"epsilond.service", *(timer.name for timer in TIMERS)}
    for path in re.findall(r"docs/operating/[\w./-]+[\w]", text):
        assert (ROOT / path).exists(), path


def test_each_unit_may_write_where_its_settings_say_and_nowhere_else() -> None:
    given = settings()
    for unit in SERVICES:
        section = read(unit)["Service"]
        assert section["User"] == "epsilond"
        assert (section["UMask"], section["ProtectSystem"]) == ("0077", "strict")
        assert section["EnvironmentFile"] == "/etc/epsilond/epsilond.env"
        writable = {f"/var/lib/{section['StateDirectory']}", *section["ReadWritePaths"].split()}
        assert given["EPSILOND_DATA_DIR"] in writable
        assert str(Path(given["EPSILOND_FENCE"]).parent) in writable
        needs_kept = "KEPT" in section["ExecStart"] and "--output" in section["ExecStart"]
        assert (given["KEPT"] in writable) == (needs_kept or "nightly" in section["ExecStart"])


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The folders of the page under one of the test's own, with the units and the settings that lead there."""
    for folder in FOLDERS:
        (tmp_path / folder[1:]).mkdir(parents=True, mode=0o700)
    (tmp_path / "var/backups/epsilond/checkpoints").mkdir()
    programs = tmp_path / "opt/epsilond/bin"
    programs.mkdir()
    write_launcher(programs, Path(sys.executable))
    shutil.copy(UNITS / "epsilond-nightly", programs)
    (tmp_path / "etc/epsilond/data.key").write_text("ab" * 32)
    (tmp_path / "units").mkdir()
    for file in (*SERVICES, *TIMERS, UNITS / "epsilond.env"):
        text = file.read_text()
        for folder in FOLDERS:
            text = text.replace(folder, f"{tmp_path}{folder}")
        (tmp_path / "units" / file.name).write_text(text)
    shutil.move(tmp_path / "units/epsilond.env", tmp_path / "etc/epsilond/epsilond.env")
    return tmp_path


def run_unit(machine: Path, name: str) -> subprocess.CompletedProcess[str]:
    """What the unit's command does with the unit's settings. `%%` and `$$` are systemd's words for `%` and `$`."""
    line = read(machine / "units" / name)["Service"]["ExecStart"].replace("%%", "%").replace("$$", "$")
    script = f'set -a; . "{machine}/etc/epsilond/epsilond.env"; umask 077; cd /; {line}'
    clean = {name: value for name, value in os.environ.items() if not name.startswith("EPSILOND_")}
    return subprocess.run(["sh", "-c", script], env=clean, capture_output=True, text=True, check=False)


@pytest.mark.thorough
def test_the_jobs_of_the_timers_work_and_fail_where_the_books_are_not_what_was_signed(machine: Path) -> None:
    data, kept = machine / "var/lib/epsilond", machine / "var/backups/epsilond"
    upgrade(f"sqlite:///{data / 'epsilond.sqlite3'}")
    for name in ("epsilond-checkpoint.service", "epsilond-nightly.service", "epsilond-verify.service"):
        done = run_unit(machine, name)
        assert done.returncode == 0, (name, done.stdout, done.stderr)
    assert len(list((kept / "checkpoints").glob("*.txt"))) in (1, 2)
    (night,) = kept.glob("20*")
    assert (night / "epsilond.backup").stat().st_mode & 0o077 == 0
    assert (machine / "srv/epsilond-fence/fence").exists()
    for note in (kept / "checkpoints").iterdir():
        note.write_text("of another ledger\n")
    assert run_unit(machine, "epsilond-verify.service").returncode == 1


@pytest.mark.thorough
def test_systemd_takes_the_units(machine: Path) -> None:
    """Where it is installed; the tests above read the units by themselves."""
    program = shutil.which("systemd-analyze")
    if program is None:
        return
    units = [str(path) for path in sorted((machine / "units").iterdir())]
    said = subprocess.run([program, "verify", "--man=no", *units], capture_output=True, text=True, check=False)
    own = [line for line in said.stderr.splitlines() if "epsilond" in line]
    assert (said.returncode, own) == (0, []), said.stderr
