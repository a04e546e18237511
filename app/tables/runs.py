"""Tables of runs, of sweeps of runs and of audits. They are authoritative about what is queued, running and done."""

from __future__ import annotations

from datetime import datetime
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
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from app.tables.base import Base, UtcDateTime
from app.tables.states import RunState


class Run(Base):
    """A run. Everything in the row is public: the plan, the declared sizes and the progress. The model is in a separate
    file."""

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
    #: The version of private data that it trains on. Null in runs from before versions existed means the first.
    dataset_version: Mapped[int | None] = mapped_column(Integer)
    inline_dataset: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    test_dataset_id: Mapped[str | None] = mapped_column(ForeignKey("datasets.id"))
    budget_id: Mapped[str | None] = mapped_column(ForeignKey("budgets.id"))
    reservation_id: Mapped[str | None] = mapped_column(ForeignKey("reservations.id"), unique=True)
    seed: Mapped[int | None] = mapped_column(BigInteger)
    steps_done: Mapped[int] = mapped_column(Integer, default=0)
    steps_total: Mapped[int] = mapped_column(Integer)
    worker_id: Mapped[str | None] = mapped_column(String(64))
    #: The number of claims of the run. A worker's writes name the epoch of its claim, and are refused in a later epoch.
    epoch: Mapped[int] = mapped_column(Integer, default=0, server_default="0")
    #: The worker raises this number while it works on the run.
    heartbeat: Mapped[int] = mapped_column(Integer, default=0, server_default="0")
    #: Identifies the stream of randomness with which the run was started, without revealing it. Once the charge has
    #: started, no other stream may use it.
    stream_id: Mapped[str | None] = mapped_column(String(64))
    #: The sweep whose charge the run is part of; such a run has no reservation of its own.
    sweep_id: Mapped[str | None] = mapped_column(ForeignKey("run_sweeps.id"), index=True)
    #: The index of the run's cell in the sweep.
    sweep_cell: Mapped[int | None] = mapped_column(Integer)
    #: The standard deviation of the noise on the score that a trial releases besides the model. The unit is the most
    #: that one row adds. The noise is added to the sum over the training rows.
    score_noise_multiplier: Mapped[float | None] = mapped_column(Double)
    #: Whether the run is hidden, as a trial of a sweep for the best run.
    is_withheld: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())
    #: The number of workers that died or stalled while they had the run.
    workers_lost: Mapped[int] = mapped_column(Integer, default=0, server_default="0")
    result: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    problem: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    #: The schedule of a run on private data, set at its first claim (`app.runs.schedule`) from public numbers.
    schedule: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    #: The time at which the end of a run on private data is shown. It is never shown earlier.
    release_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    #: The span of the request that entered the run, as `app.kit.spans` writes it. Null if none was recorded, and in
    #: hidden trials, since a trace would reveal their number.
    trace_parent: Mapped[str | None] = mapped_column(String(55))
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
        """Return whether a budget pays for the run, by its own reservation or by its sweep's."""
        return self.budget_id is not None


class MarkedSteps(Base):
    """The steps of a run that may have drawn noise. The row is written before they draw any. Without a row, all steps
    count."""

    __tablename__ = "marked_steps"
    __table_args__ = (CheckConstraint("steps >= 1", name="steps"),)

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    steps: Mapped[int] = mapped_column(Integer)


class RunSweep(Base):
    """A sweep. The row is public, but nobody sees which runs belong to a sweep for the best run."""

    __tablename__ = "run_sweeps"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    principal_id: Mapped[str] = mapped_column(String(64))
    select: Mapped[str] = mapped_column(String(8))
    #: The request, as it was sent.
    request: Mapped[dict[str, Any]] = mapped_column(JSON)
    #: The swept fields, as paths with dots.
    fields: Mapped[list[str]] = mapped_column(JSON)
    sweep_hash: Mapped[str] = mapped_column(String(64))
    budget_id: Mapped[str | None] = mapped_column(ForeignKey("budgets.id"))
    reservation_id: Mapped[str | None] = mapped_column(ForeignKey("reservations.id"), unique=True)
    #: The guarantee of the whole sweep, which does not depend on the part that is shown.
    guarantee: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    #: The distribution of the number of trials.
    trials: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    score: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    #: A hash of the cells, so that a register entry about this row also covers them (`app.entries.registered`).
    cells_hash: Mapped[str] = mapped_column(String(64), server_default=text("''"))
    #: No result of a sweep for the best run is shown before this time.
    release_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    is_cancelled: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())
    #: The final state of the sweep; null before its end.
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
        # This index finds the sweeps that have not ended.
        Index("ix_run_sweeps_finished_at", "finished_at"),
    )


class RunSweepCell(Base):
    """A cell of the grid: the values of the swept fields, and the resulting plan."""

    __tablename__ = "run_sweep_cells"

    sweep_id: Mapped[str] = mapped_column(ForeignKey("run_sweeps.id"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    values: Mapped[list[Any]] = mapped_column(JSON)
    plan_hash: Mapped[str] = mapped_column(String(64))
    achieved: Mapped[dict[str, Any]] = mapped_column(JSON)
    #: The values from which the run of a trial of this cell is made; null if the sweep releases all runs.
    draft: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))


class Audit(Base):
    """One audit. It uses only canaries and noise, and no row of any data set."""

    __tablename__ = "audits"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    principal_id: Mapped[str] = mapped_column(String(64))
    algorithm: Mapped[str] = mapped_column(String(64))
    run_id: Mapped[str | None] = mapped_column(ForeignKey("runs.id"))
    plan: Mapped[bytes] = mapped_column(LargeBinary)
    plan_hash: Mapped[str] = mapped_column(String(64))
    request: Mapped[dict[str, Any]] = mapped_column(JSON)
    claim: Mapped[dict[str, Any]] = mapped_column(JSON)
    finding: Mapped[dict[str, Any]] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (
        Index("ix_audits_created_at", "created_at", "id"),
        Index("ix_audits_run_id", "run_id"),
    )
