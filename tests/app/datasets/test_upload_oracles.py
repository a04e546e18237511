"""Uploads by somebody who knows all rows of another tenant's data set but one, and tries what the last one may be.

Whatever a key may not know already, the right guess is answered as a wrong one: as private rows, and as public ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from httpx2 import Response
from sqlalchemy import event, text

from app.auth.principal import Scope
from app.auth.service import create_key
from app.context import Context
from app.tables.datasets import Dataset
from tests.app.conftest import ConnectAs
from tests.app.datasets.declarations import CSV, metadata, private_metadata
from tests.app.datasets.uploads import create_budget, upload
from tests.app.problem_assertions import assert_problem
from tests.databases import on_one_engine

SECRET = CSV + b"33,north,yes\n"
WRONG = CSV + b"34,north,yes\n"

LIST = re.compile(r"IN \([^()]*(\([^()]*\)[^()]*)*\)")

EVERYTHING_BUT_ADMIN = [scope for scope in Scope if scope is not Scope.ADMIN]


@dataclass
class Tenants:
    """Two root budgets on one server: the victim's, which the secret rows are bound to, and another one.

    The server is without keys until the first one is made.
    """

    context: Context
    connect: ConnectAs
    victim: str
    other: str
    dataset_id: str

    def client(self, *scopes: Scope, budgets: list[str] | None = None) -> Any:
        key = create_key(self.context, "somebody", scopes, budgets=budgets)
        assert key is not None
        return self.connect(headers={"Authorization": f"Bearer {key.token}"})


@pytest.fixture
def tenants(connect: ConnectAs, context: Context) -> Tenants:
    victim, other = create_budget(context), create_budget(context)
    answer = upload(connect(), private_metadata(victim), SECRET)
    assert answer.status_code == 201
    return Tenants(context, connect, victim, other, answer.json()["id"])


def child_of(tenants: Tenants) -> str:
    return create_budget(tenants.context, parent_id=tenants.victim)


#: Keys that must learn nothing, by a name: their uploads reach the other root alone.
OUTSIDERS: dict[str, Callable[[Tenants], Any]] = {
    "owner of the other root": lambda its: its.client(Scope.OWNER, budgets=[its.other]),
    "everything but admin, on the other root": lambda its: its.client(*EVERYTHING_BUT_ADMIN, budgets=[its.other]),
    "owner of the other root and of a part of the victim's": lambda its: its.client(
        Scope.OWNER, budgets=[its.other, child_of(its)]
    ),
}

#: Keys that reach the victim's root as owners: it is no secret from them what is bound to it.
INSIDERS: dict[str, Callable[[Tenants], Any]] = {
    "owner of both roots": lambda its: its.client(Scope.OWNER, budgets=[its.victim, its.other]),
    "owner of everything": lambda its: its.client(Scope.OWNER),
    "admin": lambda its: its.client(Scope.ADMIN),
    "keyless": lambda its: its.connect(),
}

#: Keys that upload nothing.
READERS: dict[str, Callable[[Tenants], Any]] = {
    "analyst of the other root": lambda its: its.client(Scope.ANALYST, budgets=[its.other]),
    "analyst of everything": lambda its: its.client(Scope.ANALYST),
    "auditor of the other root": lambda its: its.client(Scope.AUDITOR, budgets=[its.other]),
    "auditor of everything": lambda its: its.client(Scope.AUDITOR),
}

#: Keys that may declare rows public.
ADMINS = ("admin", "keyless")


def comparable(answer: Response) -> tuple[int, dict[str, Any], set[str]]:
    """An answer without what is drawn or read from the clock."""
    body = {
        name: value
        for name, value in answer.json().items()
        if name not in ("id", "created_at", "request_id", "decided_at")
    }
    return answer.status_code, body, set(answer.headers)


@contextmanager
def statements(context: Context) -> Any:
    """The text of each statement that is executed meanwhile; of one that writes, how many rows it wrote, too.

    But for those that look up the key, or the newest secret, and what begins a transaction: whether these are looked up
    again depends on the clock.
    """
    told: list[str] = []

    def listen(_connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        by_the_clock = "FROM api_keys" in statement or "FROM secrets" in statement
        if not by_the_clock and not statement.startswith("SET TRANSACTION"):
            told.append(statement if statement.startswith("SELECT") else f"{statement} [{cursor.rowcount}]")

    event.listen(context.database.engine, "after_cursor_execute", listen)
    try:
        yield told
    finally:
        event.remove(context.database.engine, "after_cursor_execute", listen)


@on_one_engine
@pytest.mark.parametrize("who", OUTSIDERS)
def test_a_right_guess_at_rows_out_of_reach_is_answered_as_a_wrong_one(tenants: Tenants, who: str) -> None:
    client = OUTSIDERS[who](tenants)
    # The first request of a key looks it up.
    upload(client, private_metadata(tenants.other), CSV)
    with statements(tenants.context) as for_wrong:
        wrong = upload(client, private_metadata(tenants.other), WRONG)
    with statements(tenants.context) as for_right:
        right = upload(client, private_metadata(tenants.other), SECRET)
    assert right.status_code == 201, right.text
    assert right.json()["id"] != tenants.dataset_id
    assert right.json()["budget_id"] == tenants.other
    assert comparable(right) == comparable(wrong)
    # The same work in the database, statement by statement: the time tells nothing either. But for the list of all
    # files, in which there is one more each time.
    assert [LIST.sub("IN ()", each) for each in for_right] == [LIST.sub("IN ()", each) for each in for_wrong]
    assert len([each for each in for_right if "dataset" in each]) > 4
    # What was uploaded is a data set like any other, and the victim's is as it was.
    assert client.get(f"/v1/datasets/{right.json()['id']}").status_code == 200
    assert client.get(f"/v1/datasets/{tenants.dataset_id}").status_code == (404 if "part" not in who else 200)
    victims = tenants.client(Scope.OWNER, budgets=[tenants.victim])
    assert victims.get(f"/v1/datasets/{tenants.dataset_id}").json()["budget_id"] == tenants.victim


@on_one_engine
@pytest.mark.parametrize("who", OUTSIDERS)
def test_a_right_guess_as_a_version_is_answered_as_a_wrong_one(tenants: Tenants, who: str) -> None:
    client = OUTSIDERS[who](tenants)
    ids = [upload(client, private_metadata(tenants.other), CSV).json()["id"] for _ in range(2)]
    told, answers = [], []
    for dataset_id, file in zip(ids, (WRONG, SECRET), strict=True):
        with statements(tenants.context) as each:
            answer = client.post(
                f"/v1/datasets/{dataset_id}/versions",
                files={"file": ("rows.csv", file, "text/csv")},
                data={"metadata": json.dumps({"change": "appended", "reason": "r"})},
                headers={"Idempotency-Key": uuid4().hex},
            )
        assert answer.status_code == 201, answer.text
        told.append([LIST.sub("IN ()", statement) for statement in each])
        answers.append((answer.status_code, answer.json()["owner_report"], answer.json()["version"]))
    assert told[0] == told[1]
    assert answers[0] == answers[1]
    # The version makes its content one of two roots.
    [shared] = tenants.client(Scope.AUDITOR).get("/v1/datasets/shared-contents").json()["items"]
    assert shared["dataset_ids"] == sorted([ids[1], tenants.dataset_id])
    assert shared["root_budget_ids"] == sorted([tenants.victim, tenants.other])


@on_one_engine
@pytest.mark.parametrize("who", [*OUTSIDERS, "owner of both roots", "owner of everything"])
def test_only_an_administrator_declares_rows_public(tenants: Tenants, who: str) -> None:
    client = (OUTSIDERS | INSIDERS)[who](tenants)
    answers = []
    for file in (WRONG, SECRET, b"not a table"):
        with statements(tenants.context) as told:
            answer = upload(client, metadata(), file)
        assert_problem(answer, 403, "public_needs_admin")
        assert not any("dataset" in statement for statement in told)
        answers.append(comparable(answer))
    assert answers[0] == answers[1] == answers[2]


@on_one_engine
@pytest.mark.parametrize("who", INSIDERS)
def test_a_conflict_is_told_to_who_owns_the_other_root(tenants: Tenants, who: str) -> None:
    client = INSIDERS[who](tenants)
    assert upload(client, private_metadata(tenants.other), WRONG).status_code == 201
    refused = upload(client, private_metadata(tenants.other), SECRET)
    assert_problem(refused, 409, "budget_not_bound")
    if who in ADMINS:
        assert_problem(upload(client, metadata(), SECRET), 409, "content_is_private")
    # Under the root that they are bound to, they are welcome.
    assert upload(client, private_metadata(tenants.victim), SECRET).status_code == 201


@on_one_engine
@pytest.mark.parametrize("who", READERS)
@pytest.mark.parametrize("declared", ["public", "private"])
@pytest.mark.one_in(4)
def test_who_uploads_nothing_learns_nothing(tenants: Tenants, who: str, declared: str) -> None:
    client = READERS[who](tenants)
    document = metadata() if declared == "public" else private_metadata(tenants.other)
    answers = [upload(client, document, file) for file in (WRONG, SECRET)]
    for answer in answers:
        assert_problem(answer, 403, "forbidden")
    assert comparable(answers[0]) == comparable(answers[1])


@on_one_engine
def test_rows_under_two_roots_stay_under_both(tenants: Tenants) -> None:
    """Nobody who has once registered rows is refused later because somebody else has registered them, too."""
    mine = tenants.client(Scope.OWNER, budgets=[tenants.other])
    assert upload(mine, private_metadata(tenants.other), SECRET).status_code == 201
    everything = tenants.client(Scope.OWNER)
    third = create_budget(tenants.context)
    for client, budget_id, status in (
        (mine, tenants.other, 201),
        (everything, tenants.other, 201),
        (everything, tenants.victim, 201),
        (everything, third, 409),
        (tenants.client(Scope.OWNER, budgets=[third]), third, 201),
        # Of the roots that the rows stand under, this key owns one.
        (tenants.client(Scope.OWNER, budgets=[tenants.other, create_budget(tenants.context)]), tenants.victim, 422),
    ):
        assert upload(client, private_metadata(budget_id), SECRET).status_code == status


@on_one_engine
def test_data_sets_without_rows_are_no_conflict(tenants: Tenants) -> None:
    """Nobody's rows are shared: empty files are alike because they are empty."""
    header = CSV[: CSV.index(b"\n") + 1]
    client = tenants.connect()
    for budget_id in (tenants.victim, tenants.other, tenants.victim):
        assert upload(client, private_metadata(budget_id), header).status_code == 201
    auditor = tenants.client(Scope.AUDITOR)
    assert auditor.get("/v1/datasets/shared-contents").json()["items"] == []


@on_one_engine
def test_who_shares_rows_is_for_unrestricted_auditors_alone(tenants: Tenants) -> None:
    mine = tenants.client(Scope.OWNER, budgets=[tenants.other])
    dataset_id = upload(mine, private_metadata(tenants.other), SECRET).json()["id"]
    expected = {
        "root_budget_ids": sorted([tenants.victim, tenants.other]),
        "dataset_ids": sorted([tenants.dataset_id, dataset_id]),
    }
    path = "/v1/datasets/shared-contents"
    for reader in (tenants.client(Scope.AUDITOR), tenants.client(Scope.ADMIN)):
        assert reader.get(path).json() == {"items": [expected], "next_cursor": None}
    for scopes, budgets, code in (
        ([Scope.AUDITOR], [tenants.other], "beyond_your_budgets"),
        ([Scope.AUDITOR], [tenants.victim, tenants.other], "beyond_your_budgets"),
        ([Scope.OWNER], None, "forbidden"),
        ([Scope.ANALYST], None, "forbidden"),
    ):
        assert_problem(tenants.client(*scopes, budgets=budgets).get(path), 403, code)
    # The bond outlives the data set.
    assert mine.delete(f"/v1/datasets/{dataset_id}").status_code == 204
    assert tenants.client(Scope.AUDITOR).get(path).json()["items"] == [expected]


@on_one_engine
def test_contents_that_are_shared_are_listed_page_by_page(tenants: Tenants) -> None:
    mine = tenants.client(Scope.OWNER, budgets=[tenants.other])
    victims = tenants.client(Scope.OWNER, budgets=[tenants.victim])
    for number in range(3):
        file = CSV + f"{number},north,no\n".encode()
        assert upload(victims, private_metadata(tenants.victim), file).status_code == 201
        assert upload(mine, private_metadata(tenants.other), file).status_code == 201
    auditor = tenants.client(Scope.AUDITOR)
    whole = auditor.get("/v1/datasets/shared-contents").json()["items"]
    assert len(whole) == 3
    items, cursor = [], None
    for _ in range(3):
        page = auditor.get(
            "/v1/datasets/shared-contents", params={"limit": 1, **({"cursor": cursor} if cursor else {})}
        )
        items += page.json()["items"]
        cursor = page.json()["next_cursor"]
    assert (items, cursor) == (whole, None)


@on_one_engine
def test_no_content_hash_is_served_to_anybody(tenants: Tenants) -> None:
    """Not in data sets, budgets, entries, proofs or exports: two of them would say whose rows are the same."""
    mine = tenants.client(Scope.OWNER, budgets=[tenants.other])
    assert upload(mine, private_metadata(tenants.other), SECRET, key=uuid4().hex).status_code == 201
    with tenants.context.database.read() as session:
        [stored] = session.execute(text("SELECT content_hash FROM dataset_contents")).scalars().all()
    assert stored == session.get_one(Dataset, tenants.dataset_id).content_hash
    admin = tenants.client(Scope.ADMIN)
    seen = [admin.get("/v1/datasets").text, admin.get("/v1/datasets/shared-contents").text]
    for budget_id in (tenants.victim, tenants.other):
        entries = admin.get(f"/v1/budgets/{budget_id}/entries")
        seen += [admin.get(f"/v1/budgets/{budget_id}").text, entries.text]
        seen += [admin.get(f"/v1/ledger/entries/{entry['id']}/proof").text for entry in entries.json()["items"]]
        seen.append(admin.get("/v1/ledger/export", params={"budget_id": budget_id}).text)
    assert len(seen) >= 10
    assert all(stored not in answer and json.dumps(stored) not in answer for answer in seen)
