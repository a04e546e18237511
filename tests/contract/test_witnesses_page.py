"""docs/operating/witnesses.md, typed: the programs of both parties and of the monitor, over HTTP."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.cli.launcher import write_launcher
from tests.contract.documents import DOCS, ROOT
from tests.e2e.server import serving

PAGE = DOCS / "operating" / "witnesses.md"
BLOCK = re.compile(r"(?:^ {4,}\S.*\n)+", re.MULTILINE)


def blocks() -> list[str]:
    """The indented blocks, without their indentation."""
    return [re.sub(r"^ +", "", block, flags=re.MULTILINE) for block in BLOCK.findall(PAGE.read_text())]


class Machine:
    """A folder in which somebody types, with the programs and variables that they have."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        folder.mkdir()
        self.folder = folder
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("EPSILOND_", "PYTHON"))}
        self.environment = inherited | environment
        self.commands = folder / "bin"
        self.commands.mkdir()
        self.environment["PATH"] = f"{self.commands}:{os.environ['PATH']}"

    def type(self, script: str, status: int = 0) -> str:
        done = subprocess.run(
            ["bash", "-eu", "-c", script],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == status, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    @contextmanager
    def running(self, command: str) -> Iterator[str]:
        """A program that goes on; the first line that it prints."""
        process = subprocess.Popen(
            ["bash", "-euc", f"exec {command}"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        first = process.stdout.readline()
        reader = threading.Thread(target=process.stdout.read, daemon=True)
        reader.start()
        try:
            yield first
        finally:
            process.terminate()
            process.wait()
            reader.join()
            process.stdout.close()


def installed(machine: Machine, script: str) -> None:
    """Type the installation. Nothing is fetched: what it needs is already in the environment of the tests."""
    venv, _, pip = script.partition("\n")
    machine.type(venv.replace("python3", sys._base_executable))  # type: ignore[attr-defined]
    [packages] = (machine.folder / "witness-program" / "lib").glob("python*/site-packages")
    (packages / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (machine.folder / "clients").symlink_to(ROOT / "clients")
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_CACHE_DIR": "1"}
    machine.type("".join(f"export {name}={value}\n" for name, value in offline.items()) + pip)
    (machine.commands / "epsilond-witness").symlink_to(machine.folder / "witness-program" / "bin" / "epsilond-witness")


@pytest.mark.thorough
def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    install, init, public_key, serve, named, ask, checkpoint, monitor, line, conflicts = blocks()
    data = tmp_path / "data"
    operator = Machine(tmp_path / "operator", {"EPSILOND_DATA_DIR": str(data)})
    second, third = Machine(tmp_path / "second", {}), Machine(tmp_path / "third", {})
    write_launcher(operator.commands, Path(sys.executable))
    installed(second, install)
    (third.commands / "epsilond-witness").symlink_to(second.commands / "epsilond-witness")

    operator.type("epsilond migrate")
    ledger_key, witness_key = operator.type(public_key), second.type(init)
    for machine in (operator, second, third):
        machine.environment |= {"LEDGER_KEY": ledger_key, "WITNESS_KEY": witness_key}

    with second.running(serve.replace("8010", "0")) as first:
        address = json.loads(first)["serving"]
        setting = named.splitlines()[0].replace("http://127.0.0.1:8010", address)
        assert named.splitlines()[1] == "epsilond serve --migrate"
        value = operator.type(f'{setting}\nprintf %s "$EPSILOND_WITNESSES"')
        settings = {"EPSILOND_DATA_DIR": str(data), "EPSILOND_WORKERS": "0", "EPSILOND_WITNESSES": value}
        operator.environment |= settings
        with serving(settings) as api:
            limit = {"kind": "zcdp", "rho": 1.0}
            relation = "add_or_remove_one"
            made = api.post("/v1/budgets", {"name": "b", "filter": limit, "neighboring_relation": relation})
            assert made.status_code == 201, made.text
            url = str(api.client.base_url).rstrip("/")
            assert "cosigned" in operator.type(ask)
            assert api.get("/health/ready").json()["checks"]["witnesses"] == "ok"
            assert "valid" in operator.type(checkpoint)
            operator.type("epsilond ledger checkpoint --output without.txt")
            unwitnessed = operator.folder / "without.txt"
            unwitnessed.write_text(re.sub(r"^\u2014 witness.*\n", "", unwitnessed.read_text(), flags=re.MULTILINE))
            verify = checkpoint.splitlines()[1].replace("checkpoint.txt", "without.txt")
            operator.type(verify, status=1)
            operator.type(f"{verify} --quorum 2", status=1)
            create, look = monitor.split("\n", 1)
            operator.type(create)
            (third.folder / "auditor.key").symlink_to(operator.folder / "auditor.key")
            look = look.replace("http://127.0.0.1:8000", url)
            shown = json.loads(third.type(look))
            assert shown.keys() == json.loads(line).keys()
            assert (shown["alerts"], shown["size"] >= 2) == ([], True), "the budget and the key"
            assert second.type(conflicts) == ""
        # The operator makes the past another one, with the key of the ledger.
        rewritten(data / "epsilond.sqlite3")
        assert "inconsistent" in operator.type(ask, status=1)
        with serving(settings) as api:
            look = look.replace(url, str(api.client.base_url).rstrip("/"))
            told = {each["alert"] for each in json.loads(third.type(look, status=1))["alerts"]}
            assert "inconsistent" in told
        assert json.loads(second.type(conflicts, status=1))["origin"] == ledger_key.partition("+")[0]


def rewritten(path: Path) -> None:
    """Another first leaf in the tree, which is made again from its leaves, and no checkpoint of before."""
    database = sqlite3.connect(path, isolation_level=None)
    try:
        for (trigger,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{trigger}"')
        for table in ("merkle_leaves", "merkle_nodes", "merkle_checkpoints", "merkle_cosignatures"):
            database.execute(f"DELETE FROM {table}")
        database.execute("UPDATE merkle_trees SET size = 0, checkpoints = 0, settled_leaf_index = 0, frontier = x''")
        database.execute("UPDATE entries SET hash = substr(hash, 2) || substr(hash, 1, 1) WHERE leaf_index = 1")
    finally:
        database.close()


def test_the_programs_know_every_option_of_the_page() -> None:
    """The witness's own parser reads each of its commands on the page."""
    from epsilond_witness.__main__ import _parser

    commands = [line for block in blocks() for line in block.replace("\\\n", " ").splitlines()]
    typed = [line.split()[1:] for line in commands if line.startswith("epsilond-witness ")]
    assert {words[0] for words in typed} == {"init", "serve", "monitor", "conflicts"}
    for words in typed:
        _parser().parse_args(words)
