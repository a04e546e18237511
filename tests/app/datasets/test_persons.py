"""Ids of persons: what is checked by them, who is deleted by them, and that nobody sees them."""

from __future__ import annotations

import io
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sqlalchemy import select
from starlette.testclient import TestClient

from app.auth.principal import Scope
from app.auth.service import create_key
from app.context import Context
from app.datasets import repository
from app.datasets.files import DatasetFiles
from app.kit.data_keys import DataKeys
from app.kit.encryption import FileEncryption
from app.ledger.transparency import verified
from app.tables.schema import metadata as metadata_of_tables
from tests.app.conftest import ConnectAs
from tests.app.datasets.persons import HEADER, PERSONS, Datasets
from tests.app.datasets.typed_files import npz, parquet
from tests.app.datasets.uploads import create_budget
from tests.app.ledger import attacks
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine

ROWS: dict[str, Any] = {
    "age": [40.0, 50.5, 130.0, 20.0],
    "region": ["north", "south", "south", "north"],
    "outcome": ["no", "yes", "no", "yes"],
    "patient": ["K-0001", "K-0002", "K-0003", "K-0004"],
}


@pytest.fixture
def datasets(client: TestClient, context: Context) -> Datasets:
    return Datasets(client, context)


def matrix(ids: Any) -> bytes:
    features = np.array([[40.0, 0.0], [50.5, 1.0], [130.0, 1.0], [20.0, 0.0]])
    file = io.BytesIO()
    np.savez(file, features=features, label=np.array([0, 1, 0, 1]), patient=np.array(ids))
    return file.getvalue()


NUMBERED = [
    {"name": "age", "type": "number", "lower": 0, "upper": 120},
    {"name": "region", "type": "number", "lower": 0, "upper": 1},
    {"name": "outcome", "type": "category", "categories": ["0", "1"]},
]


@on_one_engine
def test_the_declaration_says_that_there_are_ids(datasets: Datasets) -> None:
    one, several = datasets.uploaded(), datasets.uploaded(rows_per_person=3)
    shown = [datasets.client.get(f"/v1/datasets/{each}").json() for each in (one, several)]
    assert [(each["person_column"], each["rows_per_person"]) for each in shown] == [("patient", 1), ("patient", 3)]
    assert verified(datasets.context).valid
    [stated] = [each for each in datasets.client.get("/v1/datasets").json()["items"] if each["id"] == several]
    assert stated == shown[1]


@on_one_engine
def test_an_edited_bound_is_found_by_verification(datasets: Datasets) -> None:
    datasets.uploaded()
    attacks.run(datasets.context.database, "UPDATE datasets SET rows_per_person = 2 WHERE rows_per_person = 1")
    report = verified(datasets.context)
    assert not report.valid
    assert "rows_per_person" in repr(report)


@on_one_engine
@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"person_column": "age"}, "/metadata/person_column"),
        ({"person_column": ""}, "/metadata/person_column"),
        ({"person_column": None, "rows_per_person": 1}, "/metadata/rows_per_person"),
        ({"rows_per_person": 0}, "/metadata/rows_per_person"),
        ({"public": True, "budget_id": None}, "/metadata/person_column"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(datasets: Datasets, changes: dict[str, Any], pointer: str) -> None:
    assert_problem(datasets.upload(**changes), 422, "invalid_request", pointer)


@pytest.mark.one_in(4)
@on_one_engine
@pytest.mark.parametrize(
    "file",
    [
        parquet(ROWS),
        parquet(ROWS | {"patient": pa.array(ROWS["patient"]).dictionary_encode()}),
        npz(ROWS),
        HEADER.encode().replace(b"age,", b"").replace(b"patient\n", b"patient,age\n")
        + b"north,no,K-0001,40\nsouth,yes,K-0002,50.5\nsouth,no,K-0003,130\nnorth,yes,K-0004,20\n",
    ],
)
def test_every_format_holds_the_same_persons(datasets: Datasets, file: bytes) -> None:
    dataset_id = datasets.uploaded(file)
    expected = datasets.column(dataset_id).hashes(ROWS["patient"])
    stored = datasets.files.read_persons(dataset_id)
    assert np.array_equal(stored.hashes, expected)
    assert stored.clipped.tolist() == [(2, 0, 130.0)]
    assert datasets.stored(dataset_id).content_hash == datasets.stored(datasets.uploaded()).content_hash
    assert datasets.ages(datasets.deleted(dataset_id, "K-0002")["id"]) == [40.0, 120.0, 20.0]


@pytest.mark.thorough
@on_one_engine
def test_integers_stand_for_their_digits(datasets: Datasets) -> None:
    texts = datasets.uploaded(PERSONS.replace("K-000", ""))
    for file in (parquet(ROWS | {"patient": [1, 2, 3, 4]}), npz(ROWS | {"patient": np.arange(1, 5, dtype=np.uint8)})):
        dataset_id = datasets.uploaded(file)
        hashes = datasets.files.read_persons(dataset_id).hashes
        assert np.array_equal(hashes, datasets.column(dataset_id).hashes(["1", "2", "3", "4"]))
        # Each data set has a key of its own.
        assert not np.array_equal(hashes, datasets.files.read_persons(texts).hashes)
    for ids in ([1, 2, 3, 4], ["1", "2", "3", "4"]):
        dataset_id = datasets.uploaded(matrix(ids), columns=NUMBERED)
        assert datasets.ages(datasets.deleted(dataset_id, "3", "4")["id"]) == [40.0, 50.5]


@pytest.mark.one_in(3)
@on_one_engine
@pytest.mark.parametrize(
    ("file", "code", "where"),
    [
        (PERSONS.replace("K-0003", ""), "empty_cell", "row 4, column 'patient'"),
        (PERSONS.replace("K-0003", " K-0003"), "wrong_form", "row 4, column 'patient'"),
        (PERSONS.replace("K-0003", "K" * 201), "too_long", "row 4, column 'patient'"),
        (PERSONS.replace("K-0003", "K-0001"), "too_many_rows_of_a_person", "row 4, column 'patient'"),
        (PERSONS.replace(",patient", ""), "column_missing", "lacks 'patient'"),
        (PERSONS.replace("K-0003", "K-0003,"), "ragged_row", "Row 4 has 5 cells where the header has 4"),
        (parquet(ROWS | {"patient": ["K-0001", None, "K-0003", "K-0004"]}), "empty_cell", "row 2, column 'patient'"),
        (parquet(ROWS | {"patient": [1.0, 2.0, 3.0, 4.0]}), "column_type", "'patient' holds floating-point numbers"),
        (npz(ROWS | {"patient": [1.0, 2.0, 3.0, 4.0]}), "column_type", "'patient' holds floating-point numbers"),
        (
            npz(ROWS | {"patient": ["K-0001", "K-0001", "3", "4"]}),
            "too_many_rows_of_a_person",
            "row 2, column 'patient'",
        ),
        (npz({name: ROWS[name] for name in ("age", "region", "outcome")}), "column_missing", "lacks 'patient'"),
    ],
)
def test_a_file_with_faulty_ids_is_refused_without_an_id(
    datasets: Datasets, file: str | bytes, code: str, where: str
) -> None:
    answer = datasets.upload(file)
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert (error["code"], where in error["detail"]) == (code, True), error
    assert "K-0" not in answer.text
    assert "KKK" not in answer.text
    assert list(datasets.files.folder.iterdir()) == []


@pytest.mark.one_in(3)
@on_one_engine
@pytest.mark.parametrize("ids", [["a", "b", "c"], ["a", "b", "c", "d", "e"], [["a"], ["b"], ["c"], ["d"]], "a"])
def test_an_archive_with_a_matrix_has_an_id_for_each_row(datasets: Datasets, ids: Any) -> None:
    refused = datasets.upload(matrix(ids), columns=NUMBERED)
    assert [each["code"] for each in refused.json()["errors"]] == ["wrong_shape"]
    both = datasets.upload(matrix(["a", "b", "c", "d"]), columns=NUMBERED, person_column="label")
    assert [each["code"] for each in both.json()["errors"]] == ["wrong_shape"]


@on_one_engine
def test_no_version_has_more_rows_of_a_person_than_declared(datasets: Datasets) -> None:
    twice = PERSONS + "33,south,no,K-0001\n"
    assert_problem(datasets.upload(twice), 422, "invalid_csv", "/file")
    dataset_id = datasets.uploaded(twice, rows_per_person=2)
    thrice = twice + "33,south,yes,K-0002\n34,south,no,K-0001\n35,north,no,K-0001\n"
    refused = datasets.version(dataset_id, thrice)
    assert [(each["code"], each["detail"].split(",")[0]) for each in refused.json()["errors"]] == [
        ("too_many_rows_of_a_person", "In row 8"),
        ("too_many_rows_of_a_person", "In row 9"),
    ]
    assert datasets.client.get(f"/v1/datasets/{dataset_id}").json()["version"] == 1
    assert datasets.version(dataset_id, twice + "33,south,yes,K-0002\n").status_code == 201


@on_one_engine
def test_ids_are_in_all_versions_or_in_none(datasets: Datasets) -> None:
    without = "age,region,outcome\n41,north,no\n"
    dataset_id = datasets.uploaded()
    refused = datasets.version(dataset_id, without)
    assert_problem(refused, 422, "invalid_csv", "/file")
    assert "'patient'" in refused.json()["errors"][0]["detail"]
    other = datasets.uploaded(without, person_column=None)
    assert_problem(datasets.version(other, HEADER + "41,north,no,K-0001\n"), 422, "invalid_csv", "/file")
    assert_problem(datasets.delete(other, "K-0001"), 409, "no_person_ids")
    assert datasets.client.get(f"/v1/datasets/{other}").json()["person_column"] is None


@on_one_engine
def test_a_person_is_deleted_by_id(datasets: Datasets) -> None:
    dataset_id = datasets.uploaded(PERSONS + "33,south,no,K-0001\n", rows_per_person=2)
    before = datasets.client.get(f"/v1/datasets/{dataset_id}").json()
    second = datasets.deleted(dataset_id, "K-0001")
    assert datasets.ages(second["id"]) == [50.5, 120.0, 20.0]
    features, labels = datasets.files.read(second["id"])
    assert (features[:, 1].tolist(), labels.tolist()) == ([1.0, 1.0, 0.0], [1, 0, 1])
    stated = {"version": 2, "change": "deleted", "reason": "withdrawals", "owner_report": None, "erased": False}
    assert second.items() >= {**stated, "declared_size": 100, "capacity": 113, "dataset_id": dataset_id}.items()
    now = datasets.client.get(f"/v1/datasets/{dataset_id}").json()
    assert now == before | {"version": 2}
    # The rows of the version before are gone, unless they are asked to stay.
    assert {path.stem for path in datasets.files.folder.iterdir()} == {second["id"]}
    third = datasets.deleted(dataset_id, "K-0003", "K-0004", erase_earlier=False, change="replaced")
    assert {path.stem for path in datasets.files.folder.iterdir()} == {second["id"], third["id"]}
    assert (third["change"], datasets.ages(third["id"])) == ("replaced", [50.5])
    # No row is left, and then one more deletion.
    for number, persons in ((4, ["K-0002"]), (5, ["K-0001", "K-0002"]), (6, [])):
        last = datasets.deleted(dataset_id, *persons)
        assert (last["version"], datasets.ages(last["id"])) == (number, [])
    assert verified(datasets.context).valid


@on_one_engine
def test_what_is_left_is_bound_as_a_file_without_the_person(datasets: Datasets) -> None:
    fewer = PERSONS.replace("50.5,south,yes,K-0002\n", "")
    dataset_id = datasets.uploaded()
    datasets.deleted(dataset_id, "K-0002")
    assert datasets.version(dataset_id, fewer).status_code == 201
    assert datasets.content_of(dataset_id, 2) == datasets.content_of(dataset_id, 3)
    other = create_budget(datasets.context)
    without_ids = fewer.replace(",patient", "").replace(",K-0001", "").replace(",K-0003", "").replace(",K-0004", "")
    refused = datasets.upload(without_ids, budget_id=other, person_column=None)
    assert_problem(refused, 409, "budget_not_bound")


@on_one_engine
def test_nothing_tells_whether_a_person_was_there(datasets: Datasets) -> None:
    dataset_ids = [datasets.uploaded(), datasets.uploaded()]
    answers = [
        datasets.delete(each, *persons) for each, persons in zip(dataset_ids, (["K-0001"], ["K-9999"]), strict=True)
    ]
    assert [answer.status_code for answer in answers] == [201, 201]
    told = []
    for dataset_id, answer in zip(dataset_ids, answers, strict=True):
        shown = (answer.json(), datasets.client.get(f"/v1/datasets/{dataset_id}").json())
        told.append([{k: v for k, v in each.items() if k not in ("id", "dataset_id", "created_at")} for each in shown])
    assert told[0] == told[1]
    assert answers[0].headers.keys() == answers[1].headers.keys()
    assert [len(datasets.ages(answer.json()["id"])) for answer in answers] == [3, 4]


@on_one_engine
def test_an_id_is_in_no_answer_log_table_or_file(
    datasets: Datasets, caplog: pytest.LogCaptureFixture, client: TestClient
) -> None:
    caplog.set_level(logging.DEBUG)
    dataset_id = datasets.uploaded(PERSONS.replace("K-0003", "Zo\u00eb Quux"))
    answers = [
        datasets.delete(dataset_id, "Zoe\u0308 Quux", erase_earlier=False),
        datasets.delete(dataset_id, "Zo\u00eb Quux", reason="", erase_earlier=False),
        datasets.delete(dataset_id, "Zo\u00eb Quux ", erase_earlier=False),
        datasets.delete(dataset_id, "Quux" * 51),
        datasets.delete(dataset_id, persons=[["Quux"]]),
        client.get("/v1/ledger/register"),
        client.get(f"/v1/datasets/{dataset_id}/versions"),
    ]
    assert [answer.status_code for answer in answers] == [201, 422, 422, 422, 422, 200, 200]
    assert datasets.ages(answers[0].json()["id"]) == [40.0, 50.5, 20.0]
    assert not any("Quux" in answer.text for answer in answers)
    assert "Quux" not in caplog.text
    for path in datasets.files.folder.iterdir():
        stored = path.read_bytes()
        assert not any("Quux".encode(encoding) in stored for encoding in ("utf-8", "utf-16-le", "utf-32-le"))
    with datasets.context.database.read() as session:
        for table in metadata_of_tables.sorted_tables:
            assert "Quux" not in repr(session.execute(select(table)).all())


@on_one_engine
def test_a_deletion_is_carried_out_once(datasets: Datasets) -> None:
    dataset_id = datasets.uploaded()
    first = datasets.delete(dataset_id, "K-0001", key="once-0001")
    again = datasets.delete(dataset_id, "K-0001", key="once-0001")
    assert (first.status_code, again.status_code, again.json()) == (201, 201, first.json())
    assert again.headers["Idempotency-Replayed"] == "true"
    assert_problem(datasets.delete(dataset_id, "K-0002", key="once-0001"), 422, "idempotency_key_reused")
    assert datasets.client.get(f"/v1/datasets/{dataset_id}").json()["version"] == 2
    assert {path.stem for path in datasets.files.folder.iterdir()} == {first.json()["id"]}


@on_one_engine
@pytest.mark.parametrize("erases", [False, True])
def test_a_version_that_comes_meanwhile_is_not_lost(
    datasets: Datasets, monkeypatch: pytest.MonkeyPatch, erases: bool
) -> None:
    more = PERSONS + "33,south,no,K-0005\n"
    dataset_id = datasets.uploaded()
    read = DatasetFiles.read_persons
    comes = iter([True])

    def and_a_version_comes(files: DatasetFiles, version_id: str) -> Any:
        if next(comes, False):
            assert datasets.version(dataset_id, more, erase_earlier=erases).status_code == 201
        return read(files, version_id)

    monkeypatch.setattr(DatasetFiles, "read_persons", and_a_version_comes)
    refused = datasets.delete(dataset_id, "K-0001", key="meanwhile")
    assert_problem(refused, 503, "version_came_meanwhile")
    assert refused.headers["Retry-After"] == "1"
    assert len(list(datasets.files.folder.iterdir())) == (1 if erases else 2)
    # The same key gets what it asks for at last.
    done = datasets.delete(dataset_id, "K-0001", key="meanwhile").json()
    assert (done["version"], datasets.ages(done["id"])) == (3, [50.5, 120.0, 20.0, 33.0])
    assert verified(datasets.context).valid


@on_one_engine
def test_rows_that_are_lost_are_no_version_that_came(datasets: Datasets) -> None:
    dataset_id = datasets.uploaded()
    datasets.files.remove(dataset_id)
    assert_problem(datasets.delete(dataset_id, "K-0001"), 500, "internal_error")
    assert datasets.client.delete(f"/v1/datasets/{dataset_id}").status_code == 204
    assert_problem(datasets.delete(dataset_id, "K-0001"), 404, "not_found")


@on_one_engine
def test_who_may_not_add_a_version_deletes_nobody(datasets: Datasets, connect: ConnectAs) -> None:
    dataset_id, other = datasets.uploaded(), create_budget(datasets.context)
    for scope, budgets, status, code in (
        (Scope.ANALYST, None, 403, "forbidden"),
        (Scope.AUDITOR, None, 403, "forbidden"),
        (Scope.OWNER, (other,), 404, "not_found"),
    ):
        key = create_key(datasets.context, "a key", {scope}, budgets=budgets)
        assert key is not None
        datasets.client = connect(headers={"Authorization": f"Bearer {key.token}"}, is_local=False)
        assert_problem(datasets.delete(dataset_id, "K-0001"), status, code)
    assert datasets.ages(dataset_id) == [40.0, 50.5, 120.0, 20.0]


def crash(*_: Any) -> None:
    raise RuntimeError("killed")


@on_one_engine
@pytest.mark.parametrize(("place", "name"), [(DatasetFiles, "sweep"), (repository, "lock_content")])
def test_a_deletion_that_a_crash_interrupts_is_done_once_it_is_repeated(
    datasets: Datasets, monkeypatch: pytest.MonkeyPatch, place: Any, name: str
) -> None:
    dataset_id = datasets.uploaded()
    with monkeypatch.context() as patched:
        patched.setattr(place, name, crash)
        assert datasets.delete(dataset_id, "K-0003", key="interrupted").status_code == 500
    is_entered = datasets.client.get(f"/v1/datasets/{dataset_id}").json()["version"] == 2
    assert is_entered == (name == "sweep")
    again = datasets.delete(dataset_id, "K-0003", key="interrupted")
    assert (again.status_code, again.json()["version"]) == (201, 2)
    assert datasets.ages(again.json()["id"]) == [40.0, 50.5, 20.0]
    assert not datasets.files.path(dataset_id).exists()
    assert verified(datasets.context).valid


@on_one_engine
def test_deletions_at_once_are_all_carried_out(datasets: Datasets) -> None:
    dataset_id = datasets.uploaded()
    barrier = threading.Barrier(3)

    def withdraw(person: str) -> None:
        barrier.wait()
        while (answer := datasets.delete(dataset_id, person, key=f"withdraw-{person}")).status_code == 503:
            pass
        assert answer.status_code == 201, answer.text

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(withdraw, ("K-0001", "K-0002", "K-0004")))
    [newest] = datasets.files.folder.iterdir()
    assert datasets.ages(newest.stem) == [120.0]
    assert datasets.client.get(f"/v1/datasets/{dataset_id}").json()["version"] == 4
    assert verified(datasets.context).valid


@on_one_engine
def test_hashes_are_encrypted_with_the_rows(datasets: Datasets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(datasets.context.settings), "encryption", FileEncryption(DataKeys(bytes(range(32)))))
    dataset_id = datasets.uploaded()
    second = datasets.deleted(dataset_id, "K-0001")["id"]
    stored = datasets.files.path(second).read_bytes()
    hashes = datasets.files.read_persons(second).hashes
    assert len(hashes) == 3
    assert stored.startswith(b"EPSENC1\n")
    assert hashes[0].tobytes() not in stored


@on_one_engine
def test_rows_of_many_blocks_keep_their_persons(datasets: Datasets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.datasets.csv_file._BLOCK_CELLS", 8)
    ages = [float(age) for age in range(100, 150)]
    rows = "".join(f"{age},north,no,K-{number % 25}\n" for number, age in enumerate(ages))
    dataset_id = datasets.uploaded(HEADER + rows, rows_per_person=2)
    gone = {"K-3", "K-24"}
    second = datasets.deleted(dataset_id, *gone)["id"]
    left = [(age, number) for number, age in enumerate(ages) if f"K-{number % 25}" not in gone]
    assert datasets.ages(second) == [min(age, 120.0) for age, _ in left]
    # As given, too: the clipped values are found again in a second deletion.
    assert datasets.files.read_persons(second).clipped["value"].tolist() == [age for age, _ in left if age > 120.0]
    fewer = HEADER + "".join(f"{age},north,no,K-{number % 25}\n" for age, number in left)
    assert datasets.version(dataset_id, fewer).status_code == 201
    assert datasets.content_of(dataset_id, 2) == datasets.content_of(dataset_id, 3)
    assert_problem(datasets.upload(HEADER + rows + "1,north,no,K-7\n", rows_per_person=2), 422, "invalid_csv")
