"""Use cases of the stateless accounting endpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.convention import convention
from accounting.errors import AccountingError
from accounting.events import Event, FullBatch, group_events
from accounting.intervals import Answer
from accounting.relations import NeighboringRelation
from app.kit.context import Context
from app.privacy.account import AccountAnswer, AccountCurve, AccountRequest, PointBody
from app.privacy.answers import ConventionBody, IntervalBody, error_budget
from app.privacy.schemas import to_events
from app.problems import from_accounting, unprocessable

#: One request may take about as long; then it is refused, and the numerics are free for others.
MOST_SECONDS = 30
#: Each different sampled event costs some 60 ms.
MOST_DIFFERENT_EVENTS = 300

Evaluate = Callable[[Sequence[Event], NeighboringRelation, float], Answer]


def account(context: Context, request: AccountRequest) -> AccountAnswer | AccountCurve:
    """Epsilon at delta or delta at epsilon, one value or many.

    Raises:
        Problem: 422 when both or neither are given, or when the engine refuses the events.
    """
    if (request.delta is None) == (request.epsilon is None):
        code = "overdetermined" if request.delta is not None else "missing"
        raise unprocessable(code, "give delta to get epsilon, or epsilon to get delta; exactly one of them", "delta")
    events = to_events(request.events)
    different = sum(not isinstance(event.sampling, FullBatch) for event in group_events(events))
    if different > MOST_DIFFERENT_EVENTS:
        raise unprocessable(
            "too_much_work",
            f"there are {different} different sampled events; one request composes {MOST_DIFFERENT_EVENTS} at most",
            "events",
        )
    evaluate: Evaluate = epsilon_for_delta if request.delta is not None else delta_for_epsilon
    field = "delta" if request.delta is not None else "epsilon"
    asked = getattr(request, field)
    evaluate_at = partial(_evaluate, context, evaluate, events, request.neighboring_relation)
    answers: list[tuple[float, Answer]] = []
    deadline = time.monotonic() + MOST_SECONDS
    for value in asked if isinstance(asked, list) else [asked]:
        if time.monotonic() > deadline:
            raise unprocessable(
                "too_much_work",
                f"{len(answers)} of the values took {MOST_SECONDS} s; ask for fewer at a time, or about fewer events",
                field,
            )
        answers.append((value, evaluate_at(value)))
    points = [_point(field, value, found) for value, found in answers]
    meaning = ConventionBody.model_validate(convention(request.neighboring_relation, events))
    warnings = list(dict.fromkeys(warning for _, found in answers for warning in found.warnings))
    if isinstance(asked, list):
        return AccountCurve(points=points, convention=meaning, warnings=warnings)
    return AccountAnswer(**dict(points[0]), convention=meaning, warnings=warnings)


def _evaluate(
    context: Context, evaluate: Evaluate, events: Sequence[Event], relation: NeighboringRelation, at: float
) -> Answer:
    try:
        with context.numerics:
            return evaluate(events, relation, at)
    except AccountingError as error:
        raise from_accounting(error, "events") from None


def _point(field: str, value: float, found: Answer) -> PointBody:
    interval = IntervalBody.of(found.value)
    return PointBody(
        epsilon=value if field == "epsilon" else interval,
        delta=value if field == "delta" else interval,
        method=found.method,
        error_budget=error_budget(found),
    )
