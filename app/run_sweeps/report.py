"""Reports on sweeps. A report on a sweep for the best run does not depend on the number of its trials."""

from __future__ import annotations

from functools import reduce
from operator import getitem
from typing import Any, cast

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from app.algorithms.schemas import AchievedBody, DtypeName
from app.algorithms.targets import AchievedPureBody, AnyAchievedBody
from app.privacy.tuning import DistributionBody
from app.reservations import service as reservations
from app.reservations.schemas import PriceBody
from app.run_sweeps.preparation import Prepared
from app.run_sweeps.schemas import (
    BestBody,
    CellBody,
    PricedCell,
    RunSweepBody,
    RunSweepQuote,
    RunSweepSummary,
    ScoreChoice,
    TrialsQuantile,
)
from app.runs import sweep_repository as repository
from app.runs.schemas import MetricBody, RunProblem
from app.runs.sweep_charges import QUANTILE, law_of, quantile_of
from app.tables.runs import Run, RunSweep, RunSweepCell
from app.tables.states import RunState, Select, SweepState
from calibrators.plan import plan_from_canonical

_ACHIEVED: TypeAdapter[AnyAchievedBody] = TypeAdapter(AnyAchievedBody)
_GUARANTEE: TypeAdapter[AchievedBody | AchievedPureBody] = TypeAdapter(AchievedBody | AchievedPureBody)
_SCORE: TypeAdapter[ScoreChoice] = TypeAdapter(ScoreChoice)

NONE_DRAWN = "No trial was drawn, as can happen with this law, so there is no model. The charge is the same."
NONE_SUCCEEDED = "No trial succeeded, so there is no model. The charge stands if a trial was started."

_NOTES: dict[str, str] = {SweepState.SUCCEEDED: NONE_DRAWN, SweepState.FAILED: NONE_SUCCEEDED}


def summary(session: Session, sweep: RunSweep) -> RunSweepSummary:
    """Return a sweep without its cells."""
    return RunSweepSummary(**_shared(session, sweep))


def sweep_body(session: Session, sweep: RunSweep) -> RunSweepBody:
    """Return a sweep as a table."""
    shown = {} if sweep.select == Select.BEST else {run.sweep_cell: run for run in repository.runs(session, sweep.id)}
    cells = [_cell(cell, shown.get(cell.number)) for cell in repository.cells(session, sweep.id)]
    return RunSweepBody(**_shared(session, sweep), cells=cells)


def quote_body(prepared: Prepared, cost: dict[str, Any] | None) -> RunSweepQuote:
    """Return the answer about what a sweep would cost.

    Args:
        prepared: The sweep.
        cost: The cost that the ledger would state for its reservation; None without a budget.
    """
    sweep = prepared.sweep
    return RunSweepQuote(
        fields=sweep.fields,
        cells=[
            PricedCell(
                values=list(cell.values),
                plan_hash=columns["plan_hash"],
                dtype=cast(DtypeName, plan_from_canonical(columns["plan"], columns["plan_hash"]).dtype),
                dtype_reason=columns["provenance"]["dtype_reason"],
                achieved=_ACHIEVED.validate_python(columns["achieved"]),
            )
            for cell, columns in zip(prepared.grid.cells, prepared.columns, strict=True)
        ],
        guarantee=guarantee_of(sweep),
        cost=None if cost is None else cost["cost"],
        remaining=None if cost is None else cost["remaining"],
        price=None if cost is None or cost["price"] is None else PriceBody.model_validate(cost["price"]),
        sweep_hash=sweep.sweep_hash,
        trials_quantile=_quantile(sweep),
        warnings=sweep.warnings,
    )


def guarantee_of(sweep: RunSweep) -> AchievedBody | AchievedPureBody | None:
    """Return the guarantee of everything that the sweep releases."""
    return None if sweep.guarantee is None else _GUARANTEE.validate_python(sweep.guarantee)


def state_of(session: Session, sweep: RunSweep) -> SweepState:
    """Return the state of a sweep. Before the end, the state follows from public facts. For a sweep for the best run,
    it follows from whether the charge has started."""
    if sweep.outcome is not None:
        return SweepState(sweep.outcome)
    if sweep.is_cancelled:
        return SweepState.CANCELLING
    if sweep.select == Select.BEST:
        has_begun = sweep.started_at is not None
    else:
        has_begun = repository.has_left_the_queue(session, sweep.id)
    return SweepState.RUNNING if has_begun else SweepState.QUEUED


def metrics_of(run: Run | None) -> list[MetricBody]:
    """Return the scores of a run's model on public rows."""
    return (
        [] if run is None or run.result is None else [MetricBody.model_validate(each) for each in run.result["metrics"]]
    )


def _shared(session: Session, sweep: RunSweep) -> dict[str, Any]:
    request = sweep.request
    charge = None
    if sweep.reservation_id is not None:
        charge, _ = reservations.charge(session, sweep.reservation_id)
    return {
        "id": sweep.id,
        "state": state_of(session, sweep),
        "select": Select(sweep.select),
        "fields": sweep.fields,
        "shape": [len(reduce(getitem, field.split("."), request)) for field in sweep.fields],
        "dataset_id": request["dataset_id"],
        "dataset_version": _version(session, sweep),
        "test_dataset_id": request.get("test_dataset_id"),
        "budget_id": sweep.budget_id,
        "reservation_id": sweep.reservation_id,
        "charge": charge,
        "guarantee": guarantee_of(sweep),
        "sweep_hash": sweep.sweep_hash,
        "trials": None if sweep.trials is None else DistributionBody.model_validate(sweep.trials),
        "trials_quantile": _quantile(sweep),
        "score": None if sweep.score is None else _SCORE.validate_python(sweep.score),
        "release_at": sweep.release_at,
        "best": _best(session, sweep),
        "note": _note(sweep),
        "warnings": sweep.warnings,
        "created_at": sweep.created_at,
        "started_at": sweep.started_at,
        "finished_at": sweep.finished_at,
    }


def _version(session: Session, sweep: RunSweep) -> int | None:
    if sweep.reservation_id is None:
        return None
    charged = reservations.get_reservation(session, sweep.reservation_id).dataset
    return None if charged is None else int(charged["version"])


def _quantile(sweep: RunSweep) -> TrialsQuantile | None:
    if sweep.trials is None:
        return None
    return TrialsQuantile(probability=QUANTILE, trials=quantile_of(law_of(sweep.trials)))


def _best(session: Session, sweep: RunSweep) -> BestBody | None:
    if sweep.best_run_id is None:
        return None
    run = session.get_one(Run, sweep.best_run_id)
    assert run.sweep_cell is not None, "a trial that counts has a cell"
    return BestBody(
        run_id=run.id,
        values=repository.cell(session, sweep.id, run.sweep_cell).values,
        metrics=metrics_of(run),
        noisy_score=None if run.result is None else run.result.get("noisy_score"),
    )


def _note(sweep: RunSweep) -> str | None:
    if sweep.select != Select.BEST or sweep.best_run_id is not None:
        return None
    return _NOTES.get(sweep.outcome or "")


def _cell(cell: RunSweepCell, run: Run | None) -> CellBody:
    return CellBody(
        values=cell.values,
        plan_hash=cell.plan_hash,
        achieved=_ACHIEVED.validate_python(cell.achieved),
        run_id=None if run is None else run.id,
        state=None if run is None else RunState(run.state),
        metrics=metrics_of(run),
        problem=None if run is None or run.problem is None else RunProblem.model_validate(run.problem),
    )
