"""Use cases of sweeps of runs: charge and queue a sweep, show it, cancel it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import ColumnElement
from sqlalchemy.orm import Session

from app.auth.principal import Principal
from app.context import Context
from app.datasets import service as datasets
from app.entries import registering
from app.entries.kinds import ChargedData, EntryKind
from app.entries.registered import hash_of_cells
from app.entries.registering import Registration
from app.entries.subjects import Subject
from app.kit import spans
from app.kit.ids import new_id
from app.kit.pagination import cut_page, decode_cursor
from app.problems import Problem, not_found
from app.reservations.commands import reserve
from app.run_sweeps.preparation import Prepared
from app.run_sweeps.schemas import NoisyScore
from app.runs import sweep_progression as progression
from app.runs import sweep_repository as repository
from app.runs.preparation import Price
from app.runs.service import not_your_run
from app.runs.settling import Ending, settle
from app.tables.runs import Run, RunSweep, RunSweepCell
from app.tables.states import RunState, Select


def create(session: Session, context: Context, principal_id: str, prepared: Prepared) -> RunSweep:
    """Reserve the sweep's charge once, and queue its runs, in the caller's transaction.

    For a sweep for the best run, only one trial is queued, whatever the number of trials is.

    Raises:
        Problem: 409 if the budget is not the data set's own.
        Exceeded: the budget does not admit the charge.
    """
    sweep, grid = prepared.sweep, prepared.grid
    sweep.id, sweep.principal_id = new_id("swp"), principal_id
    sweep.created_at = context.clock()
    after = grid.terms.release_after_s
    if sweep.select == Select.BEST and after is not None:
        sweep.release_at = sweep.created_at + timedelta(seconds=after)
    registering.lock(session)
    if prepared.price is not None:
        _reserve(session, context, prepared, prepared.price)
    cells = [
        RunSweepCell(
            sweep_id=sweep.id,
            number=number,
            values=list(cell.values),
            plan_hash=columns["plan_hash"],
            achieved=columns["achieved"],
            draft=_draft(prepared, columns) if sweep.select == Select.BEST else None,
        )
        for number, (cell, columns) in enumerate(zip(grid.cells, prepared.columns, strict=True))
    ]
    sweep.cells_hash = hash_of_cells(
        (each.number, each.values, each.plan_hash, each.achieved, each.draft) for each in cells
    )
    session.add(sweep)
    session.flush()
    session.add_all(cells)
    run_ids = []
    for number, columns in enumerate(prepared.columns):
        if sweep.select == Select.ALL:
            run_ids.append(new_id("run"))
            session.add(
                Run(
                    **columns,
                    id=run_ids[-1],
                    principal_id=principal_id,
                    state=RunState.QUEUED,
                    steps_done=0,
                    sweep_id=sweep.id,
                    sweep_cell=number,
                    trace_parent=spans.current_as_text(),
                    created_at=sweep.created_at,
                )
            )
    entered = [Registration(EntryKind.REGISTER, Subject.SWEEP, sweep.id, principal_id)]
    entered += [Registration(EntryKind.REGISTER, Subject.RUN, run_id, principal_id) for run_id in run_ids]
    registering.enter(session, sweep.created_at, entered)
    if sweep.select == Select.BEST:
        progression.add_first_trial(session, context, sweep)
    return sweep


def charged_data(session: Session, prepared: Prepared) -> ChargedData | None:
    """Return how the sweep's charge names its data.

    Raises:
        Problem: 409 ``budget_not_bound``.
    """
    first, version = prepared.grid.cells[0].request, prepared.columns[0]["dataset_version"]
    if first.budget_id is None:
        return None
    return datasets.charged_by_run(session, first.dataset_id, version, first.budget_id)


def _reserve(session: Session, context: Context, prepared: Prepared, price: Price) -> None:
    sweep, grid = prepared.sweep, prepared.grid
    charged = charged_data(session, prepared)
    purpose = f"run sweep {sweep.id}: {sweep.select} of {len(grid.cells)} cells"
    asked = price.asked(purpose, sweep.id, sweep.sweep_hash, charged)
    sweep.reservation_id = reserve(session, context, sweep.principal_id, asked, price.quote)
    sweep.warnings = [*sweep.warnings, *price.warnings]


def _draft(prepared: Prepared, columns: dict[str, Any]) -> dict[str, Any]:
    score = prepared.grid.terms.score
    noise = score.noise_multiplier if isinstance(score, NoisyScore) else None
    return {**columns, "plan": columns["plan"].decode(), "score_noise_multiplier": noise}


def get(session: Session, sweep_id: str) -> RunSweep:
    sweep = repository.find(session, sweep_id)
    if sweep is None:
        raise not_found("run sweep", sweep_id)
    return sweep


def list_page(
    session: Session, cursor: str | None, limit: int, within: ColumnElement[bool]
) -> tuple[Sequence[RunSweep], str | None]:
    """Return the sweeps that the reader may see, newest first, and the next page's cursor."""
    before = cast(tuple[datetime, str] | None, decode_cursor(cursor, datetime, str))
    found = repository.page(session, before, limit + 1, within)
    return cut_page(found, limit, lambda sweep: (sweep.created_at, sweep.id))


def cancel(session: Session, context: Context, sweep_id: str, principal: Principal) -> RunSweep:
    """Cancel the queued runs of a sweep, and ask the workers of running ones to stop.

    Runs that have started are charged. A sweep for the best run that has started ends at the time at which its result
    would have been shown.

    Raises:
        Problem: 403 ``not_your_run``; 409 when the sweep has ended.
    """
    if not principal.acts_for(get(session, sweep_id).principal_id):
        raise not_your_run("sweep")
    sweep = repository.find_for_update(session, sweep_id)
    if sweep.finished_at is not None:
        raise Problem(409, "run_sweep_has_ended", f"The sweep has {sweep.outcome}; it can no longer be cancelled.")
    sweep.is_cancelled = True
    for run in repository.open_runs_for_update(session, sweep_id):
        if run.state == RunState.QUEUED:
            settle(session, context, run, Ending(RunState.CANCELLED))
        else:
            run.state = RunState.CANCELLING
    session.flush()
    if not repository.has_started_runs(session, sweep_id):
        progression.conclude(session, context, sweep)
    return sweep
