"""Collection is paused while a process loads, and in none for longer."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from app.kit import collector
from app.kit.process_pool import ProcessPool
from app.settings import Settings, environment_of

ACCOUNT = "account --noise-multiplier 3 --delta 1e-5"


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One item for every time that what there is was kept from collection."""
    found: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: found.append(True))
    return found


@pytest.mark.parametrize(
    "command", [ACCOUNT, "keys list", "budget list --url http://127.0.0.1:9", "ledger verify --export nothing"]
)
def test_a_command_collects_again_when_it_begins_its_work(frozen: list[bool], tmp_path: Path, command: str) -> None:
    collector.pause()
    try:
        CliRunner().invoke(cli, command.split(), env=environment_of(Settings(data_dir=tmp_path / "var")))
        assert gc.isenabled()
        assert frozen == [True]
    finally:
        gc.enable()


def test_where_nothing_is_paused_nothing_is_kept_from_collection(frozen: list[bool]) -> None:
    collector.resume()
    assert gc.isenabled()
    assert frozen == []


def test_a_worker_looks_at_nothing_that_it_has_loaded() -> None:
    pool = ProcessPool(1, 60.0, 2**31)
    try:
        assert pool.run(gc.isenabled)
        assert pool.run(gc.get_freeze_count) > 1000
    finally:
        pool.close()
