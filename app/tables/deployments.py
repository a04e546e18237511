"""The table of operators' answers about their deployments."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import JSON, ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from app.tables.base import Base, UtcDateTime


class Deployment(Base):
    """The latest answers to the questions about the use of a budget; the budgets under it inherit them.

    Attributes:
        answers: Texts by the names of the questions (`app/deployments/schemas.py`). Open questions are left out.
    """

    __tablename__ = "deployments"

    budget_id: Mapped[str] = mapped_column(ForeignKey("budgets.id"), primary_key=True)
    answers: Mapped[dict[str, str]] = mapped_column(JSON)
    principal_id: Mapped[str] = mapped_column(String(64))
    stated_at: Mapped[datetime] = mapped_column(UtcDateTime)
