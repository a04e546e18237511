"""`/v1/calibrate/events`: solve for one field of a list of events from any pipeline, so that the list meets a
target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from pydantic import Field, ValidationError

from accounting.convention import convention
from accounting.errors import AccountingError, NoCostInFilter, Unreachable
from accounting.numbers import MAX_EVENTS
from accounting.relations import NeighboringRelation
from accounting.schedule_warnings import public_size, schedule_warnings, weak_guarantee
from accounting.solve.open_events import OpenEvents, OpenField, Solved, solve_events
from accounting.targets import ApproximateDpTarget, GroupDpTarget, Target
from app.algorithms.calibrate import NextBody
from app.algorithms.service import remedy_of
from app.algorithms.targets import AnyAchievedBody, RunTargetBody, achieved_body, to_target
from app.context import Context
from app.kit.fields import Schema
from app.kit.process_pool import too_much_work
from app.kit.validation import from_model
from app.problems import Problem, from_accounting, unprocessable
from app.wire.answers import ConventionBody
from app.wire.events import EventSchema, to_events
from calibrators.spec import OpenDelta, OpenEpsilon, Unknown

#: The value that stands in for an open field while the event is checked, before anything is solved.
_PROBES = {
    OpenField.NOISE_MULTIPLIER: 1.0,
    OpenField.COUNT: 1.0,
    OpenField.SAMPLING_PROBABILITY: 0.5,
    OpenField.BATCH_SIZE: 1.0,
}


class CalibrateEventsRequest(Schema):
    """A list of events from which one field is left out."""

    events: list[dict[str, Any]] = Field(
        min_length=1,
        max_length=MAX_EVENTS,
        description="The events are as in `/v1/account`. Leave the field that `solve_for` names out of the events "
        "that are to share its value; the others stay as they are. A count that is left out and not solved for is 1.",
    )
    neighboring_relation: NeighboringRelation = Field(NeighboringRelation.ADD_OR_REMOVE_ONE, strict=False)
    target: RunTargetBody
    solve_for: Literal["noise_multiplier", "count", "sampling_probability", "batch_size"] = Field(
        "noise_multiplier",
        description="The field that is left out. `noise_multiplier`: the smallest noise that is found. `count`: the "
        "largest number of steps. `sampling_probability`: the largest probability that is found. `batch_size`: the "
        "largest size of batches without replacement.",
    )


class CalibrateEventsAnswer(Schema):
    solve_for: str
    value: float = Field(description="The value of the field, in each event that left it out.")
    achieved: AnyAchievedBody = Field(
        description="What the events guarantee with it, in the target's own fields; the certified upper end meets the "
        "target."
    )
    next: NextBody | None = Field(description="The next larger integer, for count and batch_size; else null.")
    is_extreme: bool = Field(
        description="Whether the cost is proved to be monotone in the field, so that no value beyond this one meets "
        "the target. If it is not, the value is still certified, but another one may also meet the target."
    )
    events: list[EventSchema]
    convention: ConventionBody
    warnings: list[str]


EVENTS_EXAMPLES: dict[str, Any] = {
    "noise_of_a_pipeline": {
        "summary": "The noise of two phases, with a stated release beside them",
        "value": {
            "events": [
                {
                    "mechanism": {"kind": "gaussian"},
                    "sampling": {"kind": "poisson", "sampling_probability": 0.01},
                    "count": 5000,
                },
                {
                    "mechanism": {"kind": "gaussian"},
                    "sampling": {"kind": "poisson", "sampling_probability": 0.02},
                    "count": 500,
                },
                {"mechanism": {"kind": "pure_dp", "epsilon": 0.1}},
            ],
            "target": {"kind": "approximate_dp", "epsilon": 2.0, "delta": 1e-6},
        },
    },
    "steps_of_truncated_batches": {
        "summary": "How many steps with batches that are cut at random",
        "value": {
            "events": [
                {
                    "mechanism": {"kind": "gaussian", "noise_multiplier": 4.0},
                    "sampling": {
                        "kind": "truncated_poisson",
                        "sampling_probability": 0.01,
                        "max_batch_size": 1100,
                        "dataset_size": 100000,
                        "truncation": "random",
                    },
                }
            ],
            "target": {"kind": "approximate_dp", "epsilon": 1.0, "delta": 1e-6},
            "solve_for": "count",
        },
    },
}


def answer(context: Context, request: CalibrateEventsRequest) -> CalibrateEventsAnswer:
    """Solve for the field that is left out.

    Raises:
        Problem: 422 with a pointer to the field that is malformed, unsupported or unreachable.
    """
    field, relation = OpenField(request.solve_for), request.neighboring_relation
    target = to_target(request.target, Unknown.NOISE_MULTIPLIER, None)
    assert not isinstance(target, OpenEpsilon | OpenDelta), "the request gives epsilon and delta"
    defaults: dict[str, Any] = {"sampling": {"kind": "full_batch"}}
    if field is not OpenField.COUNT:
        defaults["count"] = 1
    open_events = OpenEvents(tuple(defaults | event for event in request.events), field)
    _check(open_events, {"events": request.events})
    samplings = [cast(Mapping[str, str], event["sampling"]) for event in open_events.events]
    remedy = remedy_of(*(sampling["kind"] for sampling in samplings))
    with context.metrics.evaluation() as found:
        try:
            with too_much_work("the calibration", remedy, "events"):
                solved = context.processes.run(solve_events, open_events, relation, target)
        except AccountingError as error:
            raise _refusal(error) from None
        found.evaluator = solved.achieved.method
    return _answer(request, target, solved)


def _answer(request: CalibrateEventsRequest, target: Target, solved: Solved) -> CalibrateEventsAnswer:
    relation = request.neighboring_relation
    warnings = list(solved.achieved.warnings)
    if isinstance(target, ApproximateDpTarget | GroupDpTarget):
        warnings += schedule_warnings(solved.events, relation, delta=target.delta)
        records = public_size(solved.events)
        warnings += weak_guarantee(epsilon=target.epsilon, delta=target.delta, records=records)
    following = None
    if solved.next_achieved is not None:
        following = NextBody(value=int(solved.value) + 1, achieved=achieved_body(target, solved.next_achieved))
    return CalibrateEventsAnswer(
        solve_for=request.solve_for,
        value=solved.value,
        achieved=achieved_body(target, solved.achieved),
        next=following,
        is_extreme=solved.is_extreme,
        events=[EventSchema.of(event) for event in solved.events],
        convention=ConventionBody.model_validate(convention(relation, solved.events)),
        warnings=warnings,
    )


def _check(open_events: OpenEvents, body: Any) -> None:
    """Refuse events that are invalid for every value of the field."""
    schemas = []
    for index, filled in enumerate(open_events.filled(_PROBES[open_events.field])):
        try:
            schemas.append(EventSchema.model_validate(filled))
        except ValidationError as error:
            raise from_model(error, EventSchema, body, "events", index) from None
    if open_events.open:
        to_events(schemas)


def _refusal(error: AccountingError) -> Problem:
    if isinstance(error, Unreachable):
        return unprocessable(error.code, error.detail, "target")
    if isinstance(error, NoCostInFilter):
        return unprocessable(
            error.code, f"no proof shows that these events meet the target: {error.detail}", "target", "kind"
        )
    return from_accounting(error, "events")
