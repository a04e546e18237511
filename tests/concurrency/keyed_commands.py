"""Every kind of command that carries an idempotency key: what is sent, and which rows it writes when it is carried out.

Tests of races and of kills send all of them, so that no path to the database has rules of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select, table

from app.auth.principal import Scope
from app.auth.service import create_key
from app.context import Context
from app.entries import registering
from app.tables.idempotency import IdempotencyRecord
from tests.app.run_sweeps.conftest import Sweeps
from tests.app.runs.conftest import MORE_ROWS, REQUEST, ROWS

#: Tables in which a command leaves rows. The rest of the ledger's tables follow from the entries.
TABLES = (
    "budgets",
    "reservations",
    "limit_requests",
    "entries",
    "runs",
    "run_sweeps",
    "run_sweep_cells",
    "api_keys",
    "datasets",
    "dataset_versions",
)
KEY = "the key"


def zcdp(rho: float) -> list[dict[str, Any]]:
    return [{"mechanism": {"kind": "zcdp", "rho": rho}}]


def rows(context: Context) -> dict[str, int]:
    """How many rows each table has, and how many commands are remembered under `KEY`.

    The register has begun, so that a command adds the entries of what it does and no others.
    """
    with context.database.write() as session:
        registering.begin(session, context.clock())
    with context.database.read() as session:
        counts = {name: session.scalar(select(func.count()).select_from(table(name))) or 0 for name in TABLES}
        remembered = select(func.count()).select_from(IdempotencyRecord).where(IdempotencyRecord.key == KEY)
        return counts | {"remembered": session.scalar(remembered) or 0}


def added(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """The tables that have other numbers of rows than before, with the differences."""
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


@dataclass(frozen=True)
class Sent:
    """One request.

    Attributes:
        path: Where it goes.
        body: Its JSON; of an upload, the metadata.
        file: The file of an upload.
    """

    path: str
    body: Any = None
    file: str | None = None

    @property
    def content(self) -> dict[str, Any]:
        """As a client takes it."""
        if self.file is None:
            return {"json": self.body}
        return {
            "files": {"file": ("d.csv", self.file.encode(), "text/csv")},
            "data": {"metadata": json.dumps(self.body)},
        }


@dataclass(frozen=True)
class Command:
    """A kind of command.

    Attributes:
        prepare: Makes what the command is about, and gives the request.
        status: Of its answer.
        writes: The rows that it adds, besides the one that remembers it.
        needs_a_key: It ends the access of a server without keys, so that it is sent with an API key.
    """

    prepare: Callable[[Sweeps], Sent]
    status: int
    writes: Mapping[str, int] = field(default_factory=dict)
    needs_a_key: bool = False

    @property
    def effect(self) -> dict[str, int]:
        """All that is different when it was carried out once."""
        return {**self.writes, "remembered": 1}


def _budget(service: Sweeps, rho: str = "1") -> str:
    return str(service.budget(filter={"kind": "zcdp", "rho": rho})["id"])


def _made(answer: Any) -> Any:
    assert answer.status_code < 300, answer.text
    return answer.json()


def _held(service: Sweeps, rho: float = 0.25) -> tuple[str, str]:
    """A budget, and a reservation in it."""
    budget = _budget(service)
    path = f"/v1/budgets/{budget}/reservations"
    return budget, str(_made(service.post(path, {"events": zcdp(rho), "purpose": "p"}))["id"])


def _create_budget(service: Sweeps) -> Sent:
    body = {"name": "b", "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": "1"}}
    return Sent("/v1/budgets", body)


def _reserve(rho: float) -> Callable[[Sweeps], Sent]:
    def prepare(service: Sweeps) -> Sent:
        return Sent(f"/v1/budgets/{_budget(service)}/reservations", {"events": zcdp(rho), "purpose": "p"})

    return prepare


def _resolve(command: str, body: Any = None) -> Callable[[Sweeps], Sent]:
    return lambda service: Sent(f"/v1/reservations/{_held(service)[1]}/{command}", body)


def _commit_part(service: Sweeps) -> Sent:
    events = [{**zcdp(0.1)[0], "count": 3}]
    path = f"/v1/budgets/{_budget(service)}/reservations"
    held = _made(service.post(path, {"events": events, "purpose": "p"}))
    return Sent(f"/v1/reservations/{held['id']}/commit", {"events": [{**events[0], "count": 2}]})


def _change_limit(service: Sweeps) -> Sent:
    return Sent(f"/v1/budgets/{_budget(service)}/limit", {"filter": {"kind": "zcdp", "rho": "2"}, "reason": "r"})


def _ask_for_limit(service: Sweeps) -> Sent:
    body = {"filter": {"kind": "zcdp", "rho": "2"}, "reason": "r"}
    return Sent(f"/v1/budgets/{_budget(service)}/limit-requests", body)


def _decide_on_limit(command: str, body: Any = None) -> Callable[[Sweeps], Sent]:
    def prepare(service: Sweeps) -> Sent:
        asked = _ask_for_limit(service)
        return Sent(f"/v1/limit-requests/{_made(service.post(asked.path, asked.body))['id']}/{command}", body)

    return prepare


def _approve(service: Sweeps) -> Sent:
    """A request of another key: nobody approves their own."""
    asker = create_key(service.context, "asker", [Scope.ANALYST])
    assert asker is not None
    asked = _ask_for_limit(service)
    headers = {"Authorization": f"Bearer {asker.token}", "Idempotency-Key": "asked"}
    found = _made(service.client.post(asked.path, json=asked.body, headers=headers))
    return Sent(f"/v1/limit-requests/{found['id']}/approve", {"reason": "r"})


def _correct(service: Sweeps) -> Sent:
    budget, held = _held(service)
    _made(service.post(f"/v1/reservations/{held}/commit"))
    body = {"reservation_id": held, "events": zcdp(0.5), "reason": "r"}
    return Sent(f"/v1/budgets/{budget}/corrections", body)


def _charge(service: Sweeps) -> Sent:
    return Sent(f"/v1/budgets/{_budget(service)}/corrections", {"events": zcdp(0.5), "reason": "r"})


def _run(service: Sweeps, epsilon: float) -> Sent:
    budget = service.budget(filter={"kind": "renyi_dp", "epsilon": epsilon, "delta": 1e-5})
    return Sent("/v1/runs", REQUEST | {"dataset_id": "ds_breast_cancer", "budget_id": budget["id"]})


def _cancel_run(service: Sweeps) -> Sent:
    return Sent(f"/v1/runs/{service.charged()[1]['id']}/cancel")


def _sweep(service: Sweeps, epsilon: float) -> Sent:
    budget = service.budget(filter={"kind": "renyi_dp", "epsilon": epsilon, "delta": 1e-5})
    return Sent("/v1/run-sweeps", service.request(budget_id=budget["id"]))


def _cancel_sweep(service: Sweeps) -> Sent:
    return Sent(f"/v1/run-sweeps/{service.paid()['id']}/cancel")


def _dataset(service: Sweeps) -> Sent:
    return Sent("/v1/datasets", {"kind": "synthetic", "name": "s", "features": 2, "rows": 5, "seed": 1})


def _version(service: Sweeps) -> Sent:
    dataset = service.dataset(ROWS, budget_id=_budget(service))
    body = {"change": "deleted", "reason": "r", "erase_earlier": True}
    return Sent(f"/v1/datasets/{dataset['id']}/versions", body, MORE_ROWS)


def _delete_persons(service: Sweeps) -> Sent:
    header, *lines = ROWS.splitlines()
    file = "\n".join([f"{header},person", *(f"{line},p{number}" for number, line in enumerate(lines))]) + "\n"
    dataset = service.dataset(file, budget_id=_budget(service), person_column="person")
    return Sent(f"/v1/datasets/{dataset['id']}/versions", {"persons": ["p1"], "reason": "r"})


_ENTRY = {"entries": 1}
_RESERVATION = {"reservations": 1, "entries": 1}

COMMANDS: dict[str, Command] = {
    "create_budget": Command(_create_budget, 201, {"budgets": 1, "entries": 1}),
    "reserve": Command(_reserve(0.5), 201, _RESERVATION),
    "reserve too much": Command(_reserve(2.0), 409),
    "start": Command(_resolve("start"), 200, _ENTRY),
    "extend": Command(_resolve("extend", {"expires_in": 7200}), 200, _ENTRY),
    "commit": Command(_resolve("commit"), 200, _ENTRY),
    "commit a part": Command(_commit_part, 200, _ENTRY),
    "void": Command(_resolve("void"), 200, _ENTRY),
    "change_limit": Command(_change_limit, 200, _ENTRY),
    "create_limit_request": Command(_ask_for_limit, 201, {"limit_requests": 1, **_ENTRY}),
    "approve_limit_request": Command(_approve, 200, _ENTRY, needs_a_key=True),
    "refuse_limit_request": Command(_decide_on_limit("refuse", {"reason": "r"}), 200, _ENTRY),
    "withdraw_limit_request": Command(_decide_on_limit("withdraw"), 200, _ENTRY),
    "correct": Command(_correct, 201, _ENTRY),
    "charge": Command(_charge, 201, _RESERVATION),
    "create_run": Command(lambda service: _run(service, 1.6), 202, {"reservations": 1, "runs": 1, "entries": 2}),
    "create_run too dear": Command(lambda service: _run(service, 0.1), 409),
    "cancel_run": Command(_cancel_run, 200, {"entries": 2}),
    "create_run_sweep": Command(
        lambda service: _sweep(service, 20.0),
        202,
        {"reservations": 1, "runs": 3, "run_sweeps": 1, "run_sweep_cells": 3, "entries": 5},
    ),
    "create_run_sweep too dear": Command(lambda service: _sweep(service, 0.1), 409),
    "cancel_run_sweep": Command(_cancel_sweep, 200, {"entries": 5}),
    "upload_version": Command(_version, 201, {"dataset_versions": 1, **_ENTRY}),
    "delete_persons": Command(_delete_persons, 201, {"dataset_versions": 1, **_ENTRY}),
    "upload_dataset": Command(_dataset, 201, {"datasets": 1, **_ENTRY}),
    "create_key": Command(
        lambda _: Sent("/v1/keys", {"name": "k", "scopes": ["analyst"]}),
        201,
        {"api_keys": 1, **_ENTRY},
        needs_a_key=True,
    ),
}
