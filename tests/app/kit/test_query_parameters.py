"""Query parameters: those of the endpoint and of what it depends on, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import pytest
from fastapi import APIRouter, Depends, FastAPI, Query
from starlette.testclient import TestClient

from app.kit import limits
from app.kit.query_parameters import KnownParametersOnly
from app.observability.metrics import Metrics
from app.observability.requests import RequestBoundary
from app.problem_handlers import add_problem_handlers


def window(after: int = 0) -> int:
    return after


@pytest.fixture
def client() -> Iterator[TestClient]:
    router = APIRouter(prefix="/v1", dependencies=[KnownParametersOnly])

    @router.get("/things/{thing_id}")
    def things(
        thing_id: str, start: Annotated[int, Depends(window)], kind: Annotated[str, Query(alias="of")] = ""
    ) -> str:
        return f"{thing_id} {start} {kind}"

    app = FastAPI()
    app.include_router(router)
    app.add_middleware(RequestBoundary, metrics=Metrics())
    add_problem_handlers(app)
    with TestClient(app) as client:
        yield client


def test_declared_parameters_are_taken_under_their_names(client: TestClient) -> None:
    assert client.get("/v1/things/a", params={"after": 3, "of": "x"}).json() == "a 3 x"


@pytest.mark.parametrize("name", ["kind", "thing_id", "afetr", "a/b"])
def test_every_other_parameter_is_refused_by_its_name(client: TestClient, name: str) -> None:
    answer = client.get("/v1/things/a", params=[("after", "3"), (name, "1"), (name, "2")])
    assert answer.status_code == 422
    (item,) = answer.json()["errors"]
    assert item["pointer"] == "/query/" + name.replace("/", "~1")
    assert (answer.json()["code"], item["code"]) == ("invalid_request", "unknown_field")


def test_the_list_of_faults_is_bounded(client: TestClient) -> None:
    answer = client.get("/v1/things/a", params={f"{number}" + "x" * 400: "1" for number in range(60)})
    errors = answer.json()["errors"]
    assert len(errors) == limits.LISTED_FAULTS
    assert all(len(item["pointer"]) <= limits.POINTER_LENGTH for item in errors)
