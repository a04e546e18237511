"""A budget, somebody who asks for more of it, and owners who decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from app.auth.principal import Scope
from app.auth.service import create_key
from app.context import Context
from app.settings import Settings
from tests.app.budgets.conftest import Api, api, clock, context, made
from tests.app.conftest import ConnectAs

__all__ = ["api", "clock", "context"]


class Person(Api):
    """Whoever has a key."""

    def __init__(self, client: Any, principal_id: str) -> None:
        super().__init__(client)
        self.id = principal_id

    def ask(self, budget_id: str, rho: float | str, reason: str = "more people", **options: Any) -> Any:
        body = {"filter": {"kind": "zcdp", "rho": rho}, "reason": reason}
        return self.post(f"/v1/budgets/{budget_id}/limit-requests", body, **options)

    def approve(self, request: dict[str, Any], reason: str = "agreed", **options: Any) -> Any:
        return self.post(f"/v1/limit-requests/{request['id']}/approve", {"reason": reason}, **options)

    def refuse(self, request: dict[str, Any], reason: str = "too much", **options: Any) -> Any:
        return self.post(f"/v1/limit-requests/{request['id']}/refuse", {"reason": reason}, **options)

    def withdraw(self, request: dict[str, Any], **options: Any) -> Any:
        return self.post(f"/v1/limit-requests/{request['id']}/withdraw", **options)

    def request(self, request: dict[str, Any]) -> Any:
        return made(self.get(f"/v1/limit-requests/{request['id']}"))


#: A key of some scopes, for all budgets or some: ``person("owner", Scope.OWNER, budgets=[...])``.
PersonOf = Callable[..., Person]


@dataclass
class People:
    """An analyst and two owners of one budget of rho 1."""

    budget: dict[str, Any]
    analyst: Person
    owner: Person
    other: Person


@pytest.fixture
def person(connect: ConnectAs, context: Context) -> PersonOf:
    def with_key(*scopes: Scope, budgets: list[str] | None = None) -> Person:
        created = create_key(context, "test", scopes, budgets=budgets)
        assert created is not None
        return Person(connect(headers={"Authorization": f"Bearer {created.token}"}), created.id)

    return with_key


@pytest.fixture
def people(person: PersonOf) -> People:
    owner = person(Scope.OWNER)
    budget = owner.budget()
    return People(budget, person(Scope.ANALYST, budgets=[budget["id"]]), owner, person(Scope.OWNER))


@pytest.fixture
def approvals() -> int:
    """How many owners must approve; a test of another number overrides it."""
    return 1


@pytest.fixture
def settings(settings: Settings, approvals: int) -> Settings:
    return settings.model_copy(update={"approvals": approvals})
