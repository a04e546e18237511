"""The guarantee of a run's releases, in sentences that never promise more than the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, Literal

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from accounting.relations import NeighboringRelation
from app.algorithms.binding import DataDescription
from app.algorithms.schemas import AchievedBody
from app.algorithms.targets import (
    AchievedAdvantageBody,
    AchievedBayesRiskBody,
    AchievedMuBody,
    AchievedOfGroupsBody,
    AchievedPureBody,
    AchievedRhoBody,
    AchievedTprBody,
    AnyAchievedBody,
    ApproximateDpTargetBody,
    RunTargetBody,
)
from app.datasets import repository as datasets
from app.runs import sweep_repository as sweeps
from app.runs.schemas import GuaranteeBody
from app.runs.stored import plan_if_intact, reservation_of, sweep_of
from app.tables.ledger import Reservation
from app.tables.runs import Run, RunSweep
from app.tables.states import ReservationStatus, RunState, Select
from calibrators.plan import Plan

NEIGHBOURS = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: "one {unit} is added or removed",
    NeighboringRelation.REPLACE_ONE: "one {unit} is replaced by another",
    NeighboringRelation.REPLACE_SPECIAL: "one {unit} is replaced by a null record in its place",
}
GROUP_NEIGHBOURS = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: "a group of up to {size} is added or removed, each of them one {unit}",
    NeighboringRelation.REPLACE_ONE: "a group of up to {size} is replaced by others, each of them one {unit}",
    NeighboringRelation.REPLACE_SPECIAL: "a group of up to {size}, each of them one {unit}, is replaced by null "
    "records in their places",
}
TARGET: TypeAdapter[RunTargetBody] = TypeAdapter(RunTargetBody)
_ACHIEVED: TypeAdapter[AnyAchievedBody] = TypeAdapter(AnyAchievedBody)


def guarantee_of(session: Session, run: Run) -> GuaranteeBody | None:
    """Return the guarantee of what the run releases; None if its stored plan no longer matches its hash."""
    plan = plan_if_intact(run)
    return None if plan is None else guarantee_body(session, run, plan)


def guarantee_body(session: Session, run: Run, plan: Plan) -> GuaranteeBody:
    """Return the guarantee of what a run of this plan releases."""
    unit = DataDescription.model_validate(run.description).privacy_unit
    neighbors = _neighbors(plan.neighboring_relation, unit, group_size_of(TARGET.validate_python(run.target)))
    sweep = sweep_of(session, run)
    statement = _statement(run, achieved_of(run, sweep), neighbors, reservation_of(session, run))
    return GuaranteeBody(
        statement=statement + _of_the_sweep(session, sweep),
        privacy_unit=unit,
        neighbors=neighbors,
        card=f"/v1/runs/{run.id}/report",
    )


def group_size_of(target: RunTargetBody) -> int:
    return target.group_size if isinstance(target, ApproximateDpTargetBody) else 1


def _neighbors(relation: NeighboringRelation, unit: str, group_size: int) -> str:
    """Return in words how neighbouring data sets differ: in one row, or in all rows of a group."""
    if group_size == 1:
        return NEIGHBOURS[relation].format(unit=unit)
    return GROUP_NEIGHBOURS[relation].format(unit=unit, size=group_size)


def of_several_rows(session: Session, run: Run, unit: str, group_size: int) -> str:
    """Say what the guarantee means for somebody with several rows. The text follows from declarations; no row is
    counted."""
    dataset = None if run.dataset_id is None else datasets.find(session, run.dataset_id)
    most = None if dataset is None else dataset.rows_per_person
    if most is None and group_size > 1:
        return (
            f"One row is taken as one {unit}. The guarantee is for {group_size} of them at a time, and weaker for more."
        )
    if most is None:
        return f"One row is taken as one {unit}: a {unit} with several rows has a weaker guarantee."
    if most == 1:
        return "No person has more than one row, by the ids that the owner gave: they were compared at each upload."
    if most <= group_size:
        return f"A person has at most {most} rows, by the ids that the owner gave. The guarantee is about all of them."
    return (
        f"A person has at most {most} rows, by the ids that the owner gave. The guarantee is about {group_size} of "
        f"them; /v1/account says with group_size {most} what it is for all."
    )


def _statement(run: Run, achieved: AnyAchievedBody, neighbors: str, reservation: Reservation | None) -> str:
    if run.seed is not None:
        return "This run was seeded, on public data: it repeats, and protects nobody."
    protects = f"{_guarantee(achieved)} where {neighbors}."
    if run.state == RunState.SUCCEEDED:
        return f"The released model {protects}"
    if run.state not in (RunState.FAILED, RunState.CANCELLED):
        return f"Nothing was released so far. The plan {protects}"
    end = "failed" if run.state == RunState.FAILED else "was cancelled"
    ended = f"Nothing was released: the run {end}. Its plan {protects}"
    if reservation is None:
        return ended
    if reservation.state in (ReservationStatus.STARTED, ReservationStatus.COMMITTED):
        return f"{ended} The charge stands: noise may have been drawn."
    return f"{ended} Nothing was charged."


def achieved_of(run: Run, sweep: RunSweep | None) -> AnyAchievedBody:
    """Return the guarantee of the released model. For the best model of a sweep, this is the guarantee of the whole
    selection."""
    if sweep is None or sweep.select != Select.BEST:
        return read_achieved(run.achieved)
    assert sweep.guarantee is not None, "a selection has a guarantee"
    return read_achieved(sweep.guarantee)


def read_achieved(stored: dict[str, Any]) -> AnyAchievedBody:
    body: AnyAchievedBody = _ACHIEVED.validate_python(stored)
    return body


def _of_the_sweep(session: Session, sweep: RunSweep | None) -> str:
    if sweep is None:
        return ""
    cells = sweeps.count_cells(session, sweep.id)
    if sweep.select == Select.BEST:
        return (
            f" This is the cost of selecting it as the best of a secret number of trials on a grid of {cells} cells, "
            "which holds as long as that number stays secret."
        )
    if sweep.guarantee is None:
        return f" It is one of {cells} runs of a sweep, whose results are all released: the charge is for all of them."
    together = _definition(read_achieved(sweep.guarantee))
    return f" It is one of {cells} runs of a sweep, whose results are all released: together they are {together}."


@dataclass(frozen=True)
class Bound:
    """One number of a guarantee.

    Attributes:
        name: The quantity's name, as a card shows it.
        limit: Which side of the quantity is bounded; empty if the number is a part of the definition, such as delta.
        value: The number; None if the quantity has no bound.
    """

    name: str
    limit: Literal["at most", "at least", ""]
    value: float | None

    def __str__(self) -> str:
        """Return the bound in words, rounded so that it never promises more."""
        if self.value is None:
            return "unbounded"
        number = {"at most": round_up, "at least": round_down, "": written}[self.limit](self.value)
        return f"{self.limit} {number}".strip()


def bounds_of(achieved: AnyAchievedBody) -> tuple[Bound, ...]:
    """Return the numbers of a guarantee, each a proved bound, with the quantity that is bounded first."""
    match achieved:
        case AchievedBody() | AchievedOfGroupsBody():
            found = [Bound("epsilon", "at most", achieved.epsilon.upper), Bound("delta", "", achieved.delta)]
        case AchievedPureBody():
            found = [Bound("epsilon", "at most", achieved.epsilon)]
        case AchievedRhoBody():
            found = [Bound("rho", "at most", achieved.rho)]
        case AchievedMuBody():
            found = [Bound("mu", "at most", achieved.mu)]
        case AchievedAdvantageBody():
            found = [Bound("advantage", "at most", achieved.advantage.upper)]
        case AchievedTprBody():
            found = [
                Bound("true positive rate", "at most", achieved.tpr.upper),
                Bound("false positive rate", "", achieved.fpr),
            ]
        case AchievedBayesRiskBody():
            found = [
                Bound("Bayes risk", "at least", achieved.bayes_risk.lower),
                Bound("prior probability", "", achieved.prior),
            ]
        case _:
            raise AssertionError(f"a run's target is a guarantee, not {type(achieved).__name__}")
    return tuple(found)


def _guarantee(achieved: AnyAchievedBody) -> str:
    """Return what a model or a plan guarantees, as a verb and its object."""
    match achieved:
        case AchievedAdvantageBody() | AchievedTprBody() | AchievedBayesRiskBody():
            numbers = ", ".join(f"{each.name} {each}" for each in bounds_of(achieved))
            return f"limits every membership attack ({numbers})"
    return f"is {_definition(achieved)}"


def _definition(achieved: AnyAchievedBody) -> str:
    match achieved:
        case AchievedBody() | AchievedOfGroupsBody():
            return f"({round_up(achieved.epsilon.upper)}, {round_up(achieved.delta)})-differentially private"
        case AchievedPureBody():
            return f"{round_up(achieved.epsilon)}-differentially private"
        case AchievedRhoBody():
            return f"{round_up(achieved.rho)}-zCDP"
        case AchievedMuBody():
            return f"{round_up(achieved.mu)}-Gaussian differentially private"
    raise AssertionError(f"a run's target is a guarantee, not {type(achieved).__name__}")


def round_up(number: float | None) -> str:
    """Write a number with at most six significant digits, rounded up.

    >>> round_up(1.2345644), round_up(1e-5), round_up(None)
    ('1.23457', '0.00001', 'unbounded')
    """
    if number is None:
        return "unbounded"
    exact = Decimal(number)
    # If the short decimal reads back as at least this double, it is kept. Only larger numbers are rounded up.
    short = Decimal(f"{number:.6g}")
    return str(short if short >= Decimal(repr(number)) else Context(prec=6, rounding=ROUND_CEILING).plus(exact))


def round_down(number: float) -> str:
    """Write a number with at most six significant digits, and never above it.

    >>> round_down(0.12345678), round_down(0.4)
    ('0.123456', '0.4')
    """
    return str(Context(prec=6, rounding=ROUND_FLOOR).create_decimal(repr(number)))


def written(number: float) -> str:
    """Write a number with all its digits, and without an exponent if it is not tiny.

    >>> written(1e-5)
    '0.00001'
    """
    return str(Decimal(repr(number)))
