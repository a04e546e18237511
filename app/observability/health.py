"""Health: does the process answer, and can it do its work."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter

from app.db import migrate
from app.db.failures import DATABASE_FAILURES
from app.kit.context import CurrentContext
from app.kit.fields import Schema
from app.problems import database_unavailable

router = APIRouter(prefix="/health", tags=["Health"])


class Health(Schema):
    status: Literal["ok"] = "ok"


@router.get("/live")
def health_live() -> Health:
    """The process answers. Says nothing of the database."""
    return Health()


@router.get(
    "/ready", responses={503: {"description": "The database does not answer, or its schema is not the newest."}}
)
def health_ready(context: CurrentContext) -> Health:
    """The database answers and its schema is the one that this version was written for."""
    try:
        ready = migrate.is_at_head(context.database)
    except DATABASE_FAILURES:
        ready = False
    if not ready:
        raise database_unavailable()
    return Health()
