"""The program `epsilond` itself: from any folder, at a terminal and in a pipe."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app import VERSION
from app.cli.launcher import write_launcher
from app.settings import Settings, environment_of
from tests.app.cli.calls import done
from tests.app.cli.conftest import Live
from tests.app.cli.test_run import OPTIONS
from tests.databases import on_one_engine


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """In a folder, and with an interpreter, whose names a shell would take apart; reached by a link."""
    folder = tmp_path / "a folder; with 'quotes' and $HOME"
    folder.mkdir()
    (folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder / "python").chmod(0o755)
    link = tmp_path / "linked"
    link.symlink_to(write_launcher(folder, folder / "python"))
    return link


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a terminal: the test's and the program's."""
    ours, theirs = pty.openpty()
    try:
        yield ours, theirs
    finally:
        os.close(ours)


@contextmanager
def ending(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """A program that never ends would keep the test that reads its terminal for ever."""
    end = threading.Timer(60, process.kill)
    end.start()
    try:
        yield
    finally:
        end.cancel()
        process.kill()
        process.wait()


def seen_on(terminal_end: int) -> Iterator[str]:
    """What a terminal was sent, piece by piece, until the program's end is closed."""
    while True:
        try:
            yield os.read(terminal_end, 4096).decode()
        except OSError:
            return


def test_it_runs_from_any_folder(program: Path, tmp_path: Path) -> None:
    result = subprocess.run([program, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == (f"epsilond {VERSION}\n", "")
    with open("/dev/full", "w") as full:
        result = subprocess.run([program, "--version"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == "epsilond: The answer cannot be written: No space left on device.\n"
    environment = {**os.environ, "EPSILOND_DATA_DIR": "var", "EPSILOND_DATABASE_URL": ""}
    command = [program, "migrate", "--json"]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(result.stdout).keys() == {"revision"}
    assert (tmp_path / "var" / "epsilond.sqlite3").exists(), "a relative folder begins where the process is started"


def loaded(command: str, *modules: str, environment: dict[str, str] | None = None) -> set[str]:
    """Return those of the modules that a command imports."""
    code = f"""
import sys
from app.cli.main import main

sys.argv[1:] = {command.split()}
try:
    main()
except SystemExit:
    print(*{set(modules)} & set(sys.modules))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return set(result.stdout.splitlines()[-1].split())


@pytest.mark.thorough
def test_a_command_waits_for_no_part_of_the_service_that_it_does_not_need() -> None:
    assert loaded("--help", "numpy", "pydantic", "fastapi", "sqlalchemy", "rich") == set()
    unneeded = ("alembic", "uvicorn", "app.main", "sklearn", "rich", "pyarrow", "dp_accounting")
    assert loaded("account --noise-multiplier 1 --delta 1e-5", "accounting.accountant", *unneeded) == {
        "accounting.accountant"
    }


@on_one_engine
def test_a_schema_that_is_the_newest_is_left_as_it_is_without_alembic(settings: Settings) -> None:
    """A server looks for it at every start."""
    environment = {**os.environ, **environment_of(settings)}
    assert loaded("migrate", "alembic", "sqlalchemy", environment=environment) == {"sqlalchemy"}


def test_the_application_waits_for_nothing_that_its_first_answers_do_not_need() -> None:
    """Numerics load SciPy's submodules with the first calculation, and a migration loads Alembic."""
    code = """
import sys
import app.main

named = {"alembic", "mako", "distributed", "dp_accounting", "numba", "pyarrow", "sklearn", "typer", "uvicorn"}
named.add("numpy.f2py")
scipy = {name for name in sys.modules if name.startswith("scipy.") and name[6] != "_"} - {"scipy.version"}
print(*sorted(named & set(sys.modules) | scipy))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


@pytest.mark.thorough
def test_a_table_fits_a_terminal_and_is_plain_in_a_pipe(program: Path) -> None:
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "70"}
    arguments = ("convert", "--from", "zcdp", "--rho", "0.1", "--to", "approximate-dp", "--delta", "1e-5")
    with terminal() as (ours, theirs):
        process = subprocess.Popen([program, *arguments], env=environment, stdout=theirs)
        os.close(theirs)
        with ending(process):
            shown = "".join(seen_on(ours))
            assert process.wait(60) == 0
    assert "\x1b[1m" in shown
    assert max(map(len, re.sub("\x1b\\[[0-9]*m", "", shown).splitlines())) <= 70
    assert re.search(r"^renyi_region +approximate_dp +epsilon 1\.9\d+, delta 1e-05$", done(*arguments), re.MULTILINE)


def test_a_run_is_left_running_by_ctrl_c(program: Path, live: Live) -> None:
    run = json.loads(done(*OPTIONS, "--json", env=live.env))["id"]
    environment = {**os.environ, **live.env, "TERM": "xterm"}
    with terminal() as (ours, theirs):
        process = subprocess.Popen(
            [program, "run", "follow", run], env=environment, stdout=subprocess.PIPE, stderr=theirs
        )
        os.close(theirs)
        told, shown = False, ""
        assert process.stdout is not None
        with process.stdout, ending(process):
            for part in seen_on(ours):
                shown += part
                # The bar is there and knows how long the run is: the stream is open.
                if not told and "0/5" in shown:
                    process.send_signal(signal.SIGINT)
                    told = True
            assert process.wait(60) == 130, shown
            assert process.stdout.read() == b"", "nothing but the bar was shown, and not on standard output"
    assert f"The run goes on. `epsilond run follow {run}` watches it again" in shown
    assert json.loads(done("run", "show", run, "--json", env=live.env))["state"] == "queued"
