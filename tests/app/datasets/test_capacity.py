"""The capacity of a data set: how many rows it has room for, which is public, and how many slots its runs keep."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import text, update
from starlette.testclient import TestClient

from app.auth.principal import Scope
from app.auth.service import create_key
from app.context import Context
from app.datasets import service
from app.datasets.inline import load_inline
from app.datasets.schemas import InlineDataset
from app.tables.datasets import Dataset
from tests.app.conftest import ConnectAs
from tests.app.datasets.declarations import COLUMNS, CSV, metadata, private_metadata
from tests.app.datasets.uploads import create_budget, upload
from tests.app.problem_assertions import assert_problem
from tests.app.runs.conftest import Service

ROW = CSV.splitlines(keepends=True)[1]


def rows(count: int) -> bytes:
    return CSV.splitlines(keepends=True)[0] + ROW * count


@pytest.mark.parametrize(
    ("declared", "capacity"),
    [
        ({"declared_size": 1}, 9),
        ({"declared_size": 64}, 72),
        ({"declared_size": 1001}, 1127),
        ({"declared_size": 100, "capacity": 100}, 100),
        ({"declared_size": 100, "capacity": 5000}, 5000),
    ],
)
def test_a_private_data_set_has_the_capacity_that_was_declared_or_an_eighth_more(
    client: TestClient, context: Context, declared: dict[str, int], capacity: int
) -> None:
    document = private_metadata(create_budget(context), **declared)
    answer = upload(client, document)
    assert answer.status_code == 201
    assert answer.json()["capacity"] == capacity
    assert client.get(f"/v1/datasets/{answer.json()['id']}").json()["capacity"] == capacity
    listed = {item["id"]: item["capacity"] for item in client.get("/v1/datasets").json()["items"]}
    assert listed[answer.json()["id"]] == capacity
    with context.database.read() as session:
        assert service.load(context, session, answer.json()["id"]).capacity == capacity


@pytest.mark.parametrize(("capacity", "fit"), [(None, 9), (4, 4)])
def test_a_file_with_more_rows_than_the_capacity_is_refused_to_its_owner(
    client: TestClient, context: Context, capacity: int | None, fit: int
) -> None:
    document = private_metadata(create_budget(context), declared_size=1, capacity=capacity)
    refused = upload(client, document, rows(fit + 1), key="k")
    problem = assert_problem(refused, 422, "capacity_exceeded", "/metadata/capacity", "capacity_exceeded")
    # The owner alone sees it, and sees the number in the report of an upload that is taken, too.
    assert f"{fit + 1} rows" in problem["detail"]
    assert f"the capacity of the data set is {fit}" in problem["detail"]
    assert not list((context.settings.data_dir / "datasets").iterdir())
    with context.database.read() as session:
        assert session.execute(text("SELECT count(*) FROM idempotency_records")).scalar_one() == 0
        assert session.execute(text("SELECT count(*) FROM dataset_contents")).scalar_one() == 0
    assert upload(client, document, rows(fit), key="k").status_code == 201


def test_public_rows_have_a_slot_each(client: TestClient, context: Context) -> None:
    for file, changes, capacity in (
        (CSV, {}, 100),
        (rows(150), {}, 150),
        (rows(150), {"capacity": 200}, 200),
    ):
        answer = upload(client, metadata(**changes), file)
        assert answer.json()["capacity"] == capacity
    assert_problem(upload(client, metadata(capacity=120), rows(121)), 422, "capacity_exceeded", "/metadata/capacity")
    request = {"kind": "synthetic", "name": "s", "features": 2, "rows": 30, "seed": 1}
    made = client.post("/v1/datasets", json=request, headers={"Idempotency-Key": "s"})
    assert made.json()["capacity"] == 30
    inline = InlineDataset.model_validate(
        {
            "public": True,
            "columns": [column.model_dump() for column in COLUMNS],
            "label": "outcome",
            "rows": [[40, "north", "no"]],
        }
    )
    assert load_inline(inline).capacity == 1


def test_public_rows_from_before_may_be_more_than_the_capacity_of_then(client: TestClient, context: Context) -> None:
    dataset_id = upload(client, metadata(), rows(150)).json()["id"]
    make_small(context, dataset_id)
    with context.database.read() as session:
        loaded = service.load(context, session, dataset_id)
    assert (loaded.capacity, loaded.is_too_full) == (150, False)
    assert client.get(f"/v1/datasets/{dataset_id}").json()["warnings"] == []


def make_small(context: Context, dataset_id: str) -> None:
    """Make a data set as a migration may find it: with more rows than twice its declared size."""
    with context.database.write() as session:
        session.execute(update(Dataset).where(Dataset.id == dataset_id).values(declared_size=1, capacity=2))


def test_a_data_set_that_is_too_full_is_named_to_its_owner_alone(connect: ConnectAs, context: Context) -> None:
    budget_id = create_budget(context)
    child, other = create_budget(context, parent_id=budget_id), create_budget(context)
    keyless = connect()
    dataset_id = upload(keyless, private_metadata(budget_id), rows(3)).json()["id"]
    # As full as may be: no warning.
    fitting = upload(keyless, private_metadata(budget_id, declared_size=3, capacity=3), rows(3)).json()["id"]

    def seen(*scopes: Scope, budgets: list[str] | None = None) -> dict[str, Any]:
        key = create_key(context, "somebody", scopes, budgets=budgets)
        assert key is not None
        client = connect(headers={"Authorization": f"Bearer {key.token}"})
        assert client.get(f"/v1/datasets/{fitting}").json()["warnings"] == []
        [listed] = [item for item in client.get("/v1/datasets").json()["items"] if item["id"] == dataset_id]
        body: dict[str, Any] = client.get(f"/v1/datasets/{dataset_id}").json()
        assert body == listed
        return body

    def codes(*scopes: Scope, budgets: list[str] | None = None) -> list[str]:
        return [warning["code"] for warning in seen(*scopes, budgets=budgets)["warnings"]]

    assert codes(Scope.OWNER) == []
    make_small(context, dataset_id)
    for scopes, budgets in (([Scope.OWNER], None), ([Scope.ADMIN], None), ([Scope.OWNER], [budget_id])):
        assert codes(*scopes, budgets=budgets) == ["dataset_too_full"]
    before = seen(Scope.ANALYST)
    for scopes, budgets in (
        ([Scope.ANALYST], None),
        ([Scope.AUDITOR], None),
        ([Scope.ANALYST], [budget_id]),
        # It pays from a part of the tree: the data are not its own.
        ([Scope.OWNER], [child]),
        ([Scope.OWNER], [child, other]),
    ):
        assert codes(*scopes, budgets=budgets) == []
    # Nor does anything else of what others see depend on it.
    (context.settings.data_dir / "datasets" / f"{dataset_id}.npz").unlink()
    assert seen(Scope.ANALYST) == before
    assert codes(Scope.OWNER) == [], "a file that cannot be read is a matter of the run that meets it"


def test_the_rows_of_a_stored_file_are_counted_without_reading_them(client: TestClient, context: Context) -> None:
    for count in (0, 1, 70):
        dataset_id = upload(client, private_metadata(create_budget(context)), rows(count)).json()["id"]
        files = service.DatasetFiles(context.settings.data_dir, context.settings.encryption)
        assert files.count_rows(dataset_id) == count == len(files.read(dataset_id)[1])


def test_a_run_keeps_as_many_slots_as_the_capacity_and_says_so(client: TestClient, context: Context) -> None:
    its = Service(client, context)
    budget = its.budget(filter={"kind": "renyi_dp", "epsilon": 8, "delta": 1e-5})
    dataset = its.dataset(budget_id=budget["id"], declared_size=1000, capacity=1500)
    run = its.trained(dataset_id=dataset["id"], budget_id=budget["id"])
    assert its.stored(run).description["capacity"] == 1500
    report = its.report(run)
    assert (report["data"]["declared_size"], report["data"]["capacity"]) == (1000, 1500)
    card = client.get(f"/v1/runs/{run['id']}/report", headers={"Accept": "text/markdown"}).text
    assert "1500" in card
    # A description from before says nothing of slots.
    with context.database.write() as session:
        stored = session.get_one(type(its.stored(run)), run["id"])
        stored.description = {name: value for name, value in stored.description.items() if name != "capacity"}
    assert its.report(run)["data"]["capacity"] is None


def test_the_trainer_gets_its_slots_from_the_capacity(
    client: TestClient, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.runs.executors import local

    given: list[int | None] = []
    trained = local.run

    def seen(*args: Any, capacity: int | None = None, **more: Any) -> Any:
        given.append(capacity)
        return trained(*args, capacity=capacity, **more)

    monkeypatch.setattr(local, "run", seen)
    its = Service(client, context)
    budget = its.budget(filter={"kind": "renyi_dp", "epsilon": 8, "delta": 1e-5})
    for declared, capacity in (({"capacity": 1200}, 1200), ({}, 1125)):
        dataset = its.dataset(budget_id=budget["id"], **declared)
        its.trained(dataset_id=dataset["id"], budget_id=budget["id"])
        assert given.pop() == capacity
    its.trained(dataset_id="ds_breast_cancer")
    assert given == [569]


def test_the_capacity_is_part_of_the_request_that_a_key_remembers(client: TestClient, context: Context) -> None:
    budget_id = create_budget(context)
    assert upload(client, private_metadata(budget_id), key="k").status_code == 201
    again = upload(client, private_metadata(budget_id, capacity=300), key="k")
    assert_problem(again, 422, "idempotency_key_reused")
    assert json.loads(upload(client, private_metadata(budget_id), key="k").text)["capacity"] == 113


def test_the_memory_of_a_run_is_stated_with_the_declaration(client: TestClient) -> None:
    """Rows as stored with their label, scaled with it, and slots: age is one number of a row, region two."""
    for declared in ({"declared_size": 100}, {"declared_size": 100, "capacity": 5000}):
        answer = upload(client, metadata(**declared), rows(3)).json()
        assert answer["run_memory_bytes"] == 8 * answer["capacity"] * ((2 + 1) + (3 + 1) + (3 + 4))
