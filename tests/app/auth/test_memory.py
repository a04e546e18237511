"""What a process remembers of keys is never older than what it has itself done to them."""

from __future__ import annotations

import pytest

from app.auth import service
from app.auth.memory import KeyMemory
from app.auth.principal import Principal, Scope
from app.context import Context


def test_an_answer_that_a_revocation_overtook_is_not_remembered(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = service.create_key(context, "test", [Scope.ADMIN])
    assert created is not None
    authenticate = service.authenticate

    def overtaken(of: Context, token: str) -> Principal | None:
        found = authenticate(of, token)
        assert service.revoke_key(of, created.id)
        assert memory.principal(token, ask=False) is None, "another request, which hears of the change"
        return found

    memory = KeyMemory(context)
    monkeypatch.setattr(service, "authenticate", overtaken)
    assert memory.principal(created.token, ask=True) is not None, "it was valid when the database was asked"
    monkeypatch.undo()
    assert memory.principal(created.token, ask=False) is None
    assert memory.principal(created.token, ask=True) is None


def test_a_first_key_that_is_made_while_the_database_is_asked_ends_the_keyless_mode(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys_exist = service.keys_exist

    def overtaken(of: Context) -> bool:
        found = keys_exist(of)
        service.create_key(of, "test", [Scope.ADMIN])
        assert memory.keys_exist(ask=False) is None, "another request, which hears of the change"
        return found

    memory = KeyMemory(context)
    monkeypatch.setattr(service, "keys_exist", overtaken)
    assert memory.keys_exist(ask=True) is False
    monkeypatch.undo()
    assert memory.keys_exist(ask=False) is None, "nothing is believed that was overtaken"
    assert memory.keys_exist(ask=True) is True
