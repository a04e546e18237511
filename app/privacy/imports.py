"""Request and answer of `/v1/import`: the history of another library is accounted again, and differences are
explained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi.openapi.models import Example
from pydantic import Field

from accounting.accountant import epsilon_for_delta
from accounting.convention import convention
from accounting.dp_accounting_adapter import library_epsilon
from accounting.dp_events import NoiseOver
from accounting.errors import inside
from accounting.interoperability import Batches, Imported, OpacusHistory, Reported, import_dp_event, import_opacus
from accounting.interoperability.calls import PastedCall
from accounting.intervals import Answer
from accounting.numbers import MAX_COUNT, MAX_EVENTS
from accounting.relations import NeighboringRelation
from accounting.schedule_warnings import schedule_warnings
from app.context import Context
from app.kit.fields import INTEGRAL, Schema
from app.kit.process_pool import JobFailed, too_much_work
from app.privacy.calls import CallBody, CallSource, refused_in_call
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
    """The `state_dict()` of an accountant of Opacus. In a checkpoint it is `privacy_accountant_state_dict`."""

    kind: Literal["opacus"]
    mechanism: Literal["rdp", "prv", "gdp"] = Field(
        description="The accountant. `rdp`: Renyi differential privacy. `prv`: Privacy random variables, composed "
        "numerically. `gdp`: Gaussian differential privacy by a central limit theorem, which is not a bound."
    )
    history: list[HistoryEntry] = Field(
        min_length=1, max_length=MAX_EVENTS, description="[noise multiplier, sample rate, steps] each."
    )
    batches: Batches = Field(
        Batches.POISSON, strict=False, description="What the loader did; the history does not show it."
    )


class DpEventSource(Schema):
    """A `DpEvent` of dp-accounting, which JAX Privacy and TF Privacy use, as `to_named_tuple` writes it."""

    kind: Literal["dp_event"]
    event: dict[str, Any] = Field(
        description='`{"class_name": "GaussianDpEvent", "noise_multiplier": 1.1}`; events inside it are such objects.'
    )
    accountant: Literal["rdp", "pld"] = Field(
        "rdp",
        description="The accountant whose number is compared. `rdp`: dp-accounting's Renyi accountant. `pld`: Its "
        "accountant of "
        "privacy loss distributions.",
    )
    noise_over: NoiseOver = Field(
        NoiseOver.CONTRIBUTION_BOUND,
        strict=False,
        description="The quantity of which its noise multipliers are multiples.",
    )
    batches: Batches = Field(
        Batches.POISSON, strict=False, description="What the loader did, if the event says Poisson samples."
    )


Source = Annotated[OpacusSource | DpEventSource | CallSource, Field(discriminator="kind", title="Source")]


class ImportRequest(Schema):
    """A history that another library recorded, and the point at which its number is compared."""

    source: Source
    neighboring_relation: NeighboringRelation | None = Field(
        None,
        strict=False,
        description="The relation; if null, the one that the library means, which is `add_or_remove_one` for a "
        "history.",
    )
    delta: float | None = Field(None, ge=1e-30, le=0.5, description="Needed unless a pasted call says it.")


class ReportedBody(Schema):
    """The library's own number for the same history."""

    library: str
    accountant: str
    neighboring_relation: str = Field(description="The relation that its number is about.")
    epsilon: float | None = Field(description="Null if it has none.")
    position: Literal["below", "within", "above"] | None = Field(
        description="The position of its number. `below`: Below our interval; it reports too little privacy loss. "
        "`within`: Between lower and upper. `above`: Above our interval; it reports more than is proved to be needed. "
        "null: it has no number."
    )
    note: str


class DifferenceBody(Schema):
    """One reason why the two numbers differ."""

    code: str
    detail: str
    unsound: bool = Field(description="Whether the library may report too little privacy loss because of it.")


class ImportAnswer(Schema):
    """The history as accounted events of this service, and the library's number."""

    events: list[EventSchema] = Field(
        description="The events, with equal steps merged, ready to be charged or accounted further."
    )
    epsilon: IntervalBody
    delta: float
    method: str
    error_budget: dict[str, float]
    reported: ReportedBody
    differences: list[DifferenceBody]
    call: CallBody | None = Field(description="What was understood of a pasted call; null for a record.")
    convention: ConventionBody
    warnings: list[str]


#: The path to the text of each kind of source.
_TEXT = {"opacus": (), "dp_event": ("event",), "call": ("code",)}


def answer_import(context: Context, request: ImportRequest) -> ImportAnswer:
    """Account the history of another library again.

    Raises:
        Problem: 422 with a pointer to the field that cannot be read or accounted here.
    """
    source = request.source
    if request.delta is None and not isinstance(source, CallSource):
        raise unprocessable("missing", "delta is needed: what was recorded does not say it", "delta")
    remedy = "import a history of fewer different steps"
    refusing = refused_in_call() if isinstance(source, CallSource) else refused_at("source")
    with refusing, too_much_work("this", remedy, "source"):
        found = context.processes.run(_account, source, request.neighboring_relation, request.delta)
    imported, answer = found.imported, found.answer
    if answer is None:
        raise unprocessable("invalid_value", "it releases nothing", "source", *_TEXT[source.kind])
    theirs, note = imported.reported.epsilon, "Its formula, computed here."
    if found.charged is not None:
        theirs, note = _library(context, found.charged, imported.reported, found.delta)
    elif theirs is None:
        note = "The library has no number for this history."
    interval = answer.value
    return ImportAnswer(
        events=[EventSchema.of(event) for event in imported.events],
        epsilon=IntervalBody.of(interval),
        delta=found.delta,
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
        call=None if found.call is None else CallBody.of(found.call),
        convention=ConventionBody.model_validate(convention(found.relation, imported.events)),
        warnings=list(dict.fromkeys([*found.warnings, *answer.warnings])),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """The recorded events with their epsilon and warnings. There is no epsilon if nothing was released.

    It can be pickled, since it comes from another process.
    """

    imported: Imported
    relation: NeighboringRelation
    delta: float
    answer: Answer | None
    warnings: tuple[str, ...]
    call: PastedCall | None = None
    charged: Mapping[str, Any] | None = None


def _account(
    source: OpacusSource | DpEventSource | CallSource, relation: NeighboringRelation | None, delta: float | None
) -> _Found:
    call, charged = None, None
    if isinstance(source, CallSource):
        call = source.read(delta, relation)
        imported, relation, delta, charged = call.imported(), call.relation, call.delta, call.charged
    else:
        relation = relation or NeighboringRelation.ADD_OR_REMOVE_ONE
        assert delta is not None, "the request has it"
        if isinstance(source, OpacusSource):
            imported = _opacus(source, relation, delta)
        else:
            imported, charged = _dp_event(source, relation), source.event
    if not imported.events:
        return _Found(imported, relation, delta, None, (), call, charged)
    warnings = schedule_warnings(imported.events, relation, delta=delta)
    answer = epsilon_for_delta(imported.events, relation, delta)
    return _Found(imported, relation, delta, answer, warnings, call, charged)


def has_their_number(answer: ImportAnswer) -> bool:
    """Return whether the library's number was found. A less busy server may find a missing one later."""
    return answer.reported.epsilon is not None


def _opacus(source: OpacusSource, relation: NeighboringRelation, delta: float) -> Imported:
    state = {"mechanism": source.mechanism, "history": [list(entry) for entry in source.history]}
    return import_opacus(OpacusHistory.from_state(state), relation, delta, source.batches)


def _dp_event(source: DpEventSource, relation: NeighboringRelation) -> Imported:
    with inside("event"):
        return import_dp_event(
            source.event, relation, source.accountant, noise_over=source.noise_over, batches=source.batches
        )


def _library(context: Context, event: Mapping[str, Any], reported: Reported, delta: float) -> tuple[float | None, str]:
    """Return dp-accounting's own number, found in a limited process; its failure does not fail the import."""
    relation = reported.relation
    try:
        found = context.processes.run(library_epsilon, event, relation, delta, reported.accountant)
    except (JobFailed, Problem) as failure:
        return None, f"No number of the library: {failure}."
    except Exception as error:  # a library's failure of any type must not fail the answer
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
    "pasted_call": {
        "summary": "A call of Opacus as it stands in a script, with what it does not say",
        "value": {
            "source": {
                "kind": "call",
                "code": "privacy_engine.make_private_with_epsilon(module=model, optimizer=optimizer, "
                "data_loader=loader, epochs=10, target_epsilon=3.0, target_delta=1e-5, max_grad_norm=1.0)",
                "dataset_size": 60000,
                "batch_size": 600,
            },
        },
    },
}
