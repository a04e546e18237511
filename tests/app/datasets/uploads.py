"""Uploads and budgets for the tests of data sets."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

from httpx2 import Response
from starlette.testclient import TestClient

from app.budgets import service as budgets
from app.budgets.schemas import BudgetRequest
from app.context import Context
from tests.app.datasets.declarations import CSV


def upload(
    client: TestClient, declared: dict[str, Any] | str | bytes, file: bytes = CSV, key: str | None = None
) -> Response:
    document = json.dumps(declared) if isinstance(declared, dict) else declared
    return client.post(
        "/v1/datasets",
        files={"file": ("rows.csv", file, "text/csv"), "metadata": (None, document, "application/json")},
        headers={"Idempotency-Key": key or uuid4().hex},
    )


def create_budget(context: Context, **changes: Any) -> str:
    """Id of a new root budget."""
    request = BudgetRequest.model_validate(
        {"name": "root", "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1}, **changes}
    )
    with context.database.write() as session:
        return budgets.create_budget(session, context, request, "loopback").id
