"""Somebody comes for the first time at two servers at once: one account, on both databases."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import select

from app.auth.oidc.accounts import admit
from app.auth.oidc.configuration import Configuration, configuration_of
from app.auth.oidc.tokens import Claims
from app.context import Context, utc_now
from app.db.database import Database
from app.fence.watching import fenced_context
from app.ledger.verification import verify
from app.settings import Settings
from app.tables.access import ApiKey
from app.tables.ledger import Entry
from tests.app.auth.oidc.conftest import PUBLIC_URL
from tests.app.auth.test_races import together
from tests.databases import DatabaseFactory

SERVERS, ROUNDS = 4, 5


@pytest.fixture
def servers(databases: DatabaseFactory, tmp_path: Path, configure: Callable[..., Path]) -> list[Context]:
    """Several processes of one service: each has its own connections."""
    url, data = databases.migrated(), tmp_path / "data"
    settings = Settings(data_dir=data, database_url=url, workers=0, oidc_file=configure(), public_url=PUBLIC_URL)
    return [fenced_context(settings, Database(url)) for _ in range(SERVERS)]


def configured(context: Context) -> Configuration:
    found = configuration_of(context.settings)
    assert found is not None
    return found


def test_two_first_sign_ins_at_once_make_one_account(servers: list[Context]) -> None:
    ends = utc_now() + timedelta(hours=1)
    # The first entry of a register brings others with it.
    admit(servers[0], configured(servers[0]), Claims("somebody else", frozenset({"analysts"}), "Somebody", ends))
    with servers[0].database.read() as session:
        before = len(session.scalars(select(Entry.id)).all())
    try:
        for number in range(ROUNDS):
            claims = Claims(f"person-{number}", frozenset({"analysts"}), "Somebody", ends)
            accounts = together([partial(admit, each, configured(each), claims) for each in servers])
            assert len({account.id for account in accounts}) == 1, accounts
        with servers[0].database.read() as session:
            assert len(session.scalars(select(ApiKey.id)).all()) == ROUNDS + 1
            assert len(session.scalars(select(Entry.id)).all()) == before + ROUNDS, "each is registered once"
            assert verify(session).first_bad is None
    finally:
        for each in servers:
            each.database.dispose()
