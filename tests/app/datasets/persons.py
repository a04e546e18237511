"""A private data set with ids of persons for the tests, and what is asked of it."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

from httpx2 import Response
from starlette.testclient import TestClient

from app.context import Context
from app.datasets import repository
from app.datasets.files import DatasetFiles
from app.datasets.persons import PersonColumn, person_column_of
from app.tables.datasets import Dataset
from tests.app.datasets.declarations import metadata
from tests.app.datasets.uploads import create_budget

HEADER = "age,region,outcome,patient\n"
#: The third row has an age beyond its bound.
PERSONS = HEADER + "40,north,no,K-0001\n50.5,south,yes,K-0002\n130,south,no,K-0003\n20,north,yes,K-0004\n"


class Datasets:
    """A private data set with ids of persons, and what is asked of it."""

    def __init__(self, client: TestClient, context: Context) -> None:
        self.client = client
        self.context = context
        self.budget_id = create_budget(context)

    def post(self, path: str, metadata: dict[str, Any], file: str | bytes, key: str | None = None) -> Response:
        content = file.encode() if isinstance(file, str) else file
        parts = {"file": ("rows", content), "metadata": (None, json.dumps(metadata), "application/json")}
        return self.client.post(path, files=parts, headers={"Idempotency-Key": key or uuid4().hex})

    def upload(self, file: str | bytes = PERSONS, **changes: Any) -> Response:
        declared = metadata(**{"public": False, "budget_id": self.budget_id, "person_column": "patient"} | changes)
        return self.post("/v1/datasets", declared, file)

    def uploaded(self, file: str | bytes = PERSONS, **changes: Any) -> str:
        answer = self.upload(file, **changes)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def version(self, dataset_id: str, file: str | bytes, **changes: Any) -> Response:
        stated = {"change": "appended", "reason": "the next week"} | changes
        return self.post(f"/v1/datasets/{dataset_id}/versions", stated, file)

    def delete(self, dataset_id: str, *persons: str, key: str | None = None, **changes: Any) -> Response:
        body = {"persons": list(persons), "reason": "withdrawals"} | changes
        headers = {"Idempotency-Key": key or uuid4().hex}
        return self.client.post(f"/v1/datasets/{dataset_id}/versions", json=body, headers=headers)

    def deleted(self, dataset_id: str, *persons: str, **changes: Any) -> dict[str, Any]:
        answer = self.delete(dataset_id, *persons, **changes)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    @property
    def files(self) -> DatasetFiles:
        return DatasetFiles(self.context.settings.data_dir, self.context.settings.encryption)

    def ages(self, version_id: str) -> list[float]:
        return [float(age) for age in self.files.read(version_id)[0][:, 0]]

    def stored(self, dataset_id: str) -> Dataset:
        with self.context.database.read() as session:
            dataset = repository.find(session, dataset_id)
        assert dataset is not None
        return dataset

    def column(self, dataset_id: str) -> PersonColumn:
        column = person_column_of(self.context, self.stored(dataset_id), dataset_id)
        assert column is not None
        return column

    def content_of(self, dataset_id: str, number: int) -> str:
        with self.context.database.read() as session:
            row = repository.find_version(session, dataset_id, number)
        assert row is not None
        return row.content_hash
