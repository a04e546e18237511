"""The total of all charges to a budget at one delta: the filter's promise, and the tight number.

The filter's number holds whatever later charges learnt from earlier outputs. The tight number composes the same steps
as if all of them had been fixed in advance. Every transition counts the steps, so a report reads one row for each
different step, however many charges there were.
"""

from __future__ import annotations

import math

from sqlalchemy.orm import Session

from accounting.events import Event
from accounting.intervals import Answer, Interval
from accounting.numbers import MAX_COUNT
from accounting.relations import NeighboringRelation
from accounting.units import exact, from_nano, to_nano_down, to_nano_up
from app.budgets import repository
from app.budgets.schemas import ReportBody
from app.context import Context
from app.evaluation import Evaluation
from app.ledger.states import Path
from app.problems import Problem
from app.tables.ledger import Budget
from app.wire.answers import IntervalBody

#: The most different steps that are composed tightly, in all and with sampling, and the seconds that this may take: a
#: few steps of Laplace noise take seconds.
MAX_STEPS, MAX_SAMPLED_STEPS, MOST_SECONDS = 300, 60, 20.0
#: The number of tight results that are remembered; beyond that, all are forgotten.
_MOST_REMEMBERED = 1024

CAVEAT = (
    "Report `epsilon` if everything was planned before any result was seen; otherwise `filter_epsilon`. Both are "
    "upper bounds, and both count what was started and not committed. If only a part of a reservation was committed, "
    "`epsilon` counts the whole and `filter_epsilon` what was charged. Do not stop because of either number: only the "
    "limit was fixed beforehand."
)


#: Each different step, and how often it was charged.
Steps = tuple[tuple[Event, int], ...]


def exposed_steps(session: Session, budget: Budget) -> Steps:
    """Return the steps that may have been released under the budget, to be evaluated once the session is closed."""
    return tuple(repository.exposed_steps(session, budget.path, MAX_STEPS))


def report(context: Context, path: Path, steps: Steps, delta: float) -> ReportBody:
    """Return the report on a budget at ``delta``. What is left also depends on the budgets above it."""
    state = path[0]
    answer, warnings = _tight(context, steps, state.relation, delta)
    return ReportBody(
        delta=delta,
        epsilon=None if answer is None else IntervalBody.of(answer.value),
        method=None if answer is None else answer.method,
        filter_epsilon=state.filter.epsilon_at(state.exposed, delta),
        left=_left(path, delta),
        caveat=CAVEAT,
        different_steps=len(steps),
        warnings=warnings,
    )


def _left(path: Path, delta: float) -> float | None:
    least = math.inf
    for level in path:
        limit, used = level.filter.limit_epsilon_at(delta), level.filter.epsilon_at(level.used, delta)
        if limit is None or used is None:
            return None
        left = max(0, to_nano_down(exact(limit)) - to_nano_up(exact(used)))
        least = min(least, float(from_nano(left)))
    return least


def _tight(
    context: Context, steps: Steps, relation: NeighboringRelation, delta: float
) -> tuple[Answer | None, list[str]]:
    if not steps:
        return _NOTHING, []
    if any(count > MAX_COUNT for _, count in steps):
        return None, [
            f"no tight number: a step was charged more than {MAX_COUNT:g} times; only the filter has a number"
        ]
    events = tuple(Event(step.mechanism, step.sampling, count) for step, count in steps)
    if len(steps) > MAX_STEPS or sum(step.sampling.is_amplified for step, _ in steps) > MAX_SAMPLED_STEPS:
        return None, [
            f"no tight number: there are more than {MAX_STEPS} different steps, or more than {MAX_SAMPLED_STEPS} "
            "different sampled ones; only the filter has a number"
        ]
    try:
        answer = _epsilon(context, events, relation, delta)
    except Problem as problem:
        if problem.status != 422:
            raise
        if problem.code != "too_much_work":
            return None, [f"no tight number: {problem.detail}"]
        return None, [
            f"no tight number: composing {len(steps)} different steps takes more than {MOST_SECONDS:g} s, or too much "
            f"memory; only the filter has a number"
        ]
    return answer, list(answer.warnings)


_NOTHING = Answer(Interval(0.0, 0.0, 0.0), "nothing_charged")
_REMEMBERED: dict[tuple[tuple[Event, ...], NeighboringRelation, float], Answer] = {}


def _epsilon(context: Context, events: tuple[Event, ...], relation: NeighboringRelation, delta: float) -> Answer:
    question = (events, relation, delta)
    found = _REMEMBERED.get(question)
    if found is None:
        (found,) = Evaluation(context, events, relation, MOST_SECONDS).epsilons([delta])
        if len(_REMEMBERED) >= _MOST_REMEMBERED:
            _REMEMBERED.clear()
        _REMEMBERED[question] = found
    return found
