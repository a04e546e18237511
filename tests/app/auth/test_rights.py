"""Scopes at the routes."""

from __future__ import annotations

from typing import Annotated

import pytest
from fastapi import FastAPI

from app.auth import service
from app.auth.principal import Principal, Scope
from app.auth.rights import CurrentPrincipal, requires
from app.context import Context
from app.main import create_app
from tests.app.problem_assertions import assert_problem
from tests.local_access import local_client


@pytest.fixture
def scoped_app(context: Context) -> FastAPI:
    """The real application with routes that need scopes; they exist in this test alone."""
    app = create_app(context)

    @app.get("/v1/scoped")
    def scoped(principal: Annotated[Principal, requires(Scope.OWNER, Scope.AUDITOR)]) -> str:
        return principal.id

    @app.get("/health/whoami")
    def unguarded(principal: CurrentPrincipal) -> str:
        return principal.id

    return app


def test_a_scope_is_asked_for(scoped_app: FastAPI, context: Context) -> None:
    client = local_client(scoped_app)
    assert client.get("/v1/scoped").json() == "loopback"
    for scope, admitted in ((Scope.OWNER, True), (Scope.AUDITOR, True), (Scope.ADMIN, True), (Scope.ANALYST, False)):
        created = service.create_key(context, "test", [scope])
        assert created is not None
        response = client.get("/v1/scoped", headers={"Authorization": f"Bearer {created.token}"})
        if admitted:
            assert response.json() == created.id
        else:
            body = assert_problem(response, 403, "forbidden")
            assert "admin or auditor or owner" in body["detail"]


def test_a_route_that_the_guard_leaves_open_has_no_principal(scoped_app: FastAPI) -> None:
    client = local_client(scoped_app)
    assert_problem(client.get("/health/whoami"), 401, "unauthenticated")


def test_a_budget_whose_id_begins_alike_is_another_one() -> None:
    principal = Principal("key_1", frozenset(), budgets=("bud_a/bud_b",))
    assert principal.reaches("bud_a/bud_b")
    assert principal.reaches("bud_a/bud_b/bud_c")
    assert not principal.reaches("bud_a/bud_bc")
    assert not principal.reaches("bud_a")
