"""API keys: unguessable, stored as a keyed hash alone, revoked for ever."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Barrier, Thread

import pytest
from sqlalchemy import text, update

from app.auth import service
from app.auth.principal import Principal, Scope
from app.auth.service import CreatedKey
from app.context import Context
from app.settings import Settings
from app.tables.access import ApiKey


def create(context: Context, *scopes: Scope) -> CreatedKey:
    created = service.create_key(context, "test", scopes)
    assert created is not None
    return created


def test_a_key_gives_its_principal(context: Context) -> None:
    created = create(context, Scope.OWNER, Scope.ANALYST)
    assert service.authenticate(context, created.token) == Principal(
        created.id, frozenset({Scope.OWNER, Scope.ANALYST}), "test"
    )


def test_the_token_has_256_secret_bits_and_its_form(context: Context) -> None:
    first, second = create(context, Scope.OWNER), create(context, Scope.OWNER)
    for created in (first, second):
        assert service.TOKEN.fullmatch(created.token)
    assert first.token.rpartition("_")[2] != second.token.rpartition("_")[2]


def test_nothing_of_the_token_is_stored_but_a_keyed_hash(context: Context, tmp_path: Path) -> None:
    created = create(context, Scope.OWNER)
    with context.database.read() as session:
        row = dict(session.execute(text("SELECT * FROM api_keys")).one()._mapping)
    secret = created.token.rpartition("_")[2]
    assert secret not in repr(row)
    # Another secret of the service gives another hash: without it the table tells nothing about a guessed key.
    other = replace(context, settings=Settings(data_dir=tmp_path / "other"))
    assert row["token_hash"] == service.token_hash(context, created.token) != service.token_hash(other, created.token)
    assert service.authenticate(other, created.token) is None


def test_the_id_alone_does_not_authenticate(context: Context) -> None:
    first, second = create(context, Scope.ADMIN), create(context, Scope.OWNER)
    prefix, _, _ = first.token.rpartition("_")
    assert service.authenticate(context, f"{prefix}_{second.token.rpartition('_')[2]}") is None
    assert service.authenticate(context, f"{prefix}_{'a' * 52}") is None


def test_an_expired_key_is_refused(context: Context) -> None:
    created = create(context, Scope.OWNER)
    for expires_in, usable in ((timedelta(seconds=60), True), (timedelta(seconds=-1), False)):
        with context.database.write() as session:
            session.execute(update(ApiKey).values(expires_at=context.clock() + expires_in))
        assert (service.authenticate(context, created.token) is not None) is usable


def test_a_key_is_revoked_once(context: Context) -> None:
    created = create(context, Scope.OWNER)
    assert service.revoke_key(context, created.id)
    assert not service.revoke_key(context, created.id)
    assert not service.revoke_key(context, "key_none")
    assert service.authenticate(context, created.token) is None
    assert service.keys_exist(context)


def test_if_none_makes_one_key_of_many_that_start_together(context: Context) -> None:
    barrier = Barrier(6)
    made: list[CreatedKey | None] = []

    def start() -> None:
        barrier.wait()
        made.append(service.create_key(context, "first", [Scope.ADMIN], if_none=True))

    threads = [Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 6
    assert len([key for key in made if key is not None]) == 1
    assert len(service.list_keys(context)) == 1


@pytest.mark.parametrize("held", list(Scope))
@pytest.mark.parametrize("needed", list(Scope))
def test_admin_may_everything_and_the_others_only_their_own(held: Scope, needed: Scope) -> None:
    assert Principal("key_1", frozenset({held})).may(needed) is (held in (needed, Scope.ADMIN))
    assert not Principal("key_1", frozenset()).may(needed)
