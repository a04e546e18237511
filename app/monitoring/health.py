"""Health: whether the process answers, and whether it can do its work."""

from __future__ import annotations

import math
import os
import secrets
import threading
import time
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import Field

from app.context import Context, CurrentContext
from app.db import migrate
from app.db.failures import DATABASE_FAILURES
from app.fence.service import refusal
from app.fence.watching import fence_of
from app.kit.fields import Schema
from app.kit.private_files import make_private_folder
from app.ledger.cosigning import standings
from app.ledger.witnesses import witnesses_of
from app.problems import Problem
from app.runs import liveness

router = APIRouter(prefix="/health", tags=["Health"])

State = Literal["ok", "failing"]
Workers = Literal["ok", "starting", "failing", "elsewhere"]
Witnessed = Literal["ok", "failing", "none"]

#: For this long after the server's start, its first workers may still be loading what they need.
WORKERS_START_S = 15.0
#: The seconds for which a result is reused. Anyone may ask without a key, and each check needs a database query, a
#: file, and a reading of all migrations.
BELIEVED_S = 0.2


#: Checks whose failure does not keep the service from answering.
_ADVISORY = ("workers", "witnesses")


class Health(Schema):
    status: Literal["ok"] = "ok"


class Checks(Schema):
    """Checks of the parts. The answer is 503 if a part other than `workers` and `witnesses` is `failing`."""

    database: State = Field(description="`ok`: It answers. `failing`: It does not.")
    db_schema: State = Field(
        alias="schema",
        description="`ok`: It fits this version. `failing`: It belongs to another version.",
    )
    fence: State = Field(
        description="`ok`: The database has everything that was acknowledged. `failing`: It has not, or nobody can "
        "tell; nothing is served."
    )
    data_folder: State = Field(description="`ok`: A file can be written there. `failing`: None can.")
    workers: Workers = Field(
        description="`ok`: A worker process of this server lives. `starting`: None does yet, and the server has just "
        "begun. `failing`: None does, so that runs wait, and everything else is answered. `elsewhere`: The setting "
        "`workers` is 0."
    )
    witnesses: Witnessed = Field(
        description="`ok`: Enough witnesses have cosigned the ledger lately. `failing`: Too few have, and everything "
        "is answered. `none`: The setting `witnesses` names nobody."
    )
    accepting: State = Field(description="`ok`: Requests are welcome. `failing`: The server was told to stop.")


class Readiness(Schema):
    status: Literal["ok"] = "ok"
    checks: Checks


class LastLook:
    """The latest state of the parts. Only one check runs at a time, and at most one in `BELIEVED_S` seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, State | Workers | Witnessed] = {}
        self._taken = -math.inf

    def found(self, context: Context, began: float) -> dict[str, State | Workers | Witnessed]:
        """Return the state of each part.

        Args:
            context: The process's context.
            began: The start of the server, by the process's own clock.
        """
        with self._lock:
            if time.monotonic() - self._taken >= BELIEVED_S:
                database, schema = _database(context)
                self._found = {
                    "database": database,
                    "schema": schema,
                    "fence": _fence(context, schema),
                    "data_folder": _data_folder(context),
                    "workers": _workers(context, began),
                    "witnesses": _witnesses(context, schema),
                }
                self._taken = time.monotonic()
            return self._found


@router.get("/live", summary="Check whether the process answers")
async def health_live() -> Health:
    """Says that the process answers. The database, the disk and workers are not checked: a restart would mend none of
    them."""
    return Health()


@router.get(
    "/ready",
    summary="Check whether requests should be sent here",
    response_model=Readiness,
    responses={503: {"description": "A part is not as it should be. The member `checks` names it."}},
)
def health_ready(context: CurrentContext, request: Request) -> Readiness:
    """Returns the states of the database, the schema, the data folder and the workers."""
    state: Any = request.app.state
    found = state.last_look.found(context, getattr(state, "began", -math.inf))
    checks = {**found, "accepting": "failing" if getattr(state, "is_stopping", False) else "ok"}
    failing = [name for name, state in checks.items() if state == "failing" and name not in _ADVISORY]
    if failing:
        loss = fence_of(context).loss
        if loss is not None and not {"database", "schema"} & set(failing):
            behind = refusal(loss)
            behind.members["checks"] = checks
            raise behind
        code = "database_unavailable" if {"database", "schema"} & set(failing) else "not_ready"
        detail = f"These checks failed: {', '.join(failing)}."
        raise Problem(503, code, detail, members={"checks": checks}, headers={"Retry-After": "5"})
    return Readiness(checks=Checks.model_validate(checks))


def _database(context: Context) -> tuple[State, State]:
    try:
        is_at_head = migrate.is_at_head(context.database)
    except DATABASE_FAILURES:
        return "failing", "failing"
    return "ok", "ok" if is_at_head else "failing"


def _fence(context: Context, schema: State) -> State:
    try:
        return "ok" if schema == "ok" and fence_of(context).standing() is None else "failing"
    except DATABASE_FAILURES:
        return "failing"


def _witnesses(context: Context, schema: State) -> Witnessed:
    witnesses = witnesses_of(context.settings)
    if not witnesses.members:
        return "none"
    if schema != "ok":
        return "failing"
    try:
        with context.database.read() as session:
            fresh = sum(each.is_fresh for each in standings(session, context))
    except DATABASE_FAILURES:
        return "failing"
    return "ok" if fresh >= witnesses.quorum else "failing"


def _data_folder(context: Context) -> State:
    folder = context.settings.data_dir
    probe = folder / f"probe-{secrets.token_hex(8)}"
    try:
        make_private_folder(folder)
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(descriptor, b"ready")
        finally:
            os.close(descriptor)
            probe.unlink()
    except OSError:
        return "failing"
    return "ok"


def _workers(context: Context, began: float) -> Workers:
    if not context.settings.workers:
        return "elsewhere"
    if liveness.living_workers(context.settings.data_dir):
        return "ok"
    return "starting" if time.monotonic() - began < WORKERS_START_S else "failing"
