"""The ends of chains, as statements that are made once for each engine read them."""

from __future__ import annotations

from starlette.testclient import TestClient

from app.context import Context
from app.fence import repository
from app.tables.states import REGISTER

BUDGET = {"neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1}}


def test_only_the_ends_that_were_asked_for_are_read(client: TestClient, context: Context) -> None:
    """All, some and others, again and again: a statement that is kept holds no ids of an earlier call."""
    one, other = (
        client.post("/v1/budgets", json=BUDGET | {"name": name}, headers={"Idempotency-Key": name}).json()["id"]
        for name in ("one", "other")
    )
    keys = client.post("/v1/keys", json={"name": "a", "scopes": ["owner"]}, headers={"Idempotency-Key": "key"})
    assert keys.status_code == 201, keys.text
    with context.database.read() as session:
        connection = session.connection()
        ends = repository.heads(connection)
        assert {one, other, REGISTER} <= set(ends)
        for ids in ([one], [other], [REGISTER], [other, REGISTER], [], ["bud_nothing"], [one, other, REGISTER]):
            wanted = {each: ends[each] for each in ids if each in ends}
            assert repository.heads(connection, ids) == wanted
        assert repository.heads(connection) == ends
