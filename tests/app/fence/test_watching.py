"""A ledger is only written to by processes whose database is watched by its fence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError

from accounting.filters import filter_from_json
from app.auth.principal import LOOPBACK
from app.budgets import service
from app.budgets.schemas import BudgetRequest
from app.context import Context
from app.db.database import Database
from app.fence import repository
from app.fence.marks import Head, Move, Reason
from app.fence.watching import fence_of, fenced_context
from app.ledger.commands import ChangeLimit
from app.ledger.journal import Instruction, carry_out
from app.settings import Settings
from app.tables.ledger import Budget, Entry
from tests.databases import DatabaseFactory

REQUEST = BudgetRequest.model_validate(
    {"name": "visits", "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": "1"}}
)


def rows(database: Database) -> tuple[int, int]:
    with database.read() as session:
        budgets, entries = (session.scalar(select(func.count()).select_from(table)) for table in (Budget, Entry))
    return budgets or 0, entries or 0


def test_a_database_that_no_fence_watches_takes_no_entry(tmp_path: Path, sqlite_databases: DatabaseFactory) -> None:
    database = Database(sqlite_databases.migrated())
    context = Context(Settings(data_dir=tmp_path, workers=0), database)
    with pytest.raises(RuntimeError, match="no fence watches this database"), database.write() as session:
        service.create_budget(session, context, REQUEST, LOOPBACK.id)
    assert rows(database) == (0, 0)
    watched = fenced_context(context.settings, database)
    with database.write() as session:
        service.create_budget(session, watched, REQUEST, LOOPBACK.id)
    assert rows(database) == (1, 1)
    assert fence_of(watched).check() is None
    database.dispose()


def test_a_database_that_goes_away_after_a_commit_is_what_failed_and_the_fence_is_told_later(
    tmp_path: Path, sqlite_databases: DatabaseFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(sqlite_databases.migrated())
    context = fenced_context(Settings(data_dir=tmp_path, workers=0), database)
    fence = fence_of(context)
    fence.check()

    def is_away(*_: object) -> None:
        raise OperationalError("", {}, ConnectionError("the server closed the connection"))

    with monkeypatch.context() as patch:
        # A new budget has no earlier end, so that the fence is compared with the database once more.
        patch.setattr(repository, "ledger_id", is_away)
        with pytest.raises(OperationalError), database.write() as session:
            service.create_budget(session, context, REQUEST, LOOPBACK.id)
    assert rows(database) == (1, 1)
    kept = fence.store.read()
    assert kept is not None
    assert kept.heads == {}
    # Whatever is committed next tells of it, too.
    with database.write() as session:
        service.create_budget(session, context, REQUEST.model_copy(update={"name": "sales"}), LOOPBACK.id)
    kept = fence.store.read()
    with database.read() as session:
        heads = repository.heads(session.connection())
    assert kept is not None
    assert dict(kept.heads) == heads
    assert len(heads) == 2
    database.dispose()


@pytest.mark.parametrize("sequence", [1, 2, 3])
def test_an_end_that_was_compared_with_another_than_the_fence_has_is_compared_again(
    tmp_path: Path, sqlite_databases: DatabaseFactory, monkeypatch: pytest.MonkeyPatch, sequence: int
) -> None:
    """Another process notes an end that the database does not have, between a comparison and what it notes."""
    database = Database(sqlite_databases.migrated())
    context = fenced_context(Settings(data_dir=tmp_path, workers=0), database)
    with database.write() as session:
        budget = service.create_budget(session, context, REQUEST, LOOPBACK.id)
        change = ChangeLimit(filter_from_json({"kind": "zcdp", "rho": "2"}), "more")
        carry_out(session, database, [Instruction(change, LOOPBACK.id, budget.id)], context.clock())
    store, other = fence_of(context).store, Head(sequence, "f" * 64)
    kept, advance = store.read(), store.advance
    assert kept is not None
    assert kept.heads[budget.id].sequence == 2
    store.replace(replace(kept, heads={}))

    def after_another(moves: Sequence[Move]) -> bool:
        monkeypatch.undo()
        assert advance([Move(budget.id, None, other)])
        return advance(moves)

    monkeypatch.setattr(store, "advance", after_another)
    loss = fence_of(context).check()
    assert loss is not None
    assert (loss.reason, [each.budget_id for each in loss.missing]) == (Reason.BEHIND, [budget.id])
    kept = store.read()
    assert kept is not None
    assert kept.heads == {budget.id: other}, "what was acknowledged stays in the fence"
    database.dispose()
