"""Two owners on one server, each with something of every kind, and keys that reach a part of it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from starlette.testclient import TestClient

from accounting.certificates import certify_upper
from app.auth import service
from app.auth.principal import Scope
from app.context import Context
from app.kit.ids import new_id
from app.kit.process_pool import JobFailed, ProcessPool
from app.tables.ledger import Entry
from app.tables.runs import Audit, Run
from tests.app.runs.conftest import COLUMNS, REQUEST, ROWS

FILTER = {"kind": "renyi_dp", "epsilon": 50, "delta": 1e-5}
EVENT = {"mechanism": {"kind": "gaussian", "noise_multiplier": 200.0}, "count": 1}
EVERYTHING_BUT_ADMIN = [scope for scope in Scope if scope is not Scope.ADMIN]

Ids = dict[str, str]


class NoAudits(ProcessPool):
    """In place of the processes: audits take seconds, and whoever gets here was let through. Certificates are made."""

    def __init__(self) -> None:
        super().__init__(size=1, seconds=1.0, memory_bytes=2**30)

    def run(self, function: Any, *arguments: Any, **__: Any) -> Any:
        if function is certify_upper:
            return certify_upper(*arguments)
        raise JobFailed("no audits here")


@dataclass(frozen=True)
class Caller:
    """A client with a key."""

    client: TestClient
    token: str


def send(caller: Caller, method: str, path: str, **request: Any) -> Any:
    headers = {"Authorization": f"Bearer {caller.token}", "Idempotency-Key": secrets.token_hex(8)}
    return caller.client.request(method, path, headers=headers, **request)


def made(caller: Caller, path: str, **request: Any) -> Any:
    answer = send(caller, "POST", path, **request)
    assert answer.status_code in (201, 202), answer.text
    return answer.json()


def budget_request(parent_id: str | None = None) -> dict[str, Any]:
    return {"name": "b", "neighboring_relation": "add_or_remove_one", "filter": FILTER, "parent_id": parent_id}


def upload(rows: str, **declared: Any) -> dict[str, Any]:
    metadata = {"name": "d", "declared_size": 1000, "columns": COLUMNS, "label": "y", **declared}
    return {"files": {"file": ("d.csv", rows.encode(), "text/csv")}, "data": {"metadata": json.dumps(metadata)}}


@dataclass
class Side:
    """What one key reaches.

    Attributes:
        caller: With the key.
        key_id: Of the key.
        ids: By the name of a parameter, something of this side.
        hidden: By the name of a parameter, what exists and is not of this side.
    """

    caller: Caller
    key_id: str
    ids: Ids
    hidden: dict[str, list[str]] = field(default_factory=dict)

    def foreign(self) -> set[str]:
        """All ids that must not show."""
        return {each for ids in self.hidden.values() for each in ids}

    def with_fresh_reservation(self) -> Ids:
        """The ids, with a reservation that nobody has resolved."""
        return {**self.ids, "reservation_id": reserve(self.caller, self.ids["budget_id"])}


def reserve(caller: Caller, budget_id: str) -> str:
    body = {"events": [EVENT], "purpose": "p", "expires_in": 3600, "certificate": True}
    return str(made(caller, f"/v1/budgets/{budget_id}/reservations", json=body)["id"])


def ask_for_limit(caller: Caller, budget_id: str) -> str:
    body = {"filter": FILTER, "reason": "r"}
    return str(made(caller, f"/v1/budgets/{budget_id}/limit-requests", json=body)["id"])


WEBHOOK = {"url": "https://hooks.example/", "events": ["limit_requested"]}


def webhook(caller: Caller, budget_id: str) -> str:
    """A new one; of older ones some are deleted, since a budget has ten at most."""
    path = f"/v1/budgets/{budget_id}/webhooks"
    for old in send(caller, "GET", path).json()["items"][5:]:
        send(caller, "DELETE", f"/v1/webhooks/{old['id']}")
    return str(made(caller, path, json=WEBHOOK)["id"])


class World:
    """A tree of a root, a child and its grandchild, with a key of the child alone; and a second root with its key."""

    def __init__(self, context: Context, client: TestClient) -> None:
        self.context, self._client = context, client
        self.admin, _ = self.caller([Scope.ADMIN])
        self.public = made(self.admin, "/v1/datasets", **upload(ROWS, public=True, declared_size=4))["id"]
        self.root, self.other_root = self._budget(), self._budget()
        self.child, self.sibling = self._budget(self.root), self._budget(self.root)
        self.grandchild = self._budget(self.child)
        self.part = self._side(self.root, self.child, ROWS + "3,0.1,red,no\n")
        self.whole = self._side(self.other_root, self.other_root, ROWS + "4,0.1,red,no\n")
        beside = self._things(self.admin, self.root, self.sibling, ROWS + "3,0.1,red,no\n")
        beside["dataset_id"] = self.whole.ids["dataset_id"]
        self.part.hidden = _together(self.whole.ids, beside, {"budget_id": self.root, **self._free_things(self.whole)})
        self.whole.hidden = _together(
            self.part.ids,
            {"budget_id": self.root, **self._free_things(self.part)},
            {"budget_id": self.grandchild},
        )
        for side in (self.part, self.whole):
            side.hidden["parent_id"] = side.hidden["budgets"] = side.hidden["budget_id"]
            side.hidden["test_dataset_id"] = side.hidden["dataset_id"]

    def sides(self) -> Iterator[Side]:
        yield self.part
        yield self.whole

    def _side(self, root: str, budget: str, rows: str) -> Side:
        caller, key_id = self.caller(EVERYTHING_BUT_ADMIN, budget)
        return Side(caller, key_id, {**self._things(caller, root, budget, rows), "key_id": key_id})

    def caller(self, scopes: list[Scope], *budgets: str) -> tuple[Caller, str]:
        """A caller with a new key, and the key's id."""
        created = service.create_key(self.context, "test", scopes, budgets=budgets or None)
        assert created is not None
        return Caller(self._client, created.token), created.id

    def _budget(self, parent_id: str | None = None) -> str:
        return str(made(self.admin, "/v1/budgets", json=budget_request(parent_id))["id"])

    def _things(self, caller: Caller, root: str, budget: str, rows: str) -> Ids:
        dataset = made(self.admin, "/v1/datasets", **upload(rows, budget_id=root))["id"]
        paid = {**REQUEST, "dataset_id": dataset, "budget_id": budget}
        run = made(caller, "/v1/runs", json=paid)["id"]
        swept = {**paid, "hyperparameters": {"step_size": [0.5, 1.0]}, "select": "all", "iterations": 2}
        sweep = made(caller, "/v1/run-sweeps", json=swept)["id"]
        for path in (f"/v1/runs/{run}", f"/v1/run-sweeps/{sweep}"):
            assert send(caller, "POST", f"{path}/cancel").status_code == 200
        return {
            "budget_id": budget,
            "parent_id": budget,
            "budgets": budget,
            "reservation_id": reserve(caller, budget),
            "webhook_id": webhook(caller, budget),
            "limit_request_id": ask_for_limit(caller, budget),
            "dataset_id": dataset,
            "test_dataset_id": self.public,
            "run_id": run,
            "sweep_id": sweep,
            "audit_id": self._audit(run),
            "entry_id": self._entry(budget),
        }

    def _free_things(self, side: Side) -> Ids:
        """A run on public data, for which no budget pays, and an audit of no run: they belong to their key."""
        body = {**REQUEST, "dataset_id": "ds_breast_cancer"}
        run = str(made(side.caller, "/v1/runs", json=body)["id"])
        return {"run_id": run, "audit_id": self._audit(run, side.key_id)}

    def _audit(self, run_id: str, key_id: str | None = None) -> str:
        """An audit of the run, or one of its plan alone that a key has made; without the seconds that one takes."""
        audit_id = new_id("aud")
        finding = {"delta": 1e-5, "claim": INTERVAL, "epsilon_lower": 0.0, "confidence": 0.95, "score": "s", "rule": {}}
        finding |= dict.fromkeys(["guesses", "correct", "members", "hits", "alarms", "rejections", "misses"], 0)
        found = {"verdict": "consistent", "confidence": 0.95, "finding": finding, "strongest": None}
        found |= {"method": "guesses", "design": "orthogonal", "largest_provable_epsilon": 1.0, "notes": []}
        found |= dict.fromkeys(["trials", "canaries_per_run", "runs"], 10)
        with self.context.database.write() as session:
            run = session.get_one(Run, run_id)
            session.add(
                Audit(
                    id=audit_id,
                    principal_id=key_id or "loopback",
                    algorithm=run.algorithm,
                    run_id=None if key_id else run_id,
                    plan=run.plan,
                    plan_hash=run.plan_hash,
                    request={},
                    claim=INTERVAL,
                    finding=found,
                    created_at=self.context.clock(),
                )
            )
        return audit_id

    def _entry(self, budget_id: str) -> str:
        with self.context.database.read() as session:
            return session.scalars(select(Entry.id).where(Entry.budget_id == budget_id).order_by(Entry.sequence)).all()[
                -1
            ]


INTERVAL = {"lower": 1.0, "estimate": 1.0, "upper": 1.0}


def _together(*parts: Ids) -> dict[str, list[str]]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: [part[name] for part in parts if name in part] for name in names}
