"""`certify: true`: the number of dp-accounting in addition to ours, from a process with limits of time and memory.

A failure here never makes an answer fail: if there is no second opinion, the note says why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from accounting.dp_accounting_adapter import check_referee, engine
from accounting.errors import AccountingError
from accounting.events import Event
from accounting.intervals import Answer
from accounting.relations import NeighboringRelation
from accounting.second_opinion import Opinion, lattice_step, opinions_on_delta, opinions_on_epsilon
from app.context import Context
from app.kit.process_pool import JobFailed
from app.privacy.account import CertificationBody
from app.problems import Problem


def certify(
    context: Context,
    events: Sequence[Event],
    relation: NeighboringRelation,
    field: str,
    asked: Sequence[float],
    answers: Sequence[Answer],
) -> list[CertificationBody]:
    """Return a certification of each answer.

    Args:
        context: The process's context, which starts the limited process.
        events: The accounted events.
        relation: The neighbouring relation.
        field: ``"delta"`` or ``"epsilon"``, whichever was given.
        asked: The values of that field.
        answers: Our answers at these values.
    """
    try:
        check_referee(events, relation)
    except AccountingError as error:
        return [_without_opinion(field, f"No second opinion: {error.detail}.") for _ in answers]
    epsilons = [answer.value.upper for answer in answers] if field == "delta" else asked
    step = lattice_step(events, min((epsilon for epsilon in epsilons if 0.0 < epsilon < math.inf), default=1.0))
    ask = opinions_on_epsilon if field == "delta" else opinions_on_delta
    try:
        opinions = context.processes.run(ask, events, relation, asked, step)
    except (JobFailed, Problem) as failure:
        return [_without_opinion(field, f"No second opinion: {failure}. The interval stands.") for _ in answers]
    except Exception as error:  # a library's failure of any type must not fail the answer
        words = f"No second opinion: dp-accounting failed with {type(error).__name__}. The interval stands."
        return [_without_opinion(field, words) for _ in answers]
    return [_body(field, opinion, answer, step) for opinion, answer in zip(opinions, answers, strict=True)]


def _body(field: str, opinion: Opinion, answer: Answer, step: float) -> CertificationBody:
    interval, finite = answer.value, math.isfinite(opinion.value)
    agrees = opinion.agrees(interval)
    position = opinion.position(interval) if finite else None
    return CertificationBody.model_validate(
        {
            "engine": engine(),
            _quantity(field): opinion.value if finite else None,
            "value_discretization_interval": step,
            "rounding_allowance": opinion.rounding if math.isfinite(opinion.rounding) else None,
            "discretization_allowance": opinion.discretization if math.isfinite(opinion.rounding) else None,
            "position": position,
            "agrees": agrees,
            "note": _note(_quantity(field), opinion, agrees, position),
        }
    )


def _note(quantity: str, opinion: Opinion, agrees: bool | None, position: str | None) -> str:
    if not math.isfinite(opinion.value):
        return f"It finds no finite {quantity} here: its lattice sends more than this delta to infinite losses."
    if agrees is None:
        return (
            "No agreement can be told: its double precision does not resolve deltas near 1e-12 and below, nor epsilons "
            "beyond 700."
        )
    if not agrees:
        return (
            f"Its {quantity} lies {position} the interval by more than its rounding and its lattice explain: one of "
            "the two accounts is wrong here, or its lattice too coarse. Please report the request."
        )
    if position == "within":
        return "Its pessimistic number lies in the interval."
    return f"Its pessimistic number lies {position} the interval, by no more than its rounding and its lattice explain."


def _without_opinion(field: str, note: str) -> CertificationBody:
    return CertificationBody.model_validate(
        {
            "engine": engine(),
            _quantity(field): None,
            "value_discretization_interval": None,
            "rounding_allowance": None,
            "discretization_allowance": None,
            "position": None,
            "agrees": None,
            "note": note,
        }
    )


def _quantity(field: str) -> str:
    return "epsilon" if field == "delta" else "delta"
