"""Workers on a device: what a run says of it, what is refused before a charge, and who goes on with whose run."""

from __future__ import annotations

import signal
from dataclasses import dataclass

import numpy as np
import pytest
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from app.context import Context
from app.runs import process
from app.runs.evaluating import held_out_body
from app.runs.executors import local
from app.runs.executors.local import LocalExecutor
from app.runs.failures import DEVICE_TOO_SMALL
from app.runs.versions import code_version, versions
from app.settings import Settings
from tests.app.runs.conftest import Service
from tests.app.runs.executors.conftest import SCORE_KEY, SEED
from tests.app.runs.interrupted import check_released_once, kinds, left_after
from tests.app.runs.test_evaluating import ids_in, job_of
from tests.trainer.devices import STRICT, device_of, every_device
from trainer.arrays import Array
from trainer.devices import HOST, Device, DeviceFull, DeviceUnusable


def service_on(client: TestClient, context: Context, device: Device) -> Service:
    return Service(client, context, LocalExecutor(device))


@every_device
def test_a_private_run_says_what_computed_it(client: TestClient, context: Context, device: str) -> None:
    there = device_of(device)
    service = service_on(client, context, there)
    _, run = service.private()
    service.work()
    result = service.get(f"/v1/runs/{run['id']}")["result"]
    assert result["device"] == there.name
    assert result["versions"].items() >= there.versions.items()
    assert service.get(f"/v1/runs/{run['id']}/report")["device"] == there.name
    assert kinds(service, run) == ["reserve", "start", "commit"]


@every_device
def test_a_run_on_a_device_is_evaluated_with_what_it_releases(
    client: TestClient, context: Context, device: str, known_keys: None
) -> None:
    """The vector is that of the key and of the released numbers, as on the host, and it was charged."""
    service = service_on(client, context, device_of(device))
    run = service.queued(**ids_in(service), evaluation={})
    job = job_of(service, run)
    capacity = job.training.capacity
    on_host = local.run(job.plan, job.model, *job.scaled_rows(), seed=SEED, capacity=capacity).parameters
    service.work()
    shown = service.get(f"/v1/runs/{run['id']}")["result"]
    assert shown["device"] == device_of(device).name
    parameters = {name: np.array(value) for name, value in service.model(run)["parameters"].items()}
    assert shown["held_out"] == held_out_body(job, parameters, SCORE_KEY).model_dump(mode="json")
    for name, array in parameters.items():
        np.testing.assert_allclose(array, on_host[name], atol=1e-5)
    check_released_once(service, run)


@dataclass(frozen=True)
class Small(Device):
    """A device without memory."""

    def holding(self, array: Array) -> Array:
        raise DeviceFull


def test_a_private_run_that_a_device_has_no_room_for_is_refused_before_its_charge(
    client: TestClient, context: Context
) -> None:
    service = service_on(client, context, Small("small", STRICT.xp))
    _, run = service.private()
    service.work()
    ended = service.get(f"/v1/runs/{run['id']}")
    assert (ended["state"], ended["problem"]) == ("failed", DEVICE_TOO_SMALL)
    assert kinds(service, run) == ["reserve", "void"]


def test_a_run_does_not_go_on_where_sums_are_rounded_otherwise(client: TestClient, context: Context) -> None:
    """Its checkpoint belongs to the host. What was started stays charged."""
    run = left_after(service_on(client, context, HOST), 6)
    service = service_on(client, context, STRICT)
    service.work()
    ended = service.get(f"/v1/runs/{run['id']}")
    assert (ended["state"], ended["problem"]["code"]) == ("failed", "worker_lost")
    assert kinds(service, run) == ["reserve", "start", "commit"]


def test_versions_name_the_libraries_of_a_device_alone() -> None:
    there = Device("cuda: a card", STRICT.xp, {"cupy": "14"})
    assert versions("1", there) == versions("1") | {"cupy": "14"}
    others = (there, Device("cuda: another card", STRICT.xp, {"cupy": "14"}), STRICT)
    assert len({code_version(), *map(code_version, others)}) == 4


def test_the_settings_say_where_steps_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "cuda_device", lambda: STRICT)
    settings = Settings()
    with process.executor_for(settings) as executor:
        assert executor.device is HOST
    with process.executor_for(settings.model_copy(update={"device": "cuda"})) as executor:
        assert executor.device is STRICT


def test_a_worker_without_its_device_ends_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, context: Context
) -> None:
    def unusable() -> Device:
        raise DeviceUnusable("CuPy finds no CUDA device: check nvidia-smi")

    monkeypatch.setattr(process, "Settings", lambda: context.settings.model_copy(update={"device": "cuda"}))
    monkeypatch.setattr(process, "cuda_device", unusable)
    monkeypatch.setattr(process, "configure_logging", lambda _level, _shape: None)
    monkeypatch.setattr(signal, "signal", lambda _number, _handler: None)
    with capture_logs() as logged:
        assert process.main("wrk_here", 1) == 1
    [line] = [line for line in logged if line["event"] == "device_unusable"]
    assert "check nvidia-smi" in line["advice"]
