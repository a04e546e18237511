"""Two servers with different secrets on one database: the second one does not start."""

from __future__ import annotations

import json
from pathlib import Path
from secrets import token_hex

import pytest

from tests.databases import DatabaseFactory
from tests.e2e.server import Api, serving

TERMS = {"neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1}}
METADATA = {
    "name": "patients",
    "declared_size": 4,
    "privacy_unit": "record",
    "columns": [
        {"name": "a", "type": "number", "lower": 0, "upper": 10},
        {"name": "y", "type": "category", "categories": ["no", "yes"]},
    ],
    "label": "y",
}
ROWS = "a,y\n1,no\n9,yes\n2,no\n8,yes\n"


def environment(url: str, folder: Path) -> dict[str, str]:
    return {"EPSILOND_DATABASE_URL": url, "EPSILOND_DATA_DIR": str(folder), "EPSILOND_WORKERS": "0"}


def upload(api: Api, budget_id: str) -> int:
    answer = api.client.post(
        "/v1/datasets",
        files={
            "metadata": (None, json.dumps({**METADATA, "budget_id": budget_id}), "application/json"),
            "file": ("rows.csv", ROWS, "text/csv"),
        },
        headers={"Idempotency-Key": token_hex(8)},
    )
    return answer.status_code


def open_budget(api: Api, name: str) -> tuple[int, str]:
    """Always under the same idempotency key: the status, and the budget's id or the problem's code."""
    answer = api.post("/v1/budgets", {**TERMS, "name": name}, headers={"Idempotency-Key": name})
    return answer.status_code, answer.json().get("id") or answer.json()["code"]


@pytest.mark.thorough
def test_the_second_server_is_refused_before_one_content_has_two_roots(
    databases: DatabaseFactory, tmp_path: Path
) -> None:
    url = databases.empty()
    with serving(environment(url, tmp_path / "first")) as first:
        first_root, second_root = open_budget(first, "one")[1], open_budget(first, "two")[1]
        assert upload(first, first_root) == 201
        assert upload(first, second_root) == 409, "one content has one root"
        with (
            pytest.raises(AssertionError, match=r"the server ended: epsilond: The content secret"),
            serving(environment(url, tmp_path / "second")) as second,
        ):
            pytest.fail(f"a second root: {upload(second, second_root)}; a retry: {open_budget(second, 'one')}")
        assert open_budget(first, "one") == (201, first_root), "the first one goes on"
    with serving(environment(url, tmp_path / "first")) as again:
        assert open_budget(again, "one") == (201, first_root)
