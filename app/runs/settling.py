"""Settle a run: store its end, write the ledger's entry, and commit or release its charge."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog
from sqlalchemy.orm import Session

from app.context import Context
from app.entries import registering
from app.entries.kinds import EntryKind
from app.entries.registering import Registration
from app.entries.subjects import Subject
from app.fence.marks import Head
from app.ledger.commands import Commit, Void
from app.problems import Problem
from app.reservations import service as reservations
from app.runs import charges, marks
from app.runs.charges import ChargeAltered
from app.runs.failures import DECLARATION_ALTERED, UNCHARGED, WORKER_LOST, with_charge
from app.runs.marks import Rest
from app.tables.runs import Run
from app.tables.states import ReservationStatus, RunState

log = structlog.get_logger()


@dataclass(frozen=True)
class Ending:
    """The end of a run.

    Attributes:
        state: Its final state.
        problem: The constant text that says why it failed.
        result: The part of its result that is stored.
        rest: What the run gives up if it ends early. It is given back unless a further step was marked meanwhile.
    """

    state: RunState
    problem: dict[str, str] | None = None
    result: dict[str, Any] | None = None
    rest: Rest | None = None


def is_started(session: Session, run: Run) -> bool:
    """Return whether the charge of a run was started; in a sweep, whether the run itself was."""
    if run.reservation_id is None:
        return run.stream_id is not None
    return reservations.get_reservation(session, run.reservation_id).state == ReservationStatus.STARTED


def settle(
    session: Session, context: Context, run: Run, ending: Ending, ends: Mapping[str, Head] | None = None
) -> None:
    """End a run in the caller's transaction, which has locked the run's row.

    A started reservation is committed, however the run ended: in full, or less the worth of steps that were not marked.
    A reservation that never started is released. The reservation of a sweep is settled when all its runs have ended.

    Args:
        session: A write session.
        context: The process's context.
        run: The run.
        ending: How it ends. A run that would succeed fails if its charge differs from the ledger's entries.
        ends: The last hashes of the chains, including the budget's, as the fence had them before the session. Without
            them the charge is not compared with its entries. This is enough if nothing of the run is released.
    """
    registering.lock(session)
    run.state, run.problem, run.finished_at = ending.state, ending.problem, context.clock()
    if run.sweep_id is not None and run.problem in UNCHARGED:
        run.problem = with_charge(run.problem, "The charge is the sweep's")
    if run.reservation_id is not None:
        _settle_charge(session, context, run, run.reservation_id, ending.rest, ends)
    if not run.is_withheld:
        registering.enter(session, run.finished_at, [Registration(EntryKind.END, Subject.RUN, run.id)])


def _settle_charge(
    session: Session,
    context: Context,
    run: Run,
    reservation_id: str,
    rest: Rest | None,
    ends: Mapping[str, Head] | None,
) -> None:
    try:
        # A run that succeeded must have started, whatever its row says.
        if run.state == RunState.SUCCEEDED or is_started(session, run):
            if run.problem == DECLARATION_ALTERED:
                run.problem = with_charge(run.problem, "Its charge stands")
            elif run.problem in UNCHARGED:
                run.problem = WORKER_LOST
            _commit(session, context, run, reservation_id, rest, ends)
        else:
            with suppress(Problem):  # an expired hold is released already
                charges.resolve(session, context, reservation_id, Void(by_run=True), ends)
    except ChargeAltered as error:
        # The held amounts stay held, and count as spent.
        log.error("charge_altered", run_id=run.id, reservation_id=reservation_id, reason=str(error))
        run.state, run.result = RunState.FAILED, None
        run.problem = with_charge(DECLARATION_ALTERED, "What is held for it stays held")


def _commit(
    session: Session,
    context: Context,
    run: Run,
    reservation_id: str,
    rest: Rest | None,
    ends: Mapping[str, Head] | None,
) -> None:
    """Commit a charge less the worth of the steps that are given up. Commit it in full if a step was marked meanwhile,
    or if the ledger denies the reduced charge."""
    if rest is not None and rest.marked == marks.of(session, run.id):
        with suppress(ChargeAltered):  # giving up spends a failure probability, for which the budget may have no room
            command = Commit(rest.kept, by_run=True, given_up=rest.given_up)
            charges.resolve(session, context, reservation_id, command, ends)
            return
    charges.resolve(session, context, reservation_id, Commit(by_run=True), ends)
