"""Request and answer of `/v1/import`: what another library recorded, re-accounted, and why the numbers differ."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi.openapi.models import Example
from pydantic import Field

from accounting.accountant import epsilon_for_delta
from accounting.convention import convention
from accounting.dp_accounting_adapter import library_epsilon
from accounting.dp_events import NoiseOver
from accounting.errors import inside
from accounting.interoperability import Batches, Imported, OpacusHistory, import_dp_event, import_opacus
from accounting.intervals import Answer
from accounting.numbers import MAX_COUNT, MAX_EVENTS
from accounting.relations import NeighboringRelation
from accounting.schedule_warnings import schedule_warnings
from app.context import Context
from app.kit.fields import INTEGRAL, Schema
from app.kit.process_pool import JobFailed, too_much_work
from app.problems import Problem, refused_at, unprocessable
from app.wire.answers import ConventionBody, IntervalBody, error_budget
from app.wire.events import EventSchema

HistoryEntry = Annotated[
    tuple[
        Annotated[float, Field(gt=0, le=1e6, description="Noise multiplier.")],
        Annotated[float, Field(gt=0, le=1, description="Sample rate.")],
        Annotated[int, Field(ge=1, le=MAX_COUNT, description="Steps."), INTEGRAL],
    ],
    Field(strict=False),
]


class OpacusSource(Schema):
    """The `state_dict()` of an accountant of Opacus; in a checkpoint `privacy_accountant_state_dict`."""

    kind: Literal["opacus"]
    mechanism: Literal["rdp", "prv", "gdp"] = Field(
        description="The accountant. `rdp`: Renyi differential privacy. `prv`: Privacy random variables, composed "
        "numerically. `gdp`: Gaussian differential privacy by a central limit, which is no bound."
    )
    history: list[HistoryEntry] = Field(
        min_length=1, max_length=MAX_EVENTS, description="[noise multiplier, sample rate, steps] each."
    )
    batches: Batches = Field(
        Batches.POISSON, strict=False, description="What the loader did; the history is the same for both."
    )


class DpEventSource(Schema):
    """A `DpEvent` of dp-accounting, which JAX Privacy and TF Privacy use, as `to_named_tuple` writes it."""

    kind: Literal["dp_event"]
    event: dict[str, Any] = Field(
        description='`{"class_name": "GaussianDpEvent", "noise_multiplier": 1.1}`; events inside it are such objects.'
    )
    accountant: Literal["rdp", "pld"] = Field(
        "rdp",
        description="Whose number is compared. `rdp`: dp-accounting's Renyi accountant. `pld`: Its accountant of "
        "privacy loss distributions.",
    )
    noise_over: NoiseOver = Field(
        NoiseOver.CONTRIBUTION_BOUND,
        strict=False,
        description="The quantity that its noise multipliers are multiples of.",
    )
    batches: Batches = Field(
        Batches.POISSON, strict=False, description="What the loader did where the event says Poisson samples."
    )


Source = Annotated[OpacusSource | DpEventSource, Field(discriminator="kind", title="Source")]


class ImportRequest(Schema):
    """What another library recorded, and where its number is compared."""

    source: Source
    neighboring_relation: NeighboringRelation = Field(NeighboringRelation.ADD_OR_REMOVE_ONE, strict=False)
    delta: float = Field(ge=1e-30, le=0.5)


class ReportedBody(Schema):
    """What the library says of the same history."""

    library: str
    accountant: str
    neighboring_relation: str = Field(description="The one that its number means.")
    epsilon: float | None = Field(description="Null where it has none, or it is not computed here.")
    position: Literal["below", "within", "above"] | None = Field(
        description="Its number, seen from our interval. `below`: It reports less privacy loss than there is. "
        "`within`: Between lower and upper. `above`: It reports more than is proved to be needed. null: it has none."
    )
    note: str


class DifferenceBody(Schema):
    """One reason why the two numbers differ."""

    code: str
    detail: str
    unsound: bool = Field(description="Whether the library may report too little privacy loss because of it.")


class ImportAnswer(Schema):
    """The history as events of this service, accounted, beside the library's number."""

    events: list[EventSchema] = Field(description="Equal steps together; to be charged, or accounted further.")
    epsilon: IntervalBody
    delta: float
    method: str
    error_budget: dict[str, float]
    reported: ReportedBody
    differences: list[DifferenceBody]
    convention: ConventionBody
    warnings: list[str]


def answer_import(context: Context, request: ImportRequest) -> ImportAnswer:
    """Re-account what another library recorded.

    Raises:
        Problem: 422 at what cannot be read, or has no account here.
    """
    relation, delta, source = request.neighboring_relation, request.delta, request.source
    remedy = "import a history of fewer different steps"
    with refused_at("source"), too_much_work("this", remedy, "source"):
        imported, answer, warnings = context.processes.run(_account, source, relation, delta)
    if answer is None:
        raise unprocessable("invalid_value", "it releases nothing", "source", "event")
    if isinstance(source, OpacusSource):
        theirs = imported.reported.epsilon
        note = "Its number is not computed here." if theirs is None else "Its formula, computed here."
    else:
        theirs, note = _library(context, source, relation, delta)
    interval = answer.value
    return ImportAnswer(
        events=[EventSchema.of(event) for event in imported.events],
        epsilon=IntervalBody.of(interval),
        delta=delta,
        method=answer.method,
        error_budget=error_budget(answer),
        reported=ReportedBody(
            library=imported.reported.library,
            accountant=imported.reported.accountant,
            neighboring_relation=str(imported.reported.relation),
            epsilon=theirs,
            position=_position(theirs, interval.lower, interval.upper),
            note=note,
        ),
        differences=[
            DifferenceBody(code=each.code, detail=each.detail, unsound=each.unsound) for each in imported.differences
        ],
        convention=ConventionBody.model_validate(convention(relation, imported.events)),
        warnings=list(dict.fromkeys([*warnings, *answer.warnings])),
    )


def _account(
    source: OpacusSource | DpEventSource, relation: NeighboringRelation, delta: float
) -> tuple[Imported, Answer | None, tuple[str, ...]]:
    """What was recorded, its epsilon and its warnings; no epsilon where nothing was released.

    It runs in another process, so what it takes and gives can be pickled.
    """
    imported = _opacus(source, relation, delta) if isinstance(source, OpacusSource) else _dp_event(source, relation)
    if not imported.events:
        return imported, None, ()
    warnings = schedule_warnings(imported.events, relation, delta=delta)
    return imported, epsilon_for_delta(imported.events, relation, delta), warnings


def has_their_number(answer: ImportAnswer) -> bool:
    """Whether the library's number is there: another time, with less to do, it may be found."""
    return answer.reported.epsilon is not None


def _opacus(source: OpacusSource, relation: NeighboringRelation, delta: float) -> Imported:
    state = {"mechanism": source.mechanism, "history": [list(entry) for entry in source.history]}
    return import_opacus(OpacusHistory.from_state(state), relation, delta, source.batches)


def _dp_event(source: DpEventSource, relation: NeighboringRelation) -> Imported:
    with inside("event"):
        return import_dp_event(
            source.event, relation, source.accountant, noise_over=source.noise_over, batches=source.batches
        )


def _library(
    context: Context, source: DpEventSource, relation: NeighboringRelation, delta: float
) -> tuple[float | None, str]:
    """Return dp-accounting's own number, found in a limited process; its failure does not fail the import."""
    try:
        found = context.processes.run(library_epsilon, source.event, relation, delta, source.accountant)
    except (JobFailed, Problem) as failure:
        return None, f"No number of the library: {failure}."
    except Exception as error:  # a library's failure, of whatever kind, is no failure of the answer
        return None, f"The library does not account this event under {relation}: {type(error).__name__}."
    if not found < float("inf"):
        return None, "The library finds no finite epsilon."
    return found, "The library's own answer."


def _position(number: float | None, lower: float, upper: float) -> Literal["below", "within", "above"] | None:
    if number is None:
        return None
    if number < lower:
        return "below"
    return "above" if number > upper else "within"


IMPORT_EXAMPLES: dict[str, Example] = {
    "opacus": {
        "summary": "The history of an Opacus accountant, from a checkpoint",
        "value": {
            "source": {"kind": "opacus", "mechanism": "rdp", "history": [[1.1, 0.01, 5000]]},
            "delta": 1e-5,
        },
    },
    "opacus_shuffled": {
        "summary": "The same where the loader shuffled instead of sampling",
        "value": {
            "source": {"kind": "opacus", "mechanism": "prv", "history": [[1.1, 0.01, 500]], "batches": "shuffled"},
            "neighboring_relation": "replace_special",
            "delta": 1e-5,
        },
    },
    "jax_privacy": {
        "summary": "A DpEvent of JAX Privacy or TF Privacy",
        "value": {
            "source": {
                "kind": "dp_event",
                "event": {
                    "class_name": "SelfComposedDpEvent",
                    "count": 1000,
                    "event": {
                        "class_name": "PoissonSampledDpEvent",
                        "sampling_probability": 0.01,
                        "event": {"class_name": "GaussianDpEvent", "noise_multiplier": 1.1},
                    },
                },
            },
            "delta": 1e-5,
        },
    },
}
