"""A server that runs while another version migrates its database: it writes nothing more, and says so."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from app.context import Context
from app.db.migrate import head_revision
from app.fence import service
from app.fence.watching import fence_of
from app.runs.loss import NothingToAcknowledge, acknowledge
from tests.app.budgets.conftest import Api, zcdp
from tests.app.fence.conftest import Place, closing_client
from tests.app.problem_assertions import assert_problem


def migrated_to(context: Context, revision: str) -> None:
    """As another process does it."""
    with context.database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})


def entries_in(context: Context) -> int:
    with context.database.engine.connect() as connection:
        return connection.scalar(text("SELECT count(*) FROM entries")) or 0


def test_nothing_is_written_from_the_moment_of_a_migration_on(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by a request nor by a worker; what was acknowledged is not lost, and nothing can be acknowledged."""
    monkeypatch.setattr(service, "REFUSAL_BELIEVED_S", 0.0)
    with place.context() as context, closing_client(context) as client:
        api = Api(client)
        budget = api.budget()["id"]
        api.hold(budget, [zcdp(0.1)])
        before = entries_in(context)
        migrated_to(context, "9999")
        # The comparison of seconds ago is believed still: the transaction itself is refused.
        answers = [api.reserve(budget, [zcdp(0.1)]), api.get(f"/v1/budgets/{budget}"), api.get("/dashboard")]
        for answer in answers:
            problem = assert_problem(answer, 503, "database_unavailable")
            assert "not the one that this version of the service was written for" in problem["detail"]
        assert entries_in(context) == before
        assert not fence_of(context).look(), "no worker takes a run"
        assert "epsilond_fence_behind 0.0" in api.get("/metrics").text
        with pytest.raises(NothingToAcknowledge, match="schema"):
            acknowledge(context, "it looks lost")
        migrated_to(context, head_revision())
        assert api.get(f"/v1/budgets/{budget}").status_code == 200
        api.hold(budget, [zcdp(0.1)])
