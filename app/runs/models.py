"""The runs table: the system of record for what is queued, running and done."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    false,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, UtcDateTime


class RunState(StrEnum):
    QUEUED = "queued"
    """Its cost is held, and it waits for a worker."""
    RUNNING = "running"
    """A worker is at it; once noise was drawn its charge stays."""
    SUCCEEDED = "succeeded"
    """The charge is committed, and the model can be fetched."""
    FAILED = "failed"
    """It ended without a model; `problem` says why, and whether its charge stands."""
    CANCELLING = "cancelling"
    """It was cancelled, and its worker is about to notice."""
    CANCELLED = "cancelled"
    """It was cancelled: before its start nothing is charged, after it the whole."""


#: States in which a worker is at it.
IN_PROGRESS = (RunState.RUNNING, RunState.CANCELLING)
ENDED = (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED)


class Run(Base):
    """One run. Everything here is public: the plan, the declared sizes, progress; the model is a file of its own."""

    __tablename__ = "runs"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    principal_id: Mapped[str] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(16))
    algorithm: Mapped[str] = mapped_column(String(64))
    plan: Mapped[bytes] = mapped_column(LargeBinary)
    plan_hash: Mapped[str] = mapped_column(String(64))
    target: Mapped[dict[str, Any]] = mapped_column(JSON)
    achieved: Mapped[dict[str, Any]] = mapped_column(JSON)
    provenance: Mapped[dict[str, Any]] = mapped_column(JSON)
    warnings: Mapped[list[str]] = mapped_column(JSON)
    model: Mapped[dict[str, Any]] = mapped_column(JSON)
    description: Mapped[dict[str, Any]] = mapped_column(JSON)
    dataset_id: Mapped[str | None] = mapped_column(ForeignKey("datasets.id"))
    inline_dataset: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    test_dataset_id: Mapped[str | None] = mapped_column(ForeignKey("datasets.id"))
    budget_id: Mapped[str | None] = mapped_column(ForeignKey("budgets.id"))
    reservation_id: Mapped[str | None] = mapped_column(ForeignKey("reservations.id"), unique=True)
    seed: Mapped[int | None] = mapped_column(BigInteger)
    steps_done: Mapped[int] = mapped_column(Integer, default=0)
    steps_total: Mapped[int] = mapped_column(Integer)
    worker_id: Mapped[str | None] = mapped_column(String(64))
    #: How often the run was claimed. A worker's writes name the epoch of its claim, and are refused under another.
    epoch: Mapped[int] = mapped_column(Integer, default=0, server_default="0")
    #: Raised by the worker for as long as it is at the run.
    heartbeat: Mapped[int] = mapped_column(Integer, default=0, server_default="0")
    #: Names the stream of randomness that the run was started with. It tells nothing about the stream, and the start
    #: of a charge that stands is refused to any other.
    stream_id: Mapped[str | None] = mapped_column(String(64))
    #: The sweep whose charge the run is part of; such a run has no reservation of its own.
    sweep_id: Mapped[str | None] = mapped_column(ForeignKey("run_sweeps.id"), index=True)
    #: Which cell of the sweep; None in a run that is made up for, because no trial was drawn.
    sweep_cell: Mapped[int | None] = mapped_column(Integer)
    #: Of the score that a trial releases besides the model: noise on the sum over the training rows of what is right of
    #: their predictions, in units of what one row adds at most.
    score_noise_multiplier: Mapped[float | None] = mapped_column(Double)
    #: Nobody sees the run: it is a trial of a sweep that releases the best one alone.
    is_withheld: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())
    #: A trial that is made so that the queue does not show how many were drawn; it is thrown away.
    is_spare: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())
    #: How many workers died or stalled while they were at it.
    workers_lost: Mapped[int] = mapped_column(Integer, default=0, server_default="0")
    result: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    problem: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    __table_args__ = (
        CheckConstraint("(dataset_id IS NULL) <> (inline_dataset IS NULL)", name="one_dataset"),
        CheckConstraint(f"state IN ({', '.join(repr(str(state)) for state in RunState)})", name="state"),
        Index("ix_runs_state_created_at", "state", "created_at"),
    )

    @property
    def is_charged(self) -> bool:
        """Whether a budget pays for it: by a reservation of its own, or its sweep's."""
        return self.budget_id is not None
