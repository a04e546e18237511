"""Synthetic data: the same rows for the same request, public, and of the shape that was asked for."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from httpx2 import Response
from starlette.testclient import TestClient

from app.auth.principal import Scope
from app.auth.service import create_key
from app.context import Context
from app.datasets import service
from app.datasets.synthetic import SyntheticRequest, generate
from tests.app.conftest import ConnectAs
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine

REQUEST = {"kind": "synthetic", "name": "two clouds", "features": 3, "rows": 500, "seed": 7}


def post(client: TestClient, body: dict[str, Any], key: str | None = None) -> Response:
    return client.post("/v1/datasets", json=body, headers={"Idempotency-Key": key or uuid4().hex})


def request(**changes: Any) -> SyntheticRequest:
    return SyntheticRequest.model_validate(REQUEST | changes)


@pytest.mark.parametrize(
    ("task", "content"),
    [
        ("classification", "03bbf70ccebc0869"),
        ("regression", "299e21c1e1960b83"),
    ],
)
def test_the_rows_of_a_request_never_change(task: str, content: str) -> None:
    assert generate(request(task=task)).content[:8].hex() == content


def test_other_seeds_and_parameters_give_other_rows() -> None:
    contents = {
        generate(request(**changes)).content
        for changes in ({}, {"seed": 8}, {"rows": 501}, {"separation": 1.0}, {"task": "regression"}, {"classes": 3})
    }
    assert len(contents) == 6


def test_classes_lie_apart_as_far_as_they_are_asked_to() -> None:
    for separation, expected in ((0.0, 0.5), (4.0, 0.95)):
        table = generate(request(rows=4000, separation=separation))
        centres = [table.features[table.labels == label].mean(axis=0) for label in (0, 1)]
        distances = [np.linalg.norm(table.features - centre, axis=1) for centre in centres]
        accuracy = np.mean((distances[1] < distances[0]) == (table.labels == 1))
        assert accuracy >= expected - 0.05
        assert np.abs(table.features).max() <= 1.0
        assert abs(table.labels.mean() - 0.5) < 0.05


def test_a_regression_is_linear_up_to_its_noise() -> None:
    table = generate(request(rows=4000, task="regression", noise=0.05))
    weights, residuals, *_ = np.linalg.lstsq(table.features, table.labels)
    assert np.sqrt(residuals[0] / table.rows) == pytest.approx(0.05, rel=0.05)
    assert np.linalg.norm(weights) == pytest.approx(0.5, rel=0.05)


@on_one_engine
def test_a_synthetic_set_is_public_and_can_be_trained_on(client: TestClient, context: Context) -> None:
    response = post(client, REQUEST, key="once")
    assert response.status_code == 201, response.text
    body = response.json()
    assert response.headers["location"] == f"/v1/datasets/{body['id']}"
    assert (body["public"], body["budget_id"], body["declared_size"]) == (True, None, 500)
    assert [column["name"] for column in body["columns"]] == ["feature_1", "feature_2", "feature_3", "label"]
    assert body["owner_report"]["rows"] == 500
    again = post(client, REQUEST, key="once")
    assert again.json() == body
    assert again.headers["idempotency-replayed"] == "true"
    assert_problem(post(client, REQUEST | {"seed": 8}, key="once"), 422, "idempotency_key_reused")
    with context.database.read() as session:
        loaded = service.load(context, session, body["id"])
    assert loaded.public
    assert np.array_equal(loaded.features, generate(request()).features)


@on_one_engine
def test_faulty_requests_are_refused_with_a_pointer(client: TestClient, context: Context, connect: ConnectAs) -> None:
    for changes, pointer in (
        ({"rows": 0}, "/rows"),
        ({"rows": 1_000_000, "features": 1000}, "/rows"),
        ({"features": 1001}, "/features"),
        ({"classes": 1}, "/classes"),
        ({"seed": -1}, "/seed"),
        ({"seed": None}, "/seed"),
        ({"public": True}, "/public"),
        ({"task": "clustering"}, "/task"),
        ({"kind": "csv"}, "/kind"),
    ):
        assert_problem(post(client, REQUEST | changes), 422, "invalid_request", pointer)
    headers = {"Idempotency-Key": "a", "Content-Type": "application/json"}
    assert_problem(client.post("/v1/datasets", content=b"[1]", headers=headers), 422, "invalid_request")
    assert_problem(client.post("/v1/datasets", content=b"", headers=headers), 422, "malformed_json")
    assert_problem(client.post("/v1/datasets", json=REQUEST), 400, "idempotency_key_missing")
    analyst = create_key(context, "analyst", [Scope.ANALYST])
    assert analyst is not None
    other = connect(headers={"Authorization": f"Bearer {analyst.token}"})
    assert_problem(post(other, REQUEST), 403, "forbidden")
