"""What a cluster is given, keeps and shows; and which clusters are refused."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from app.runs import execution, lifecycle
from app.runs.checkpoint_files import CheckpointFiles
from app.runs.execution import load_job
from app.runs.executors import cluster, dask
from app.runs.executors.cluster import ADVICE, Cluster, fault_of
from app.runs.executors.slices import Failed, Finished, Machine, Refused, Rows, Slice, Unfinished, train_slice
from app.runs.resumption import begin
from app.runs.supervisor import Supervisor
from app.runs.versions import code_version
from app.settings import Settings, settings_faults
from tests.app.runs.executors.clusters import TIMEOUT_S, until
from tests.app.runs.executors.sabotage import slow


def tasks_of(service: Any) -> dict[str, str]:
    """Keys of all that the scheduler knows, and what it shows of their calls and results."""
    client = service.executor._cluster._client

    def shown(dask_scheduler: Any) -> dict[str, str]:
        return {key: f"{task!r} {task.type} {task.run_spec}" for key, task in dask_scheduler.tasks.items()}

    found: dict[str, str] = client.run_on_scheduler(shown)
    return found


@pytest.mark.thorough
def test_rows_reach_a_machine_once_and_not_with_every_run(processes, on_dask, monkeypatch):
    monkeypatch.setattr(dask, "SHORTEST_SLICE_S", 0.1)
    if len(processes.workers) < 2:
        processes.start_worker()
    until(lambda: on_dask.executor.is_ready() and len(on_dask.executor._cluster._inspected) == 2)
    client = on_dask.executor._cluster._client
    on_dask.executor._cluster._rows.clear()
    runs = [on_dask.queued(dataset_id="ds_digits", model={"kind": "softmax_regression"}, seed=n) for n in range(8)]
    with ThreadPoolExecutor(4) as pool, slow(on_dask.executor, 0.02):
        for done in [pool.submit(on_dask.work) for _ in runs]:
            done.result(TIMEOUT_S)
    assert {on_dask.stored(run).state for run in runs} == {"succeeded"}
    [(future, size)] = on_dask.executor._cluster._rows.values()
    assert size > 1797 * 64 * 8
    received = client.run(_received, future.key)
    assert sorted(received.values()) == [0, 1], "the one got them when they were sent, the other had them from it"
    assert len(client.who_has()[future.key]) == 2, "both have kept them"


def _received(key: str, dask_worker: Any) -> int:
    return sum(key in transfer["keys"] for transfer in dask_worker.transfer_incoming_log)


@pytest.mark.thorough
def test_nothing_of_a_run_is_left_in_the_cluster_but_its_rows(on_dask, monkeypatch):
    monkeypatch.setattr(dask, "SHORTEST_SLICE_S", 0.1)
    for _ in range(3):
        on_dask.queued(dataset_id="ds_breast_cancer")
        on_dask.work()
    run = on_dask.queued(dataset_id="ds_breast_cancer", iterations=10**8)
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(on_dask.work)
        until(lambda: any(key.startswith("slice") for key in tasks_of(on_dask)))
        lifecycle.give_up_runs_of(on_dask.context, "wrk_test")
        working.result(TIMEOUT_S)
    assert on_dask.stored(run).state == "queued"
    until(lambda: all(key.startswith("rows-") for key in tasks_of(on_dask)))
    assert len(tasks_of(on_dask)) == len(on_dask.executor._cluster._rows)


@pytest.mark.thorough
def test_what_the_cluster_shows_and_prints_tells_nothing_of_rows_or_noise(on_dask, processes, monkeypatch):
    monkeypatch.setattr(dask, "SHORTEST_SLICE_S", 0.1)
    secret = "0.8675309"
    budget = on_dask.budget()
    dataset = on_dask.dataset(f"a,b,color,y\n1,{secret},red,no\n", budget_id=budget["id"])
    run = on_dask.queued(dataset_id=dataset["id"], budget_id=budget["id"], iterations=60)
    shown: dict[str, str] = {}
    with ThreadPoolExecutor(1) as pool, slow(on_dask.executor, 0.02):
        working = pool.submit(on_dask.work)
        while not working.done():
            shown |= tasks_of(on_dask)
        working.result()
    assert any(key.startswith("slice-") for key in shown)
    everything = json.dumps(shown) + processes.printed
    assert secret not in everything
    assert "PK" not in everything, "no checkpoint"
    assert run["id"] not in everything


@pytest.mark.thorough
def test_a_run_is_cancelled_while_its_rows_are_under_way_and_they_do_not_stay(on_dask, monkeypatch):
    monkeypatch.setattr(execution, "PROGRESS_INTERVAL_S", 0.0)
    client = on_dask.executor._cluster._client
    on_dask.executor._cluster._rows.clear()
    runs = [on_dask.queued(dataset_id="ds_breast_cancer") for _ in range(2)]
    client.run_on_scheduler(_hold_rows)
    with ThreadPoolExecutor(2) as pool:
        working = [pool.submit(on_dask.work) for _ in runs]
        try:
            until(lambda: client.run_on_scheduler(_rows_held) == 1)
            for run in runs:
                on_dask.post(f"/v1/runs/{run['id']}/cancel")
            for each in working:
                each.result(TIMEOUT_S)
            assert {on_dask.stored(run).state for run in runs} == {"cancelled"}
            assert not any(key.startswith("rows-") for key in tasks_of(on_dask)), "they have not come yet"
        finally:
            client.run_on_scheduler(_let_rows_come)
    until(lambda: client.run_on_scheduler(_rows_held) == 0)
    until(lambda: tasks_of(on_dask) == {})


def _hold_rows(dask_scheduler: Any) -> None:
    """Rows that are sent from now on reach no machine."""
    arrive, dask_scheduler.held, dask_scheduler.let_come = dask_scheduler.handlers["scatter"], [], asyncio.Event()

    async def hold(**sent: Any) -> Any:
        dask_scheduler.held.append(None)
        await dask_scheduler.let_come.wait()
        arrived = await arrive(**sent)
        dask_scheduler.held.pop()
        return arrived

    dask_scheduler.arrive, dask_scheduler.handlers["scatter"] = arrive, hold


def _rows_held(dask_scheduler: Any) -> int:
    return len(dask_scheduler.held)


def _let_rows_come(dask_scheduler: Any) -> None:
    dask_scheduler.handlers["scatter"] = dask_scheduler.arrive
    dask_scheduler.let_come.set()


@pytest.mark.thorough
def test_evicted_rows_are_let_go_of(on_dask, monkeypatch):
    monkeypatch.setattr(cluster, "KEPT_BYTES", 0)
    for dataset in ("ds_breast_cancer", "ds_digits"):
        on_dask.queued(dataset_id=dataset, model={"kind": "softmax_regression"})
        on_dask.work()
    [(kept, _)] = on_dask.executor._cluster._rows.values()
    until(lambda: set(tasks_of(on_dask)) == {kept.key})


def slice_of(service: Any, **changes: Any) -> tuple[Slice, Rows]:
    """The first slice of a run that is not claimed."""
    run = service.stored(service.queued(dataset_id="ds_breast_cancer", seed=7, **changes))
    job = load_job(service.context, run, lifecycle.read_plan(run))
    beginning = begin(service.context, job)
    binding = beginning.binding
    work = Slice(
        run.plan,
        run.plan_hash,
        job.model,
        job.training.capacity,
        beginning.checkpoint,
        binding.data_tag,
        binding.code_version,
        0.0,
    )
    return work, Rows(*job.scaled_rows())


def test_slices_make_the_run(quick):
    """The same bits, however the run is cut."""
    work, rows = slice_of(quick)
    whole = train_slice(replace(work, seconds=1e9), rows)
    assert isinstance(whole, Finished)
    outcome, cuts = train_slice(work, rows), 0
    while isinstance(outcome, Unfinished):
        cuts += 1
        assert outcome.steps == cuts, "a step at least, and here no more"
        outcome = train_slice(replace(work, checkpoint=outcome.checkpoint), rows)
    assert isinstance(outcome, Finished)
    assert cuts == whole.steps - 1 == 19
    assert {name: array.tobytes() for name, array in outcome.parameters.items()} == {
        name: array.tobytes() for name, array in whole.parameters.items()
    }


def test_another_version_takes_no_step(quick):
    work, rows = slice_of(quick)
    assert isinstance(train_slice(replace(work, code_version="0" * 64), rows), Refused)


def test_another_plan_than_the_charged_is_not_carried_out(quick):
    work, rows = slice_of(quick)
    other, _ = slice_of(quick, iterations=21)
    assert isinstance(train_slice(replace(work, plan=other.plan), rows), Failed)
    assert isinstance(train_slice(replace(work, plan=other.plan, plan_hash=other.plan_hash), rows), Failed)


@pytest.mark.parametrize("shown", [repr, str])
def test_what_is_sent_has_a_plain_text(quick, shown):
    work, rows = slice_of(quick)
    for sent in (work, rows, train_slice(work, rows)):
        assert len(shown(sent)) < 100
        assert "[" not in shown(sent)


OURS = Machine(code_version(), may_spill=False)


@pytest.mark.parametrize(
    ("machines", "fault"),
    [
        ({}, "cluster_without_machines"),
        ({"tcp://127.0.0.1:1": OURS}, None),
        ({"tls://10.0.0.1:1": OURS}, None),
        ({"tcp://10.0.0.1:1": OURS}, "cluster_in_the_clear"),
        ({"tls://10.0.0.1:1": OURS, "tls://10.0.0.2:1": ImportError("no module")}, "cluster_without_epsilond"),
        ({"tls://10.0.0.1:1": OURS, "tls://10.0.0.2:1": None}, "cluster_without_epsilond"),
        ({"tls://10.0.0.1:1": OURS, "tls://10.0.0.2:1": Machine("0" * 64, False)}, "cluster_of_another_version"),
        ({"tls://10.0.0.1:1": Machine(code_version(), True)}, "cluster_writes_rows_to_disk"),
    ],
)
def test_a_cluster_in_which_one_machine_is_wrong_is_refused(machines, fault):
    assert fault_of(machines, may_be_in_the_clear=False) == fault
    assert fault is None or fault in ADVICE
    assert fault_of(machines, may_be_in_the_clear=True) == (None if fault == "cluster_in_the_clear" else fault)


def test_a_cluster_that_is_not_there_is_told_of_once(capfd, monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_S", 0.2)
    nowhere = Cluster("tcp://127.0.0.1:1", may_be_in_the_clear=False)
    try:
        assert not nowhere.is_ready()
        nowhere._looked_at = float("-inf")
        assert not nowhere.is_ready()
    finally:
        nowhere.close()
    printed = capfd.readouterr()
    assert (printed.out + printed.err).count("cluster_away") == 1


def test_a_scheduler_that_takes_connections_and_says_nothing_is_waited_for_no_longer(monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        mute = Cluster(f"tcp://127.0.0.1:{silent.getsockname()[1]}", may_be_in_the_clear=False)
        looking = threading.Thread(target=mute.is_ready, daemon=True)
        looking.start()
        looking.join(10)
        assert not looking.is_alive()
        assert mute._fault == "cluster_away"
        mute.close()


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("tls://scheduler.example:8786", None),
        ("tcp://127.0.0.1:8786", None),
        ("tcp://[::1]:8786", None),
        ("tcp://localhost:8786", None),
        ("tcp://scheduler.example:8786", "in the clear"),
        ("tcp://10.0.0.1:8786", "in the clear"),
        ("tcp://127.0.0.1.example:8786", "in the clear"),
        ("scheduler.example:8786", "not the address"),
        ("ws://127.0.0.1:8786", "not the address"),
        ("tls://scheduler.example", "not the address"),
    ],
)
def test_addresses_of_schedulers(address, why):
    if why is None:
        assert Settings(dask_scheduler=address).dask_scheduler == address
        return
    with pytest.raises(ValidationError) as refused:
        Settings(dask_scheduler=address)
    assert "EPSILOND_DASK_SCHEDULER" in settings_faults(refused.value)
    assert why in settings_faults(refused.value)
    if why == "in the clear":
        assert Settings(dask_scheduler=address, dask_without_tls=True).dask_scheduler == address


def test_without_distributed_the_setting_is_refused_with_what_to_do(monkeypatch):
    monkeypatch.setattr("app.setting_types.find_spec", lambda _name: None)
    assert Settings().dask_scheduler is None
    with pytest.raises(ValidationError, match="make dask"):
        Settings(dask_scheduler="tls://scheduler.example:8786")


@pytest.mark.thorough
def test_one_process_sends_the_runs_of_all_slots_and_its_death_ends_none(on_dask, context, processes):
    settings = context.settings.model_copy(update={"dask_scheduler": processes.address})
    supervisor = Supervisor(type(context)(settings, context.database), count=2)
    supervisor.start()
    try:
        runs = [on_dask.charged(iterations=10**8)[1] for _ in range(2)]
        until(lambda: all(on_dask.stored(run).steps_done > 0 for run in runs))
        [(worker_id, process)] = supervisor._processes.items()
        assert {on_dask.stored(run).worker_id for run in runs} == {worker_id}
        process.kill()
        until(lambda: all(on_dask.stored(run).workers_lost == 1 for run in runs))
    finally:
        supervisor.stop()
    for run in runs:
        left = on_dask.stored(run)
        assert left.state == "queued"
        assert CheckpointFiles(context).exist(run["id"], left.stream_id)
        assert on_dask.reservation_state(run) == "started"
