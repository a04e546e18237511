"""Checkpoints of runs: for the service alone, refused where they are not the run's own, and gone when it has ended."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import SecretStr

from app.fence.watching import fenced_context
from app.runs import checkpoint_files, execution, failures, resumption, worker
from app.runs.checkpoint_files import CheckpointFiles
from app.runs.leases import LeaseWatch, Sweeper
from app.settings import Settings
from tests.app.runs.conftest import Service
from tests.app.runs.interrupted import check_released_once, files, first_file, folder, kinds, left_after, stopping_after
from tests.databases import on_one_engine


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """A checkpoint is due after every step."""
    return settings.model_copy(update={"checkpoint_interval_s": 1e-9})


def damage(change: Callable[[bytes], bytes]) -> Callable[[Service, pytest.MonkeyPatch], None]:
    def spoil(service: Service, _patch: pytest.MonkeyPatch) -> None:
        path = first_file(service)
        path.write_bytes(change(path.read_bytes()))

    return spoil


def with_a_bit_changed(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def other_version(_service: Service, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(resumption, "code_version", lambda: "an older one")


def other_data(_service: Service, patch: pytest.MonkeyPatch) -> None:
    load = execution.datasets.load

    def changed(*arguments: Any) -> Any:
        loaded = load(*arguments)
        features = loaded.features.copy()
        features[3, 1] = np.nextafter(features[3, 1], 1e9)
        return replace(loaded, features=features)

    patch.setattr(execution.datasets, "load", changed)


def other_key(service: Service, _patch: pytest.MonkeyPatch) -> None:
    encrypted = fenced_context(
        service.context.settings.model_copy(update={"data_key": SecretStr("ab" * 32)}), service.context.database
    )
    run_id, stream_id, epoch, _ = first_file(service).name.split(".")
    CheckpointFiles(encrypted).write(run_id, stream_id, int(epoch), b"x")


def other_secret(service: Service, _patch: pytest.MonkeyPatch) -> None:
    files, (run_id, stream_id, epoch, _) = CheckpointFiles(service.context), first_file(service).name.split(".")
    [content] = files.read_all(run_id, stream_id)
    settings = Settings(data_dir=service.context.settings.data_dir, secret_key=SecretStr("another secret" * 3))
    CheckpointFiles(fenced_context(settings, service.context.database)).write(run_id, stream_id, int(epoch), content)


@pytest.mark.one_in(3)
@on_one_engine
@pytest.mark.parametrize(
    "spoil",
    [
        damage(lambda content: content[:-40]),
        damage(with_a_bit_changed),
        lambda service, _: first_file(service).unlink(),
        other_version,
        other_data,
        other_key,
        other_secret,
    ],
    ids=["cut short", "one bit", "lost", "older version", "other data", "other key", "other secret"],
)
def test_a_started_run_without_a_checkpoint_of_its_own_fails_with_its_charge(service, monkeypatch, spoil):
    run = left_after(service, 6)
    spoil(service, monkeypatch)
    service.work()
    ended = service.get(f"/v1/runs/{run['id']}")
    assert (ended["state"], ended["problem"]) == ("failed", failures.WORKER_LOST)
    assert kinds(service, run) == ["reserve", "start", "commit"]
    assert files(service) == []


@on_one_engine
def test_another_runs_checkpoint_is_not_gone_on_from(service):
    mine = left_after(service, 6)
    path = first_file(service)
    other = service.queued(dataset_id="ds_breast_cancer", seed=8)
    with service.context.database.write() as session:
        session.get_one(worker.Run, mine["id"]).state = "cancelling"  # aside
    assert worker.work_once(service.context, "wrk_other", stopping_after(4))
    foreign = next(each for each in files(service) if each.name.startswith(other["id"]))
    path.write_bytes(foreign.read_bytes())
    with service.context.database.write() as session:
        session.get_one(worker.Run, mine["id"]).state = "queued"
    service.work()
    assert service.get(f"/v1/runs/{mine['id']}")["problem"] == failures.WORKER_LOST


@on_one_engine
def test_data_that_are_deleted_meanwhile_do_not_make_the_charge_undone(service):
    _, run = service.private()
    assert worker.work_once(service.context, "wrk_first", stopping_after(3))
    execution.datasets.delete(service.context, run["dataset_id"])
    service.work()
    ended = service.get(f"/v1/runs/{run['id']}")
    assert ended["problem"] == failures.WORKER_LOST, "that nothing was charged would be wrong"
    assert service.reservation_state(run) == "committed"


@on_one_engine
@pytest.mark.parametrize("key", [None, SecretStr("5a" * 32)], ids=["no key", "with a key"])
def test_checkpoints_are_for_the_service_alone_and_unreadable_where_a_key_is_set(service, settings, key):
    context = fenced_context(settings.model_copy(update={"data_key": key}), service.context.database)
    _, run = service.charged(seed=7)
    assert worker.work_once(context, "wrk_first", stopping_after(3))
    path = first_file(service)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    content = path.read_bytes()
    for plain in (b"NUMPY", b"lanes", b"noise", run["plan_hash"].encode(), run["plan_hash"].encode("utf-32-le")):
        assert key is None or plain not in content
    assert key is not None or b"NUMPY" in content, "the control"
    assert worker.work_once(context, "wrk_next")
    assert service.stored(run).state == "succeeded"
    assert files(service) == []


@on_one_engine
def test_what_a_lost_worker_keeps_after_the_end_goes_with_the_next_sweep_and_nothing_else(service):
    left_after(service, 6)
    late, stranger = first_file(service), folder(service) / "run_of_another_database.stream.1.checkpoint"
    content = late.read_bytes()
    service.work()
    unfinished = late.with_name(f"{late.name}.0123456789abcdef.part")
    for path in (late, stranger, unfinished):
        path.write_bytes(content)
    waiting = left_after(service, 2)
    Sweeper(service.context, LeaseWatch()).sweep()
    assert [path.name.partition(".")[0] for path in files(service)] == sorted(
        [waiting["id"], "run_of_another_database"]
    )


@on_one_engine
def test_a_full_disk_costs_checkpoints_and_not_the_run(service, monkeypatch):
    write = CheckpointFiles.write
    kept = []

    def full(self, *arguments):
        if kept:
            raise OSError(28, "No space left on device")
        kept.append(write(self, *arguments))

    monkeypatch.setattr(checkpoint_files.CheckpointFiles, "write", full)
    _, run = service.charged()
    service.work()
    check_released_once(service, run)


@on_one_engine
def test_a_run_whose_keys_cannot_be_kept_is_not_started(service, monkeypatch):
    def full(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_files.CheckpointFiles, "write", full)
    _, run = service.charged()
    service.work()
    assert service.get(f"/v1/runs/{run['id']}")["problem"] == failures.NOT_STARTED
    assert service.reservation_state(run) == "voided"
