"""Rows that are held out: the coins, where they are kept, and who may hold rows out."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from app.context import Context
from app.datasets import service as datasets
from app.datasets.files import DatasetFiles
from app.datasets.held_out import split_size, toss
from tests.app.datasets.persons import HEADER, Datasets
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine

ROWS = 600


@pytest.fixture
def files(client: TestClient, context: Context) -> Datasets:
    return Datasets(client, context)


def csv(rows: int, persons: int | None = None) -> str:
    lines = (
        f"{20 + n % 60},{'north' if n % 2 else 'south'},{'yes' if n % 3 else 'no'}"
        + ("" if persons is None else f",K-{n % persons}")
        for n in range(rows)
    )
    header = HEADER if persons is not None else HEADER.replace(",patient", "")
    return header + "\n".join(lines) + "\n"


def held_out(files: Datasets, context: Context, version_id: str) -> np.ndarray:
    return DatasetFiles(context.settings.data_dir, context.settings.encryption).read_held_out(version_id)


def test_coins_fall_as_often_as_they_are_declared_to() -> None:
    for share in (0.01, 0.2, 0.5):
        found = toss(100_000, share)
        assert abs(found.mean() - share) < 6.0 * (share * (1.0 - share) / 100_000) ** 0.5


def test_coins_are_tossed_anew_and_independently() -> None:
    one, other = toss(20_000, 0.5), toss(20_000, 0.5)
    for agreement in (np.mean(one == other), np.mean(one[1:] == one[:-1])):
        assert abs(agreement - 0.5) < 6.0 * 0.5 / 20_000**0.5


def test_coins_come_from_the_operating_systems_generator_and_from_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """One word for each row, read in order: no row has a part in another's coin."""
    monkeypatch.setattr(secrets, "token_bytes", lambda size: bytes(range(0, 256, 32)) * (size // 8))
    assert not toss(5, 0.5).any()
    words = np.array([0, 2**63 - 1, 2**63, 2**64 - 1], dtype="<u8")
    monkeypatch.setattr(secrets, "token_bytes", lambda size: words.tobytes()[:size])
    assert toss(4, 0.5).tolist() == [True, True, False, False]
    assert toss(0, 0.5).tolist() == []


def test_all_rows_of_a_person_are_in_one_part() -> None:
    numbers = np.random.default_rng(1).integers(0, 400, size=(5000, 1)).astype(np.uint64)
    persons = numbers * np.array([[1, 7]], np.uint64)
    found = toss(5000, 0.3, persons)
    by_person: dict[int, set[bool]] = {}
    for person, coin in zip(persons[:, 0].tolist(), found.tolist(), strict=True):
        by_person.setdefault(person, set()).add(coin)
    assert all(len(coins) == 1 for coins in by_person.values())
    assert 0.15 < np.mean([True in coins for coins in by_person.values()]) < 0.45


@pytest.mark.parametrize(("declared", "share", "sizes"), [(1000, 0.25, (750, 250)), (1, 0.5, (1, 0)), (2, 0.5, (1, 1))])
def test_something_is_left_to_train_on(declared: int, share: float, sizes: tuple[int, int]) -> None:
    assert split_size(declared, share) == sizes


@on_one_engine
def test_the_coins_lie_with_the_rows_and_part_them(files: Datasets, context: Context) -> None:
    dataset_id = files.uploaded(csv(ROWS), held_out_share=0.3, declared_size=ROWS, person_column=None)
    coins = held_out(files, context, dataset_id)
    with context.database.read() as session:
        loaded = datasets.load(context, session, dataset_id)
    features, labels = DatasetFiles(context.settings.data_dir, context.settings.encryption).read(dataset_id)
    assert 0 < coins.sum() < ROWS
    assert loaded.held_out is not None
    np.testing.assert_array_equal(loaded.features, features[~coins])
    np.testing.assert_array_equal(loaded.labels, labels[~coins])
    np.testing.assert_array_equal(loaded.held_out[0], features[coins])
    np.testing.assert_array_equal(loaded.held_out[1], labels[coins])
    assert (loaded.declared_size, loaded.capacity) == (420, 675)
    shown = files.client.get(f"/v1/datasets/{dataset_id}").json()
    assert (shown["held_out_share"], shown["declared_size"], shown["capacity"]) == (0.3, ROWS, 675)


@on_one_engine
def test_every_version_has_coins_of_its_own_by_persons_where_they_are_known(files: Datasets, context: Context) -> None:
    content = csv(ROWS, persons=200)
    dataset_id = files.uploaded(content, held_out_share=0.5, declared_size=ROWS, rows_per_person=3)
    found = [held_out(files, context, dataset_id)]
    answer = files.version(dataset_id, content)
    assert answer.status_code == 201
    found.append(held_out(files, context, answer.json()["id"]))
    deleted = files.client.post(
        f"/v1/datasets/{dataset_id}/versions",
        json={"persons": ["K-7"], "reason": "r", "erase_earlier": False},
        headers={"Idempotency-Key": "d"},
    )
    assert deleted.status_code == 201, deleted.text
    found.append(held_out(files, context, deleted.json()["id"]))
    assert [coins.size for coins in found] == [ROWS, ROWS, ROWS - 3]
    for coins in found[:2]:
        assert np.array_equal(coins[:200], coins[200:400])
        assert np.array_equal(coins[:200], coins[400:])
    assert not np.array_equal(found[0], found[1])


@on_one_engine
def test_rows_that_are_held_out_take_part_in_what_is_too_full(files: Datasets, context: Context) -> None:
    dataset_id = files.uploaded(csv(ROWS), held_out_share=0.5, declared_size=ROWS, person_column=None)
    with context.database.read() as session:
        loaded = datasets.load(context, session, dataset_id)
    full: dict[str, Any] = vars(loaded) | {"capacity": ROWS - 1}
    assert datasets.LoadedDataset(**full).is_too_full
    assert not loaded.is_too_full


@on_one_engine
@pytest.mark.parametrize("share", [0.0, 0.005, 0.51, 1.0, -0.1])
def test_a_share_out_of_range_is_refused(files: Datasets, share: float) -> None:
    assert_problem(
        files.upload(csv(9), held_out_share=share, person_column=None),
        422,
        "invalid_request",
        "/metadata/held_out_share",
    )


@on_one_engine
def test_public_data_hold_nothing_out(files: Datasets) -> None:
    answer = files.upload(csv(9), held_out_share=0.2, public=True, budget_id=None, person_column=None)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/metadata/held_out_share"
