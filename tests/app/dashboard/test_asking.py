"""Pages ask as any client does: with the rights of whoever they are shown to, and with what is known already."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from app.auth import service
from app.auth.principal import Scope
from app.context import Context
from tests.app.auth.test_sessions import BASE_URL, sign_in
from tests.app.conftest import ConnectAs
from tests.databases import on_one_engine

QUICK = {
    "algorithm": "dp_sgd",
    "sampling": "full_batch",
    "dataset_size": "1000",
    "iterations": "100",
    "gradient_bound": "clip",
    "max_grad_norm": "1",
    "target": "zcdp",
    "rho": "0.31",
}


def told(reader: TestClient, outcome: str) -> float:
    """How many answers the cache has told of."""
    for line in reader.get("/metrics").text.splitlines():
        if line.startswith(f"epsilond_cache_{outcome}_total"):
            return float(line.rpartition(" ")[2])
    pytest.fail(f"nothing counts {outcome}")


def test_what_was_answered_is_not_computed_again(reader: TestClient) -> None:
    reader.get("/", params=QUICK)
    before = told(reader, "hits")
    reader.get("/", params=QUICK)
    assert told(reader, "hits") == before + 1


@on_one_engine
def test_a_page_is_held_to_the_limits_of_its_key(connect: ConnectAs, context: Context) -> None:
    created = service.create_key(context, "slow", [Scope.ANALYST], requests_per_second=1)
    assert created is not None
    browser = connect(base_url=BASE_URL, peer=("10.0.0.1", 1))
    sign_in(browser, created.token)
    answers: list[Any] = [browser.get("/dashboard/algorithms/dp_gd") for _ in range(4)]
    assert answers[0].status_code == 200
    assert answers[-1].status_code == 429
    assert "more than 1 times a second" in answers[-1].text
