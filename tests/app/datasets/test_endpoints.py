from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from app.auth.principal import Scope
from app.auth.service import create_key
from app.context import Context
from app.datasets import service
from tests.app.conftest import ConnectAs
from tests.app.datasets.declarations import CSV, metadata, private_metadata
from tests.app.datasets.uploads import create_budget, upload
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine

BUNDLED = ["ds_breast_cancer", "ds_diabetes", "ds_digits"]


def stored_files(context: Context) -> list[Path]:
    return sorted((context.settings.data_dir / "datasets").glob("*"))


def everything_visible(client: TestClient, dataset_id: str) -> tuple[Any, Any]:
    """What every reader sees of a data set, without what is drawn or read from the clock."""
    body = client.get(f"/v1/datasets/{dataset_id}")
    listed = client.get("/v1/datasets").json()["items"]
    drawn = ("id", "created_at", "name", "budget_id")
    return (
        {name: value for name, value in body.json().items() if name not in drawn},
        [
            {name: value for name, value in item.items() if name not in drawn}
            for item in listed
            if item["id"] == dataset_id
        ],
    )


@on_one_engine
def test_an_upload_is_answered_with_its_declaration_and_a_report(client: TestClient, context: Context) -> None:
    response = upload(client, metadata(), CSV + b"500,south,no\n")
    assert response.status_code == 201
    body = response.json()
    assert response.headers["location"] == f"/v1/datasets/{body['id']}"
    assert body.pop("owner_report") == {"rows": 3, "values_clipped": 1}
    assert client.get(f"/v1/datasets/{body['id']}").json() == body
    assert body["id"].startswith("ds_")
    assert body["declared_size"] == 100
    assert body["public"] is True
    assert body["bundled"] is False
    assert body["budget_id"] is None
    assert body["columns"] == metadata()["columns"]
    assert body["privacy_unit"] == "record"


@on_one_engine
def test_the_worker_gets_the_rows(client: TestClient, context: Context) -> None:
    dataset_id = upload(client, metadata()).json()["id"]
    with context.database.read() as session:
        loaded = service.load(context, session, dataset_id)
    assert loaded.features.tolist() == [[40.0, 0.0], [50.5, 1.0]]
    assert loaded.labels.tolist() == [0, 1]
    assert [column.name for column in loaded.columns] == ["age", "region"]
    assert (loaded.id, loaded.public, loaded.declared_size) == (dataset_id, True, 100)


@on_one_engine
def test_files_on_disk_are_the_services_alone(client: TestClient, context: Context) -> None:
    dataset_id = upload(client, metadata()).json()["id"]
    (path,) = stored_files(context)
    assert path.name == f"{dataset_id}.npz"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@on_one_engine
def test_a_private_data_set_names_its_budget(client: TestClient, context: Context) -> None:
    budget_id = create_budget(context)
    body = upload(client, private_metadata(budget_id)).json()
    assert (body["public"], body["budget_id"]) == (False, budget_id)


@on_one_engine
def test_replacing_one_row_changes_nothing_that_a_reader_sees(client: TestClient, context: Context) -> None:
    files = [
        CSV,
        CSV + b"1,north,no\n",
        CSV.replace(b"50.5,south,yes", b"1e9,north,no"),
        CSV.replace(b"50.5,south,yes\n", b""),
        CSV[: CSV.index(b"\n") + 1],
    ]
    seen = []
    for file in files:
        response = upload(client, private_metadata(create_budget(context)), file)
        assert response.status_code == 201
        seen.append(everything_visible(client, response.json()["id"]))
    assert all(view == seen[0] for view in seen)
    assert "owner_report" not in repr(seen)
    with context.database.read() as session:
        records = session.execute(text("SELECT answer FROM idempotency_records")).scalars().all()
    # Stored answers do not hold the report either: the true number of rows is in the private file and nowhere else.
    assert len(records) == len(files)
    assert "owner_report" not in repr(records)


@on_one_engine
def test_public_data_need_rows(client: TestClient, context: Context) -> None:
    for file in (b"age,region,outcome\n", b"age,region,outcome\n\n"):
        assert_problem(upload(client, metadata(), file, key="mended"), 422, "no_rows", "/file", "no_rows")
    assert stored_files(context) == []
    assert upload(client, metadata(), CSV, key="mended").status_code == 201


@on_one_engine
def test_a_private_file_without_rows_is_accepted(client: TestClient, context: Context) -> None:
    response = upload(client, private_metadata(create_budget(context)), b"age,region,outcome\n")
    assert response.json()["owner_report"] == {"rows": 0, "values_clipped": 0}
    with context.database.read() as session:
        loaded = service.load(context, session, response.json()["id"])
    assert loaded.features.shape == (0, 2)


@on_one_engine
def test_a_repeated_upload_is_one_data_set(client: TestClient, context: Context) -> None:
    budget_id = create_budget(context)
    first = upload(client, private_metadata(budget_id), key="once")
    again = upload(client, private_metadata(budget_id), key="once")
    assert again.status_code == 201
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert len(stored_files(context)) == 1
    for changed in (
        upload(client, private_metadata(budget_id, name="other"), key="once"),
        upload(client, private_metadata(budget_id), CSV + b"1,north,no\n", key="once"),
    ):
        assert_problem(changed, 422, "idempotency_key_reused")
    assert len(stored_files(context)) == 1


@on_one_engine
def test_an_upload_needs_a_key(client: TestClient) -> None:
    response = client.post(
        "/v1/datasets", files={"file": ("rows.csv", CSV), "metadata": (None, json.dumps(metadata()))}
    )
    assert_problem(response, 400, "idempotency_key_missing")


@on_one_engine
def test_a_refused_file_may_be_mended_under_the_same_key(client: TestClient, context: Context) -> None:
    response = upload(client, metadata(), CSV + b"8675309,west,no\n", key="mended")
    body = assert_problem(response, 422, "invalid_csv", "/file", "unknown_category")
    assert "row 4, column 'region'" in body["errors"][0]["detail"]
    assert "8675309" not in response.text
    assert "west" not in response.text
    assert stored_files(context) == []
    assert upload(client, metadata(), key="mended").status_code == 201


@on_one_engine
def test_faulty_metadata_are_refused_with_a_pointer(client: TestClient, context: Context) -> None:
    declared = metadata()
    declared["columns"][0]["upper"] = -1
    assert_problem(upload(client, declared), 422, "invalid_request", "/metadata/columns/0/upper")
    assert_problem(upload(client, '{"declared_size": NaN}'), 422, "not_finite", "/metadata/declared_size")
    assert stored_files(context) == []


@on_one_engine
def test_an_unknown_budget_is_refused(client: TestClient, context: Context) -> None:
    response = upload(client, private_metadata("bud_unknown"))
    assert_problem(response, 422, "unknown_budget", "/metadata/budget_id")
    assert stored_files(context) == []


@on_one_engine
def test_data_and_budget_protect_the_same_unit(client: TestClient, context: Context) -> None:
    budget_id = create_budget(context, privacy_unit="patient")
    assert_problem(upload(client, private_metadata(budget_id)), 422, "privacy_unit_mismatch", "/metadata/privacy_unit")
    assert upload(client, private_metadata(budget_id, privacy_unit="patient")).status_code == 201


@on_one_engine
def test_other_content_types_are_refused(client: TestClient) -> None:
    headers = {"Idempotency-Key": "a"}
    assert_problem(
        client.post("/v1/datasets", content=CSV, headers={**headers, "Content-Type": "text/csv"}),
        415,
        "unsupported_media_type",
    )
    assert_problem(client.post("/v1/datasets", json=metadata(), headers=headers), 422, "invalid_request", "/kind")
    picture = ("rows.png", b"\x89PNG", "image/png")
    response = client.post("/v1/datasets", files={"file": picture}, data={"metadata": "{}"}, headers=headers)
    assert_problem(response, 422, "unsupported_part_type", "/file")


@on_one_engine
def test_an_upload_larger_than_the_limit_is_refused(client: TestClient, context: Context) -> None:
    object.__setattr__(context.settings, "max_upload_bytes", 20_000)
    assert upload(client, metadata(), CSV + b"50.5,south,yes\n" * 1000).status_code == 201
    response = upload(client, metadata(), CSV + b"50.5,south,yes\n" * 2000)
    problem = assert_problem(response, 413, "body_too_large")
    assert all(said in problem["detail"] for said in ("20000 bytes", "EPSILOND_MAX_UPLOAD_BYTES", "NPZ", "float32"))
    assert len(stored_files(context)) == 1


@on_one_engine
def test_lists_are_paged_and_begin_with_the_bundled_sets(client: TestClient) -> None:
    created = [upload(client, metadata(name=f"study {index}")).json()["id"] for index in range(3)]
    found: list[str] = []
    cursor: str | None = None
    for _ in range(3):
        page = client.get("/v1/datasets", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        found += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
    assert cursor is None
    assert found[:3] == BUNDLED
    assert sorted(found[3:]) == sorted(created)
    assert_problem(client.get("/v1/datasets?cursor=x"), 422, "invalid_cursor", "/query/cursor")
    assert client.get("/v1/datasets?limit=201").status_code == 422


@on_one_engine
def test_an_unknown_data_set_is_not_found(client: TestClient) -> None:
    for dataset_id in ("ds_unknown", "bud_a", "..%2fsecret.key", "a" * 500):
        assert_problem(client.get(f"/v1/datasets/{dataset_id}"), 404, "not_found")
        assert_problem(client.delete(f"/v1/datasets/{dataset_id}"), 404, "not_found")


@on_one_engine
def test_deletion_removes_the_rows_and_can_be_repeated(client: TestClient, context: Context) -> None:
    dataset_id = upload(client, metadata()).json()["id"]
    for _ in range(2):
        response = client.delete(f"/v1/datasets/{dataset_id}")
        assert (response.status_code, response.content) == (204, b"")
    assert stored_files(context) == []
    assert_problem(client.get(f"/v1/datasets/{dataset_id}"), 404, "not_found")
    assert [item["id"] for item in client.get("/v1/datasets").json()["items"]] == BUNDLED
    with context.database.read() as session:
        stored = session.execute(text("SELECT id FROM datasets WHERE deleted_at IS NOT NULL")).scalars().all()
    assert list(stored) == [dataset_id]


@on_one_engine
def test_an_upload_sweeps_what_this_database_marks_deleted_and_never_what_it_does_not_know(
    client: TestClient, context: Context
) -> None:
    living, deleted = (upload(client, metadata(name=name)).json()["id"] for name in ("living", "deleted"))
    folder = context.settings.data_dir / "datasets"
    rows = (folder / f"{deleted}.npz").read_bytes()
    assert client.delete(f"/v1/datasets/{deleted}").status_code == 204
    (folder / f"{deleted}.npz").write_bytes(rows)  # a crash kept the deletion from ending
    (folder / "ds_of_another_database.npz").write_bytes(rows)
    for path in folder.iterdir():
        os.utime(path, (0, 0))
    another = upload(client, metadata(name="another")).json()["id"]
    kept = (f"{another}.npz", f"{living}.npz", "ds_of_another_database.npz")
    assert [path.name for path in stored_files(context)] == sorted(kept)


@on_one_engine
@pytest.mark.parametrize("dataset_id", BUNDLED)
def test_bundled_sets_are_listed_and_never_deleted(client: TestClient, dataset_id: str) -> None:
    assert_problem(client.delete(f"/v1/datasets/{dataset_id}"), 409, "dataset_is_bundled")
    body = client.get(f"/v1/datasets/{dataset_id}").json()
    assert (body["public"], body["bundled"], body["budget_id"]) == (True, True, None)


@on_one_engine
def test_only_owners_upload_and_delete(connect: ConnectAs, context: Context) -> None:
    analyst = create_key(context, "analyst", [Scope.ANALYST])
    assert analyst is not None
    client = connect(headers={"Authorization": f"Bearer {analyst.token}"})
    assert_problem(upload(client, metadata()), 403, "forbidden")
    assert_problem(client.delete("/v1/datasets/ds_digits"), 403, "forbidden")
    assert client.get("/v1/datasets/ds_digits").status_code == 200
    assert stored_files(context) == []


@on_one_engine
def test_the_documented_request_has_no_loose_reference(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    operation = document["paths"]["/v1/datasets"]["post"]
    references = [word for word in json.dumps(operation).split('"') if word.startswith("#/")]
    assert references
    for reference in references:
        target = document
        for step in reference.removeprefix("#/").split("/"):
            target = target[step]
    properties = operation["requestBody"]["content"]["multipart/form-data"]["schema"]["properties"]
    assert set(properties) == {"file", "metadata"}
    assert set(metadata()) <= set(properties["metadata"]["properties"])
