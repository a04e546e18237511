"""The tables of sweeps of runs. Their runs are rows of `runs`, which name the sweep and the cell."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, Boolean, CheckConstraint, ForeignKey, Index, Integer, String, false
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, UtcDateTime


class Select(StrEnum):
    """What a sweep releases."""

    ALL = "all"
    """Every run, and the charge is of all of them together."""
    BEST = "best"
    """The best of a random number of runs, charged as that selection; no other is shown."""


class SweepState(StrEnum):
    """What is shown of a sweep. The last three are final, and alone are stored."""

    QUEUED = "queued"
    """No worker has taken a run of it yet."""
    RUNNING = "running"
    """Runs are being trained, or wait for one another."""
    CANCELLING = "cancelling"
    """It was cancelled, and a worker is about to notice."""
    SUCCEEDED = "succeeded"
    """It ended, and what it releases can be read."""
    FAILED = "failed"
    """It ended without what it was to release."""
    CANCELLED = "cancelled"
    """It was cancelled; what had started stays charged."""


class RunSweep(Base):
    """A sweep. All of it is public, but for `trials_left` and which runs there are of a sweep for the best."""

    __tablename__ = "run_sweeps"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    principal_id: Mapped[str] = mapped_column(String(64))
    select: Mapped[str] = mapped_column(String(8))
    #: The request, as it came.
    request: Mapped[dict[str, Any]] = mapped_column(JSON)
    #: The swept fields, as paths with dots.
    fields: Mapped[list[str]] = mapped_column(JSON)
    sweep_hash: Mapped[str] = mapped_column(String(64))
    budget_id: Mapped[str | None] = mapped_column(ForeignKey("budgets.id"))
    reservation_id: Mapped[str | None] = mapped_column(ForeignKey("reservations.id"), unique=True)
    #: Of the whole sweep, whatever is seen of it.
    guarantee: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    #: The law of the number of trials.
    trials: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    score: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    #: Secret: how many trials are still to be queued; None before their number is drawn, and once the sweep has ended.
    trials_left: Mapped[int | None] = mapped_column(Integer)
    #: Nothing of a sweep for the best is told before.
    release_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    is_cancelled: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())
    #: How it ended.
    outcome: Mapped[str | None] = mapped_column(String(16))
    best_run_id: Mapped[str | None] = mapped_column(String(64))
    warnings: Mapped[list[str]] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    __table_args__ = (
        CheckConstraint("\"select\" IN ('all', 'best')", name="select"),
        CheckConstraint("outcome IN ('succeeded', 'failed', 'cancelled')", name="outcome"),
        CheckConstraint("(outcome IS NULL) = (finished_at IS NULL)", name="finished_at"),
        Index("ix_run_sweeps_created_at", "created_at", "id"),
        # Finds those that have not ended.
        Index("ix_run_sweeps_finished_at", "finished_at"),
    )


class RunSweepCell(Base):
    """A cell of the grid: the values of the swept fields, and the plan that they make."""

    __tablename__ = "run_sweep_cells"

    sweep_id: Mapped[str] = mapped_column(ForeignKey("run_sweeps.id"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    values: Mapped[list[Any]] = mapped_column(JSON)
    plan_hash: Mapped[str] = mapped_column(String(64))
    achieved: Mapped[dict[str, Any]] = mapped_column(JSON)
    #: What a trial of this cell is made of, where trials are drawn one after the other.
    draft: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
