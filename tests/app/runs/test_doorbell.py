"""A run that was just queued wakes an idle worker, and nothing depends on that."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from app.runs import doorbell, worker
from app.runs.doorbell import Doorbell
from tests.databases import on_one_engine

#: Longer than any test may take: who is still waiting then was not woken.
FOREVER_S = 600.0
PATIENCE_S = 30.0


@contextmanager
def waiting(bell: Doorbell, count: int = 1) -> Iterator[list[threading.Thread]]:
    threads = [threading.Thread(target=bell.wait, args=(FOREVER_S,), daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    yield threads


def fill(pipe: Path) -> None:
    writing = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"\n" * 4096)
    os.close(writing)


def test_a_ring_ends_a_wait_also_one_that_comes_later(tmp_path: Path) -> None:
    with Doorbell(tmp_path, "wrk_a") as bell:
        doorbell.ring(tmp_path)
        doorbell.ring(tmp_path)
        for _ in range(2):
            with waiting(bell) as [thread]:
                doorbell.ring(tmp_path)
                thread.join(PATIENCE_S)
                assert not thread.is_alive()


def test_rings_that_were_heard_do_not_end_the_next_wait(tmp_path: Path) -> None:
    with Doorbell(tmp_path, "wrk_a") as bell:
        doorbell.ring(tmp_path)
        bell.wait(FOREVER_S)
        with waiting(bell) as [thread]:
            thread.join(0.05)
            assert thread.is_alive()
            doorbell.ring(tmp_path)
            thread.join(PATIENCE_S)


def test_every_worker_of_the_folder_hears_it(tmp_path: Path) -> None:
    with Doorbell(tmp_path, "wrk_a") as one, Doorbell(tmp_path, "wrk_b") as other:
        with waiting(one) as [first], waiting(other) as [second]:
            doorbell.ring(tmp_path)
            first.join(PATIENCE_S)
            second.join(PATIENCE_S)
        assert not first.is_alive()
        assert not second.is_alive()


def test_bells_of_workers_that_are_gone_disturb_nobody(tmp_path: Path) -> None:
    doorbell.ring(tmp_path)
    with pytest.raises(RuntimeError, match="power cut"), Doorbell(tmp_path, "wrk_gone") as gone:
        raise RuntimeError("power cut")
    assert list((tmp_path / "workers").iterdir()) == []
    gone.__enter__()
    path = tmp_path / "workers" / "wrk_gone.bell"
    assert path.stat().st_mode & 0o777 == 0o600
    fill(path)
    doorbell.ring(tmp_path)
    doorbell.forget(tmp_path, "wrk_gone")
    assert not path.exists()


@on_one_engine
def test_an_idle_worker_takes_a_run_as_soon_as_it_is_queued(service, monkeypatch):
    monkeypatch.setattr(worker, "LOOK_INTERVAL_S", FOREVER_S)
    stopped, carried_out = threading.Event(), threading.Event()
    work_once = worker.work_once

    def work_and_tell(*given):
        done = work_once(*given)
        if done:
            carried_out.set()
        return done

    monkeypatch.setattr(worker, "work_once", work_and_tell)
    folder = service.context.settings.data_dir
    with Doorbell(folder, "wrk_idle") as bell:
        thread = threading.Thread(target=worker.work, args=(service.context, "wrk_idle", bell, stopped.is_set))
        thread.start()
        try:
            run = service.queued(dataset_id="ds_breast_cancer")
            assert carried_out.wait(PATIENCE_S)
        finally:
            stopped.set()
            doorbell.ring(folder)
            thread.join(PATIENCE_S)
    assert service.get(f"/v1/runs/{run['id']}")["state"] == "succeeded"
