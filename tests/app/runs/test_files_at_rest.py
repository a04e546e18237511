"""Files get from an older data key to the newest while runs, uploads and deletions go on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.context import Context
from app.datasets import repository
from app.datasets import service as datasets
from app.kit.data_keys import KeyFile, key_id, shown
from app.runs import files_at_rest, worker
from app.runs.checkpoint_files import CheckpointFiles
from app.runs.files_at_rest import Outcome, count_held, encrypt_anew, held_by_keys
from app.settings import Settings
from tests.app.runs.conftest import MORE_ROWS, Service
from tests.app.runs.interrupted import check_released_once, first_file, left_after

KEY = bytes(range(32))


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """A checkpoint is due after every step."""
    path = tmp_path / "data.key"
    path.write_text(KEY.hex())
    return settings.model_copy(update={"data_key_file": path, "checkpoint_interval_s": 1e-9})


def key_file(context: Context) -> KeyFile:
    keys = context.settings.encryption.keys
    assert isinstance(keys, KeyFile)
    return keys


def anew(context: Context) -> Outcome:
    return encrypt_anew(context, lambda _done, _of: None)


def rows_of(context: Context, dataset_id: str) -> Any:
    with context.database.read() as session:
        return datasets.load(context, session, dataset_id).features.tolist()


def path_of(context: Context, dataset_id: str) -> Path:
    return context.settings.data_dir / "datasets" / f"{dataset_id}.npz"


def test_everything_gets_the_newest_key_and_a_run_goes_on_from_its_checkpoint(service: Service) -> None:
    context = service.context
    run = left_after(service, 6)
    private = service.private()[1]["dataset_id"]
    before = rows_of(context, private)
    in_the_clear = service.dataset(MORE_ROWS, public=True)["id"]
    path = path_of(context, in_the_clear)
    with context.settings.encryption.open(path) as file:
        content = file.read()
    path.write_bytes(content)
    files = sum(holding.files for holding in held_by_keys(context.settings).values())

    newest = key_file(context).rotate()
    assert anew(context) == Outcome(files, 0, ())
    held = held_by_keys(context.settings)
    assert {identity: holding.files for identity, holding in held.items()} == {newest: files}
    assert anew(context) == Outcome(0, 0, ())
    key_file(context).drop(shown(key_id(KEY)), partial(count_held, context.settings))
    assert rows_of(context, private) == before
    # The run on private rows, too, whoever's turn it is first.
    service.work()
    service.work()
    check_released_once(service, run)


def test_the_checkpoint_of_a_run_in_progress_is_left_to_its_worker(service: Service) -> None:
    run = left_after(service, 6)
    with service.context.database.write() as session:
        session.get_one(worker.Run, run["id"]).state = "running"
    before = first_file(service).read_bytes()
    key_file(service.context).rotate()
    outcome = anew(service.context)
    assert (outcome.left, outcome.unreadable) == (len(list(first_file(service).parent.iterdir())), ())
    assert first_file(service).read_bytes() == before
    with service.context.database.write() as session:
        session.get_one(worker.Run, run["id"]).state = "queued"
    service.work()
    check_released_once(service, run)
    assert anew(service.context).left == 0


def test_a_newer_checkpoint_is_not_replaced_by_an_older_one(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker took the run and gave it back between the copying and the lock."""
    run = left_after(service, 6)
    path = first_file(service)
    key_file(service.context).rotate()
    real = files_at_rest._may_replace

    @contextmanager
    def later(context: Context, each: Path) -> Iterator[bool]:
        if each == path:
            run_id, stream_id, epoch, _ = path.name.split(".")
            CheckpointFiles(context).write(run_id, stream_id, int(epoch), b"newer")
        with real(context, each) as may:
            yield may

    monkeypatch.setattr(files_at_rest, "_may_replace", later)
    anew(service.context)
    _, stream_id, _, _ = path.name.split(".")
    assert list(CheckpointFiles(service.context).read_all(run["id"], stream_id)) == [b"newer"]


def test_rows_that_are_deleted_meanwhile_do_not_come_back(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    context = service.context
    gone, stays = (service.dataset(MORE_ROWS, public=True)["id"] for _ in range(2))
    erased = service.private()[1]["dataset_id"]
    key_file(context).rotate()
    real = files_at_rest._may_replace

    @contextmanager
    def after_the_deletion(context: Context, path: Path) -> Iterator[bool]:
        if path.stem == gone:
            datasets.delete(context, gone)
        if path.stem == erased:
            assert service.add_version(erased, "a,b,color,y\n1,0,red,no\n", erase_earlier=True).status_code == 201
        with real(context, path) as may:
            yield may

    monkeypatch.setattr(files_at_rest, "_may_replace", after_the_deletion)
    assert anew(context).left == 0
    assert not path_of(context, gone).exists()
    assert not path_of(context, erased).exists()
    assert rows_of(context, stays)


def test_rows_that_are_marked_deleted_are_not_encrypted_anew(service: Service) -> None:
    """The process that deleted them was killed before it removed the file."""
    context, dataset_id = service.context, service.dataset(public=True)["id"]
    with context.database.write() as session:
        assert repository.mark_deleted(session, dataset_id, context.clock())
    with files_at_rest._may_replace(context, path_of(context, dataset_id)) as may:
        assert may is False
    key_file(context).rotate()
    assert anew(context) == Outcome(0, 0, ())
    assert not path_of(context, dataset_id).exists(), "it was removed first"


def test_a_deletion_waits_for_a_file_that_is_being_replaced(service: Service) -> None:
    context, dataset_id = service.context, service.dataset(public=True)["id"]
    deleting = threading.Thread(target=datasets.delete, args=(context, dataset_id))
    with files_at_rest._may_replace(context, path_of(context, dataset_id)) as may:
        assert may
        deleting.start()
        deleting.join(0.5)
        assert deleting.is_alive()
        assert path_of(context, dataset_id).exists()
    deleting.join()
    assert not path_of(context, dataset_id).exists()


def test_what_was_stopped_is_gone_on_with_and_several_may_work_at_once(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = service.context
    ids = [service.dataset(public=True, name=f"d{number}")["id"] for number in range(4)]
    key_file(context).rotate()

    class Stopped(Exception):
        pass

    def stop(done: int, _of: int) -> None:
        if done == 2:
            raise Stopped

    with pytest.raises(Stopped):
        encrypt_anew(context, stop)
    assert sorted(holding.files for holding in held_by_keys(context.settings).values()) == [2, 2]
    threads = [threading.Thread(target=anew, args=(context,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(held_by_keys(context.settings)) == 1
    assert all(rows_of(context, each) for each in ids)


def test_files_that_nobody_knows_or_can_read(service: Service) -> None:
    context = service.context
    dataset_id = service.dataset(public=True)["id"]
    damaged = path_of(context, dataset_id)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    uploaded, forgotten = (path_of(context, name) for name in ("ds_on_its_way_in", "ds_of_another_database"))
    for path in (uploaded, forgotten):
        context.settings.encryption.write(path, lambda file: file.write(b"rows") and None)
    long_ago = time.time() - 2 * 24 * 3600
    os.utime(forgotten, (long_ago, long_ago))
    newest = key_file(context).rotate()
    assert anew(context) == Outcome(done=1, left=1, unreadable=(damaged,))
    assert held_by_keys(context.settings)[newest].files == 1
    with context.settings.encryption.open(forgotten) as file:
        assert file.read() == b"rows"
