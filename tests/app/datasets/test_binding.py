from __future__ import annotations

import threading
from uuid import uuid4

import pytest
from httpx2 import Response
from sqlalchemy import text
from starlette.testclient import TestClient

from app.context import Context
from app.datasets import service
from app.fence.watching import fenced_context
from app.problems import Problem
from tests.app.datasets.declarations import CSV, metadata, private_metadata
from tests.app.datasets.uploads import create_budget, upload
from tests.app.problem_assertions import assert_problem

OTHER = CSV + b"1,north,no\n"


def test_the_same_rows_go_to_the_same_root_budget_only(client: TestClient, context: Context) -> None:
    mine, theirs = create_budget(context), create_budget(context)
    assert upload(client, private_metadata(mine)).status_code == 201
    assert upload(client, private_metadata(mine, name="copy")).status_code == 201
    response = upload(client, private_metadata(theirs))
    body = assert_problem(response, 409, "budget_not_bound")
    assert mine not in response.text
    assert "decided_at" in body
    assert upload(client, private_metadata(theirs), OTHER).status_code == 201


def test_renaming_reordering_and_other_bounds_do_not_make_new_rows(client: TestClient, context: Context) -> None:
    assert upload(client, private_metadata(create_budget(context))).status_code == 201
    declared = private_metadata(create_budget(context), label="years", declared_size=7)
    declared["columns"] = [
        {"name": "result", "type": "category", "categories": ["yes", "no"]},
        {"name": "years", "type": "number", "lower": 41, "upper": 42},
        {"name": "place", "type": "category", "categories": ["south", "north", "west"]},
    ]
    file = b"result,years,place\r\nno,40.0,north\r\nyes,50.50,south\r\n"
    assert_problem(upload(client, declared, file), 409, "budget_not_bound")


def test_a_denied_upload_stays_denied_and_stores_nothing(client: TestClient, context: Context) -> None:
    upload(client, private_metadata(create_budget(context)))
    other = create_budget(context)
    first = upload(client, private_metadata(other), key="denied")
    again = upload(client, private_metadata(other), key="denied")
    assert_problem(first, 409, "budget_not_bound")
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json()["decided_at"] == first.json()["decided_at"]
    assert len(list((context.settings.data_dir / "datasets").iterdir())) == 1


def test_the_bond_survives_deletion(client: TestClient, context: Context) -> None:
    mine, theirs = create_budget(context), create_budget(context)
    dataset_id = upload(client, private_metadata(mine)).json()["id"]
    assert client.delete(f"/v1/datasets/{dataset_id}").status_code == 204
    assert_problem(upload(client, private_metadata(theirs)), 409, "budget_not_bound")
    assert_problem(upload(client, metadata()), 409, "content_is_private")
    assert upload(client, private_metadata(mine)).status_code == 201


def test_private_rows_never_become_public(client: TestClient, context: Context) -> None:
    upload(client, private_metadata(create_budget(context)))
    assert_problem(upload(client, metadata()), 409, "content_is_private")


def test_public_rows_become_private_when_they_are_public_nowhere(client: TestClient, context: Context) -> None:
    budget_id = create_budget(context)
    ids = [upload(client, metadata()).json()["id"] for _ in range(2)]
    for dataset_id in ids:
        assert_problem(upload(client, private_metadata(budget_id)), 409, "content_is_public")
        client.delete(f"/v1/datasets/{dataset_id}")
    assert upload(client, private_metadata(budget_id)).status_code == 201
    assert_problem(upload(client, metadata()), 409, "content_is_private")


@pytest.mark.parametrize("was_public", [False, True])
def test_uploads_at_once_bind_one_root_budget(client: TestClient, context: Context, was_public: bool) -> None:
    if was_public:
        client.delete(f"/v1/datasets/{upload(client, metadata()).json()['id']}")
    budgets = [create_budget(context) for _ in range(4)]
    barrier = threading.Barrier(len(budgets))
    responses: list[Response] = []

    def send(budget_id: str) -> None:
        barrier.wait()
        responses.append(upload(client, private_metadata(budget_id)))

    threads = [threading.Thread(target=send, args=(budget_id,)) for budget_id in budgets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(response.status_code for response in responses) == [201, 409, 409, 409]


def test_a_run_is_charged_to_the_root_budget_of_its_data(client: TestClient, context: Context) -> None:
    mine, theirs = create_budget(context), create_budget(context)
    private_id = upload(client, private_metadata(mine)).json()["id"]
    with context.database.read() as session:
        private, public = service.get(session, private_id), service.get(session, "ds_digits")
        service.charged_by_run(session, private.id, 1, mine)
        service.charged_by_run(session, public.id, None, mine)
        service.charged_by_run(session, public.id, None, theirs)
        with pytest.raises(Problem) as caught:
            service.charged_by_run(session, private.id, 1, theirs)
        assert (caught.value.status, caught.value.code) == (409, "budget_not_bound")
        with pytest.raises(Problem) as caught:
            service.charged_by_run(session, public.id, None, "bud_unknown")
        assert caught.value.status == 404


def test_only_a_keyed_hash_of_the_rows_is_stored(client: TestClient, context: Context) -> None:
    upload(client, private_metadata(create_budget(context)), key=uuid4().hex)
    with context.database.read() as session:
        (stored,) = session.execute(text("SELECT content_hash FROM dataset_contents")).scalars().all()
    assert len(stored) == 64
    keyed_otherwise = fenced_context(context.settings.model_copy(update={"secret": b"another " * 8}), context.database)
    assert keyed_otherwise.keyed_hash("dataset_content", b"") != context.keyed_hash("dataset_content", b"")
    assert stored not in client.get("/v1/datasets").text


def test_data_are_bound_to_a_root_and_a_run_may_be_charged_anywhere_under_it(
    client: TestClient, context: Context
) -> None:
    root, other = create_budget(context), create_budget(context)
    child = create_budget(context, parent_id=root)
    grandchild = create_budget(context, parent_id=child)
    refused = upload(client, private_metadata(grandchild))
    problem = assert_problem(refused, 422, "not_a_root_budget", "/metadata/budget_id")
    assert root in problem["detail"]
    dataset_id = upload(client, private_metadata(root)).json()["id"]
    with context.database.read() as session:
        dataset = service.get(session, dataset_id)
        for budget_id in (root, child, grandchild):
            service.charged_by_run(session, dataset.id, 1, budget_id)
        with pytest.raises(Problem, match="root budget"):
            service.charged_by_run(session, dataset.id, 1, other)
