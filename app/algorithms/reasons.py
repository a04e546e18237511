"""Reasons in answers about several algorithms: why an algorithm does not apply, or why a number is missing for it."""

from __future__ import annotations

from pydantic import Field

from app.kit.fields import Schema
from calibrators.advice import Reason


class ReasonBody(Schema):
    detail: str
    pointer: str = Field(description="JSON pointer into this request; empty for the problem as a whole.")


class RefusalBody(Schema):
    """An algorithm that does not apply."""

    algorithm: str
    reasons: list[ReasonBody]


def reason_body(reason: Reason) -> ReasonBody:
    """Return a reason in its HTTP form."""
    return ReasonBody(detail=reason.detail, pointer="".join(f"/{part}" for part in reason.pointer))
