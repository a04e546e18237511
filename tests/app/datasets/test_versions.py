"""Versions of a private data set: what changes with one, and what a run is charged for and trains on."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from app.auth.principal import Scope
from app.auth.service import create_key
from app.context import Context
from app.datasets import repository
from app.datasets.files import DatasetFiles
from app.ledger.transparency import verified
from app.runs import execution, lifecycle, preparation
from app.runs import service as runs
from app.runs.schemas import RunRequest
from tests.app.entries.found import forget_register, told_of
from tests.app.ledger import attacks
from tests.app.problem_assertions import assert_problem
from tests.app.run_sweeps.conftest import BEST, Sweeps
from tests.app.runs.conftest import MORE_ROWS, REQUEST, ROWS
from tests.databases import on_one_engine

FEWER_ROWS = ROWS.rsplit("8,0,green,yes\n")[0]


@pytest.fixture
def service(client: TestClient, context: Context) -> Sweeps:
    return Sweeps(client, context)


@pytest.fixture
def ids(service: Sweeps) -> dict[str, Any]:
    """A private data set and its budget, as a run names them."""
    budget = service.budget(filter={"kind": "renyi_dp", "epsilon": 20, "delta": 1e-5})
    return {"budget_id": budget["id"], "dataset_id": service.dataset(budget_id=budget["id"])["id"]}


def rows_of(service: Sweeps, run: dict[str, Any]) -> int:
    """Return the number of rows that a worker trains the run on."""
    stored = service.stored(run)
    return len(execution.load_job(service.context, stored, lifecycle.read_plan(stored)).training.labels)


def files(service: Sweeps) -> set[str]:
    return {path.stem for path in (service.context.settings.data_dir / "datasets").iterdir()}


def crash(*_: Any) -> None:
    raise RuntimeError("killed")


def charged(service: Sweeps, run: dict[str, Any]) -> dict[str, Any]:
    """What the run's charge says of its data, in its entry."""
    entries = service.get(f"/v1/budgets/{run['budget_id']}/entries?kind=reserve&limit=200")["items"]
    [entry] = [entry for entry in entries if entry["reservation_id"] == run["reservation_id"]]
    return dict(entry["dataset"])


def test_a_version_has_rows_and_sizes_of_its_own(service: Sweeps, ids: dict[str, Any]) -> None:
    first = service.get(f"/v1/datasets/{ids['dataset_id']}")
    assert (first["version"], first["declared_size"], first["capacity"]) == (1, 1000, 1125)
    added = service.version(ids["dataset_id"], change="appended", reason="the second week", declared_size=2000)
    assert added.pop("owner_report") == {"rows": 5, "values_clipped": 0}
    expected = {"version": 2, "change": "appended", "reason": "the second week", "declared_size": 2000}
    assert added.items() >= {**expected, "capacity": 2250, "erased": False, "dataset_id": ids["dataset_id"]}.items()
    now = service.get(f"/v1/datasets/{ids['dataset_id']}")
    twice = {"capacity": 2250, "run_memory_bytes": 2 * first["run_memory_bytes"]}
    assert now == first | {"version": 2, "declared_size": 2000} | twice
    assert now in service.get("/v1/datasets")["items"]
    listed = service.get(f"/v1/datasets/{ids['dataset_id']}/versions")["items"]
    assert [each["version"] for each in listed] == [1, 2]
    assert listed[1] == added
    assert (listed[0]["id"], listed[0]["change"], listed[0]["declared_size"]) == (ids["dataset_id"], None, 1000)
    page = service.get(f"/v1/datasets/{ids['dataset_id']}/versions?limit=1")
    assert page["items"] == listed[:1]
    assert service.get(f"/v1/datasets/{ids['dataset_id']}/versions?limit=1&cursor={page['next_cursor']}") == {
        "items": listed[1:],
        "next_cursor": None,
    }
    assert verified(service.context).valid


def test_a_run_trains_on_the_version_that_it_was_charged_for(service: Sweeps, ids: dict[str, Any]) -> None:
    before = service.queued(**ids)
    service.version(ids["dataset_id"], declared_size=2000)
    older, newest = service.queued(**ids, dataset_version=1), service.queued(**ids)
    assert [run["dataset_version"] for run in (before, older, newest)] == [1, 1, 2]
    assert [rows_of(service, run) for run in (before, older, newest)] == [4, 4, 5]
    assert [run["plan"]["dataset_size"] for run in (before, older, newest)] == [1000, 1000, 2000]
    assert [charged(service, run)["version"] for run in (before, older, newest)] == [1, 1, 2]
    assert charged(service, before) == charged(service, older)
    first = told_of(service.context, ids["dataset_id"])
    with service.context.database.read() as session:
        dataset = repository.find(session, ids["dataset_id"])
        assert dataset is not None
        second = repository.find_version(session, dataset.id, 2)
        assert second is not None
    told = told_of(service.context, second.id)
    assert first is not None
    assert told is not None
    assert charged(service, older)["content"] == first.columns["content_hash"]
    assert charged(service, newest)["content"] == told.columns["content_hash"]
    for _ in range(3):
        service.work()
    ended = [service.get(f"/v1/runs/{run['id']}") for run in (before, older, newest)]
    assert {run["state"] for run in ended} == {"succeeded"}
    assert [service.report(run)["data"]["version"] for run in ended] == [1, 1, 2]
    assert verified(service.context).valid


def test_every_version_is_charged_to_the_same_root(service: Sweeps, ids: dict[str, Any]) -> None:
    service.version(ids["dataset_id"])
    other = service.budget()
    for version in (1, 2):
        refused = service.run(dataset_id=ids["dataset_id"], budget_id=other["id"], dataset_version=version)
        assert_problem(refused, 409, "budget_not_bound")
    spent = []
    for version in (1, 2):
        service.trained(**ids, dataset_version=version)
        spent.append(service.get(f"/v1/budgets/{ids['budget_id']}")["amounts"]["spent"]["epsilon"])
    assert spent[0] < spent[1]


@on_one_engine
def test_a_version_that_comes_while_a_run_is_made_is_not_trained_on(service: Sweeps, ids: dict[str, Any]) -> None:
    request = RunRequest.model_validate(REQUEST | ids)
    ready = preparation.prepare(service.context, request)
    service.version(ids["dataset_id"], declared_size=2000)
    with service.context.database.write() as session:
        run_id = runs.create(session, service.context, "loopback", request, ready).id
    run = service.get(f"/v1/runs/{run_id}")
    assert (run["dataset_version"], charged(service, run)["version"], rows_of(service, run)) == (1, 1, 4)
    ready = preparation.prepare(service.context, request)
    service.version(ids["dataset_id"], erase_earlier=True)
    with pytest.raises(Exception, match="erased"), service.context.database.write() as session:
        runs.create(session, service.context, "loopback", request, ready)


@on_one_engine
def test_all_runs_of_a_sweep_are_on_one_version(
    service: Sweeps, ids: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrate, calls = preparation.calibrate, []

    def and_a_version_comes(*given: Any) -> Any:
        ready = calibrate(*given)
        if not calls:
            service.version(ids["dataset_id"])
        calls.append(given)
        return ready

    monkeypatch.setattr(preparation, "calibrate", and_a_version_comes)
    sweep = service.swept(**ids)
    assert (len(calls), sweep["dataset_version"]) == (3, 1)
    assert {service.stored({"id": cell["run_id"]}).dataset_version for cell in sweep["cells"]} == {1}
    assert service.swept(**ids)["dataset_version"] == 2
    assert_problem(service.ask(**ids, dataset_version=[1, 2]), 422, "unsupported", "/dataset_version")


@on_one_engine
def test_a_trial_on_another_version_than_its_sweep_is_refused(service: Sweeps, ids: dict[str, Any]) -> None:
    service.version(ids["dataset_id"])
    public = service.dataset(MORE_ROWS + "6,0,red,no\n", public=True, declared_size=10)
    sweep = service.swept(**ids, **BEST, release_after_s=600, dataset_version=1, test_dataset_id=public["id"])
    assert sweep["dataset_version"] == 1
    attacks.run(service.context.database, "UPDATE runs SET dataset_version = 2")
    service.work()
    # What becomes of single trials is told to nobody; none of them was started.
    ended = service.sweep(sweep)
    assert (ended["state"], service.reservation_state(sweep)) == ("failed", "voided")


def test_erased_rows_are_gone_and_nothing_is_charged_for_them(service: Sweeps, ids: dict[str, Any]) -> None:
    second = service.version(ids["dataset_id"])
    waiting = [service.queued(**ids, dataset_version=version) for version in (1, 2)]
    third = service.version(ids["dataset_id"], FEWER_ROWS, change="deleted", erase_earlier=True)
    assert files(service) == {third["id"]}
    erased = [each["erased"] for each in service.get(f"/v1/datasets/{ids['dataset_id']}/versions")["items"]]
    assert erased == [True, True, False]
    for version in (1, 2):
        refused = service.run(**ids, dataset_version=version)
        assert_problem(refused, 422, "version_erased", "/dataset_version")
    for _ in waiting:
        service.work()
    for run in waiting:
        ended = service.get(f"/v1/runs/{run['id']}")
        assert (ended["state"], ended["problem"]["code"]) == ("failed", "dataset_deleted")
        assert service.reservation_state(run) == "voided"
    run = service.trained(**ids)
    assert (run["dataset_version"], rows_of(service, run)) == (3, 3)
    assert verified(service.context).valid
    # The bond outlives the rows.
    refused = service.client.post(
        "/v1/datasets",
        files={"file": ("d.csv", MORE_ROWS.encode(), "text/csv")},
        data={"metadata": declared_like(service, ids, service.budget()["id"])},
        headers={"Idempotency-Key": "another root"},
    )
    assert_problem(refused, 409, "budget_not_bound")
    assert second["id"] not in files(service)


def declared_like(service: Sweeps, ids: dict[str, Any], budget_id: str) -> str:
    """Metadata that declare the rows of the data set anew, under another root budget."""
    body = service.get(f"/v1/datasets/{ids['dataset_id']}")
    names = ("name", "declared_size", "columns", "label", "privacy_unit")
    return json.dumps({name: body[name] for name in names} | {"budget_id": budget_id})


@on_one_engine
def test_files_that_a_crash_left_behind_go_with_the_repeated_request(
    service: Sweeps, ids: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched, suppress(RuntimeError):
        patched.setattr(DatasetFiles, "sweep", crash)
        service.add_version(ids["dataset_id"], MORE_ROWS, key="k", erase_earlier=True)
    assert len(files(service)) == 2
    # It is entered: nobody reads the rows any more, whether they are there or not.
    assert_problem(service.run(**ids, dataset_version=1), 422, "version_erased")
    again = service.add_version(ids["dataset_id"], MORE_ROWS, key="k", erase_earlier=True)
    assert (again.status_code, again.headers["idempotency-replayed"], again.json()["version"]) == (201, "true", 2)
    assert again.json()["owner_report"]["rows"] == 5
    assert files(service) == {again.json()["id"]}


@on_one_engine
def test_a_failure_before_the_transaction_leaves_everything_as_it_was(
    service: Sweeps, ids: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched, suppress(RuntimeError):
        patched.setattr(repository, "lock_content", crash)
        service.add_version(ids["dataset_id"], MORE_ROWS, key="k", erase_earlier=True)
    assert service.get(f"/v1/datasets/{ids['dataset_id']}")["version"] == 1
    assert rows_of(service, service.queued(**ids)) == 4
    again = service.add_version(ids["dataset_id"], MORE_ROWS, key="k", erase_earlier=True)
    assert (again.status_code, again.json()["version"]) == (201, 2)
    assert verified(service.context).valid


def test_versions_that_come_at_once_have_numbers_of_their_own(service: Sweeps, ids: dict[str, Any]) -> None:
    barrier, answers = threading.Barrier(5), []

    def send(number: int) -> None:
        barrier.wait()
        # The last two are one request.
        answers.append(
            service.add_version(ids["dataset_id"], ROWS + f"{min(number, 3)},0,red,no\n", key=f"{min(number, 3)}")
        )

    threads = [threading.Thread(target=send, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = [answer for answer in answers if answer.status_code == 201]
    # Of two requests with one key at once, the second may be told that the first is still running.
    assert {answer.json()["code"] for answer in answers if answer.status_code != 201} <= {"request_in_progress"}
    assert sorted({answer.json()["version"] for answer in made}) == [2, 3, 4, 5]
    assert files(service) == {ids["dataset_id"], *(answer.json()["id"] for answer in made)}
    assert verified(service.context).valid


@on_one_engine
def test_a_repeated_request_gets_its_answer_whatever_came_later(service: Sweeps, ids: dict[str, Any]) -> None:
    first = service.add_version(ids["dataset_id"], MORE_ROWS, key="k")
    service.version(ids["dataset_id"], FEWER_ROWS, declared_size=3, capacity=3, erase_earlier=True)
    assert service.add_version(ids["dataset_id"], MORE_ROWS, key="k").json() == first.json()
    other = service.add_version(ids["dataset_id"], ROWS, key="k")
    assert_problem(other, 422, "idempotency_key_reused")
    service.client.delete(f"/v1/datasets/{ids['dataset_id']}")
    assert service.add_version(ids["dataset_id"], MORE_ROWS, key="k").json() == first.json()
    assert files(service) == set()


def test_contents_of_versions_are_bound_to_their_root_as_those_of_data_sets(
    service: Sweeps, ids: dict[str, Any]
) -> None:
    other = service.budget()
    service.dataset(MORE_ROWS, budget_id=other["id"])
    refused = service.add_version(ids["dataset_id"], MORE_ROWS)
    assert_problem(refused, 409, "budget_not_bound")
    service.dataset(FEWER_ROWS, public=True, declared_size=3)
    assert_problem(service.add_version(ids["dataset_id"], FEWER_ROWS), 409, "content_is_public")
    rows = ROWS + "1,1,red,no\n"
    service.version(ids["dataset_id"], rows)
    # The rows of a version may come again under their own root alone, and never in public.
    service.version(ids["dataset_id"], rows)
    service.dataset(rows, budget_id=ids["budget_id"])
    declared = {"name": "d", "public": True}
    for changes, code in (({}, "budget_not_bound"), (declared, "content_is_private")):
        metadata = {"budget_id": None if changes else other["id"], **changes}
        with pytest.raises(AssertionError, match=code):
            service.dataset(rows, **metadata)
    assert service.get(f"/v1/datasets/{ids['dataset_id']}")["version"] == 3
    assert len(files(service)) == 6


@on_one_engine
def test_a_deleted_data_set_has_no_versions(service: Sweeps, ids: dict[str, Any]) -> None:
    service.version(ids["dataset_id"])
    assert len(files(service)) == 2
    assert service.client.delete(f"/v1/datasets/{ids['dataset_id']}").status_code == 204
    assert files(service) == set()
    assert_problem(service.add_version(ids["dataset_id"], ROWS), 404, "not_found")
    assert service.client.get(f"/v1/datasets/{ids['dataset_id']}/versions").status_code == 404
    with service.context.database.read() as session:
        assert repository.stored(session) == []
    assert verified(service.context).valid


@on_one_engine
def test_who_may_add_a_version_and_to_what(service: Sweeps, ids: dict[str, Any]) -> None:
    assert_problem(service.add_version("ds_unknown", ROWS), 404, "not_found")
    assert_problem(service.add_version("ds_digits", ROWS), 409, "dataset_is_public")
    assert [each["version"] for each in service.get("/v1/datasets/ds_digits/versions")["items"]] == [1]
    child = service.budget(parent_id=ids["budget_id"], filter={"kind": "renyi_dp", "epsilon": 1, "delta": 1e-5})
    elsewhere = service.budget()
    codes = {child["id"]: "beyond_your_budgets", elsewhere["id"]: "not_found", ids["budget_id"]: None}
    for budget_id, code in codes.items():
        key = create_key(service.context, "somebody", [Scope.OWNER], budgets=[budget_id])
        assert key is not None
        service.client.headers["Authorization"] = f"Bearer {key.token}"
        answer = service.add_version(ids["dataset_id"], MORE_ROWS)
        assert answer.status_code == 201 if code is None else answer.json()["code"] == code


@on_one_engine
def test_sizes_are_public_numbers_that_hold_the_rows(service: Sweeps, ids: dict[str, Any]) -> None:
    for changes, pointer in (
        ({"capacity": 999}, "/metadata/capacity"),
        ({"declared_size": 10, "capacity": 9}, "/metadata/capacity"),
    ):
        assert_problem(service.add_version(ids["dataset_id"], MORE_ROWS, **changes), 422, "out_of_range", pointer)
    full = service.add_version(ids["dataset_id"], MORE_ROWS, declared_size=4, capacity=4)
    assert_problem(full, 422, "capacity_exceeded", "/metadata/capacity")
    for changes in ({"change": "forged"}, {"declared_size": 0}, {"columns": []}):
        refused = service.add_version(ids["dataset_id"], MORE_ROWS, **changes)
        assert_problem(refused, 422, "invalid_request", f"/metadata/{next(iter(changes))}")
    assert files(service) == {ids["dataset_id"]}
    smaller = service.version(ids["dataset_id"], declared_size=5)
    assert (smaller["declared_size"], smaller["capacity"]) == (5, 13)
    again = service.version(ids["dataset_id"])
    assert (again["declared_size"], again["capacity"]) == (5, 13)


@on_one_engine
def test_versions_that_there_are_not_are_refused(service: Sweeps, ids: dict[str, Any]) -> None:
    assert_problem(service.run(**ids, dataset_version=2), 422, "unknown_version", "/dataset_version")
    public = service.run(dataset_id="ds_breast_cancer", dataset_version=2)
    assert_problem(public, 422, "unknown_version", "/dataset_version")
    inline = {"public": True, "columns": [], "label": "y", "rows": []}
    assert service.run(dataset=inline, dataset_version=1).status_code == 422
    run = service.queued(dataset_id="ds_breast_cancer", dataset_version=1)
    assert run["dataset_version"] is None


@pytest.mark.one_in(2)
@on_one_engine
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE dataset_versions SET content_hash = (SELECT content_hash FROM datasets WHERE content_hash IS NOT NULL)",
        "UPDATE dataset_versions SET capacity = capacity + 1",
        "UPDATE dataset_versions SET declared_size = declared_size - 1",
        "UPDATE dataset_versions SET version = version + 1",
        "UPDATE dataset_versions SET id = 'dsv_another'",
        "UPDATE dataset_versions SET erases_earlier = TRUE",
        "DELETE FROM dataset_versions",
        "UPDATE runs SET dataset_version = 1",
        "UPDATE runs SET dataset_version = NULL",
        "DELETE FROM entries WHERE subject_id LIKE 'dsv_%'",
    ],
)
def test_a_worker_refuses_a_version_that_is_not_as_registered(
    service: Sweeps, ids: dict[str, Any], statement: str
) -> None:
    service.version(ids["dataset_id"])
    run = service.queued(**ids)
    attacks.run(service.context.database, statement)
    service.work()
    ended = service.stored(run)
    assert ended.problem is not None
    assert (ended.state, ended.problem["code"]) == ("failed", "declaration_altered")
    assert not verified(service.context).valid


@on_one_engine
def test_a_run_from_before_there_were_versions_is_on_the_first(service: Sweeps, ids: dict[str, Any]) -> None:
    """As after a migration: the run's row has no version, and no entry has said one."""
    run = service.queued(**ids)
    service.version(ids["dataset_id"])
    with service.context.database.write() as session:
        session.execute(text("UPDATE runs SET dataset_version = NULL"))
    forget_register(service.context)
    assert rows_of(service, run) == 4
