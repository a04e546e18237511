"""Request and answer of `/v1/tuning-cost`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from fastapi.openapi.models import Example
from pydantic import Field

from accounting.convention import convention
from accounting.errors import AccountingError
from accounting.events import Event
from accounting.numbers import MAX_ORDER, MAX_ORDERS
from accounting.relations import NeighboringRelation
from accounting.tuning import Trials, TuningCost, selection_charge, selection_event, tuning_cost
from accounting.tuning import trials_of as read_trials
from accounting.tuning.cost import MAX_STATED, SOURCES
from accounting.tuning.solving import SelectionTarget, solve_noise_factor, with_noise_factor
from accounting.tuning.trials import MAX_ETA, MAX_EXPECTED_TRIALS, MIN_GAMMA
from app.context import Context
from app.kit.fields import Integer, Schema
from app.kit.process_pool import JobFailed
from app.problems import from_accounting, refused_at, unprocessable
from app.wire.answers import ConventionBody, IntervalBody
from app.wire.events import Events, EventSchema, to_events

P = ParamSpec("P")
T = TypeVar("T")

ExpectedTrials = Annotated[float, Field(gt=0, le=MAX_EXPECTED_TRIALS, description="The mean number of runs.")]
Gamma = Annotated[
    float, Field(ge=MIN_GAMMA, le=1, description="The parameter of the distribution, in place of its mean.")
]


class NegativeBinomialTrials(Schema):
    """The truncated negative binomial law. A smaller eta costs less and spreads the number more widely."""

    kind: Literal["truncated_negative_binomial"]
    eta: float = Field(ge=-1, le=MAX_ETA)
    expected_trials: ExpectedTrials | None = None
    gamma: Gamma | None = None


class NamedTrials(Schema):
    """Truncated negative binomial laws that have their own names."""

    kind: Literal["geometric", "logarithmic"] = Field(
        description="`geometric`: The truncated negative binomial law with eta 1. `logarithmic`: The truncated "
        "negative binomial law with eta 0, which costs less and spreads the number of runs more widely."
    )
    expected_trials: ExpectedTrials | None = None
    gamma: Gamma | None = None


class PoissonTrialsIn(Schema):
    """A Poisson number of runs. With probability e^-mean nothing is run or released."""

    kind: Literal["poisson"]
    expected_trials: ExpectedTrials


class FixedTrialsIn(Schema):
    """A public number of runs: all of them are paid for, and all may be released."""

    kind: Literal["fixed"]
    trials: Integer = Field(ge=1, le=int(MAX_EXPECTED_TRIALS))


TrialsIn = Annotated[
    NegativeBinomialTrials | NamedTrials | PoissonTrialsIn | FixedTrialsIn,
    Field(discriminator="kind", title="Distribution"),
]


class SelectionGoal(Schema):
    """Epsilon of the whole selection, at the request's delta."""

    kind: Literal["approximate_dp"]
    epsilon: float = Field(gt=0, le=1e6)
    delta: float = Field(ge=1e-30, le=0.5)


class TuningCostRequest(Schema):
    """The events of ONE run and the number of runs. Give `delta`, or a `target` to solve for the noise."""

    events: Events
    neighboring_relation: NeighboringRelation = Field(NeighboringRelation.ADD_OR_REMOVE_ONE, strict=False)
    distribution: TrialsIn
    delta: float | None = Field(None, ge=0, le=0.5)
    target: SelectionGoal | None = Field(
        None,
        description="A target in place of `delta`: the noise of every event is multiplied by the smallest factor that "
        "meets it.",
    )
    orders: list[Annotated[float, Field(gt=1, le=MAX_ORDER)]] | None = Field(
        None,
        min_length=1,
        max_length=MAX_ORDERS,
        description="Orders of the Renyi divergences, such as those of a budget.",
    )


class DistributionBody(Schema):
    """The law from which the number of runs must be drawn in secret."""

    kind: Literal["truncated_negative_binomial", "poisson", "fixed"] = Field(
        description="`truncated_negative_binomial`: At least one run; `eta` and `gamma` say how the number spreads. "
        "`poisson`: A Poisson number, which may be none. `fixed`: A number that everyone may know."
    )
    eta: float | None = None
    gamma: float | None = None
    trials: int | None = None
    expected_trials: float


class BoundBody(Schema):
    """One proved upper bound of the selection's epsilon."""

    method: str
    epsilon: float | None
    source: str


class RenyiBody(Schema):
    """The selection's divergence of order `orders[i]` is at most `epsilons[i]`."""

    kind: Literal["renyi_dp"]
    orders: list[float]
    epsilons: list[float]


class ChargeBody(Schema):
    """The whole selection as one event: a budget of that kind reserves it once, whatever number is drawn."""

    renyi_dp: EventSchema | None = Field(description="Null if a run has no Renyi divergence, or too large ones.")
    approximate_dp: EventSchema | None = Field(description="Null if epsilon is above 1e6.")


class TuningCostAnswer(Schema):
    """The cost of releasing the best of the runs, and nothing else about them."""

    epsilon: IntervalBody = Field(
        description="Epsilon of the selection. `upper` is proved for every score; `lower` is what it costs with some "
        "score."
    )
    delta: float
    method: str
    bounds: list[BoundBody]
    run: IntervalBody = Field(description="Epsilon of one run, at the same delta.")
    composition: IntervalBody | None = Field(
        description="Epsilon at the same delta if the expected number of runs (rounded up) were all released; null if "
        "these are more steps than can be accounted."
    )
    distribution: DistributionBody
    moments: RenyiBody | None = Field(description="Null if a run has no Renyi divergence.")
    charge: ChargeBody
    noise_factor: float | None = Field(None, description="Given if the request has a target.")
    events: list[EventSchema] | None = Field(
        None, description="The events of one run with that noise, if the request has a target."
    )
    requires: list[str] = Field(description="The conditions that the tuning must meet for these numbers to hold.")
    convention: ConventionBody
    warnings: list[str]


#: The conditions that the theorems place on tuning.
REQUIRES = (
    "The number of runs is drawn from this distribution, independently of the data, and stays secret: neither the time "
    "taken, nor logs, nor costs may show it.",
    "Each run draws its candidate independently from a list fixed in advance, and the events bound every candidate.",
    "The score of a run comes from its own private output, from public data, or from a release that the events count.",
    "One run's result is released, the one with the best score; the others, and their scores, are withheld.",
)


def answer_tuning_cost(context: Context, request: TuningCostRequest) -> TuningCostAnswer:
    """Return the certified cost of a selection; with a target, at the smallest noise that meets it.

    Raises:
        Problem: 422 when a number is missing, given twice or impossible, or no noise meets the target.
    """
    if (request.delta is None) == (request.target is None):
        code = "overdetermined" if request.delta is not None else "missing"
        raise unprocessable(code, "give either delta, to get epsilon, or target, to get the noise", "delta")
    events, relation = to_events(request.events), request.neighboring_relation
    with refused_at("distribution"):
        trials = read_trials(**request.distribution.model_dump(exclude_none=True))
    solved: dict[str, Any] = {}
    delta = request.delta
    try:
        if request.target is not None:
            delta = request.target.delta
            target = SelectionTarget(request.target.epsilon, delta, trials)
            found = _in_bounds(context, solve_noise_factor, events, relation, target)
            events = with_noise_factor(events, found.value)
            solved = {"noise_factor": found.value, "events": [EventSchema.of(event) for event in events]}
        assert delta is not None  # exactly one of the two was given
        cost = _in_bounds(context, tuning_cost, events, relation, trials, delta, orders=request.orders)
    except AccountingError as error:
        raise from_accounting(error, *(("distribution",) if error.pointer[:1] == ("trials",) else ())) from None
    return _answer(cost, events, relation, trials, delta, solved)


def _in_bounds(context: Context, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of ``function``, from a process with limits of time and memory."""
    try:
        return context.processes.run(function, *args, **kwargs)
    except JobFailed as failure:
        words = (
            f"tuning needs many deltas of these events, and computing them took too long: {failure}; ask about "
            "fewer events"
        )
        raise unprocessable("too_much_work", words, "events") from None


def _answer(
    cost: TuningCost,
    events: tuple[Event, ...],
    relation: NeighboringRelation,
    trials: Trials,
    delta: float,
    solved: dict[str, Any],
) -> TuningCostAnswer:
    epsilon = IntervalBody.of(cost.epsilon.value)
    charges = ChargeBody(
        renyi_dp=EventSchema.of(selection_event(cost.moments))
        if cost.moments is not None and min(cost.moments.epsilons) <= MAX_STATED
        else None,
        approximate_dp=EventSchema.of(selection_charge(epsilon.upper, delta))
        if epsilon.upper is not None and epsilon.upper <= MAX_STATED
        else None,
    )
    warnings = [*cost.epsilon.warnings, *cost.run.warnings]
    if cost.moments is None:
        warnings.append("One run has no finite Renyi divergence at these orders, so the selection has none, either.")
    return TuningCostAnswer(
        epsilon=epsilon,
        delta=delta,
        method=cost.epsilon.method,
        bounds=[
            BoundBody(method=method, epsilon=bound if bound < float("inf") else None, source=SOURCES[method])
            for method, bound in cost.bounds.items()
        ],
        run=IntervalBody.of(cost.run.value),
        composition=None if cost.composition is None else IntervalBody.of(cost.composition.value),
        distribution=DistributionBody.model_validate(trials.to_json()),
        moments=None if cost.moments is None else RenyiBody.model_validate(cost.moments.to_json()),
        charge=charges,
        requires=list(REQUIRES),
        convention=ConventionBody.model_validate(convention(relation, events)),
        warnings=list(dict.fromkeys(warnings)),
        **solved,
    )


_RUN = {
    "mechanism": {"kind": "gaussian", "noise_multiplier": 1.1},
    "sampling": {"kind": "poisson", "sampling_probability": 0.01},
    "count": 1000,
}

TUNING_EXAMPLES: dict[str, Example] = {
    "logarithmic": {
        "summary": "The best of about 20 training runs",
        "value": {
            "events": [_RUN],
            "distribution": {"kind": "logarithmic", "expected_trials": 20},
            "delta": 1e-6,
        },
    },
    "pure": {
        "summary": "Liu & Talwar's threefold epsilon: a geometric number of pure runs",
        "value": {
            "events": [{"mechanism": {"kind": "pure_dp", "epsilon": 0.5}}],
            "distribution": {"kind": "geometric", "gamma": 0.01},
            "delta": 0,
        },
    },
    "noise_for_a_target": {
        "summary": "How much more noise a run needs so that the whole tuning is (2, 1e-6)-DP",
        "value": {
            "events": [{"mechanism": {"kind": "gaussian", "noise_multiplier": 1.0}}],
            "distribution": {"kind": "poisson", "expected_trials": 10},
            "target": {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-6},
        },
    },
    "negative_binomial": {
        "summary": "Between logarithmic and geometric: about 50 runs by the law with eta 0.5",
        "value": {
            "events": [_RUN],
            "distribution": {"kind": "truncated_negative_binomial", "eta": 0.5, "expected_trials": 50},
            "delta": 1e-6,
        },
    },
    "all_released": {
        "summary": "Ten runs all of which are released",
        "value": {"events": [_RUN], "distribution": {"kind": "fixed", "trials": 10}, "delta": 1e-6},
    },
}
