"""Simulated results of the applicable algorithms on synthetic rows: an addition to advice, not part of any theorem."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from app.algorithms.geometry import PenaltyBody, to_penalty
from app.algorithms.model_choice import MAX_HIDDEN_LAYERS, MAX_WIDTH
from app.algorithms.reasons import RefusalBody, reason_body
from app.context import Context
from app.kit.fields import INTEGRAL, Integer, Schema
from app.kit.process_pool import JobFailed, too_much_work
from app.problems import refused_at
from calibrators.advice import Advice, Facts, Reason
from calibrators.geometry import L2Penalty
from calibrators.scopes import Problem, Shape
from trainer.simulation.attained import MAX_REPETITIONS, Attained, Simulation, before_training, ranked, simulate

#: No further algorithm is begun after this many seconds.
MOST_SECONDS = 100.0
#: The runs' share of the time limit of a job's process; the rest is for starting the process and for its answer.
SHARE_OF_TIME = 0.8

LABEL = (
    "A simulation is not a bound. Its rows are synthetic: they follow from the declared numbers and the seed, and from "
    "no data set. Other rows may give another order."
)
_FEWER = (
    "It has {records} of {dataset_size} rows, and each mean has the noise that it would have with all of them: the "
    "target's mu is multiplied by {factor:.4g}. Only the sampling error is larger, and all algorithms share it."
)
_INTERCEPT = "Each row has a constant feature 1, which counts in its length."
_PENALTY = (
    "Runs have the {kind} penalty of strength {strength:g}. Their results are judged by the loss on new rows without "
    "the penalty, as a model is evaluated. So every excess contains what the penalty costs the fit."
)
_LESS_CONVEX = (
    "The simulated objective is {has} strongly convex, but the problem says {asked:g}: algorithms that use strong "
    "convexity attain less here. An l2 penalty of that strength adds it."
)
_TAUGHT = (
    "Features lie in [-1, 1], and another perceptron of the same shape draws the labels. Bounds of gradients do not "
    "affect the rows, since a perceptron has none."
)

#: A function that is called with the number of finished algorithms and the total number of algorithms.
Reached = Callable[[int, int], None]


class SimulationRequest(Schema):
    """Settings of a simulation. It runs the applicable algorithms on synthetic rows of the declared shape."""

    model: (
        Literal[
            "logistic_regression",
            "softmax_regression",
            "linear_regression",
            "huber_regression",
            "quantile_regression",
            "q_norm_regression",
            "q_norm_hinge",
            "mlp",
            "mean",
        ]
        | None
    ) = Field(
        None,
        description="The model; if left out, the mean for the shape mean, otherwise a logistic regression. "
        "`logistic_regression`: A label of two classes. `softmax_regression`: A label of as many classes as `classes` "
        "says. `linear_regression`: Least squares. `huber_regression`: Squared error up to 1, absolute error beyond. "
        "`quantile_regression`: The median of the label. `q_norm_regression`: The error's power of 1.5. "
        "`q_norm_hinge`: The hinge's power of 1.5. `mlp`: A perceptron, for the shape nonconvex. `mean`: The mean of "
        "the features.",
    )
    classes: Integer = Field(
        2, ge=2, le=100, description="How many classes a `softmax_regression` or an `mlp` has; other models ignore it."
    )
    fit_intercept: bool = Field(
        False,
        description="Whether a linear model has a constant feature 1, whose parameters are among `dimension` and "
        "which counts in the length of a row; other models ignore it.",
    )
    hidden: list[Annotated[int, Field(ge=1, le=MAX_WIDTH), INTEGRAL]] = Field(
        [16], min_length=1, max_length=MAX_HIDDEN_LAYERS, description="Widths of an `mlp`'s hidden layers."
    )
    activation: Literal["relu", "tanh"] = Field(
        "relu",
        description="Activation of an `mlp`. `relu`: The positive part. `tanh`: The hyperbolic tangent.",
    )
    penalty: PenaltyBody | None = Field(
        None,
        description="What runs add to the loss; algorithms that take none are not simulated. `smoothness` and "
        "`strong_convexity` include it. If left out, nothing is added.",
    )
    repetitions: Integer = Field(
        3, ge=1, le=MAX_REPETITIONS, description="Runs of each algorithm; each has its own rows and noise."
    )
    seed: Integer = Field(0, ge=0, le=2**31 - 1, description="A public number that determines rows, batches and noise.")


class SimulatedBody(Schema):
    """The result of one algorithm in the simulation."""

    algorithm: str
    excess: float | None = Field(description="Mean over the runs, in `unit`; null if a run diverged.")
    standard_error: float | None = Field(description="The standard error of that mean; null for a single run.")
    why: str = Field(description="A sentence that says what the number means.")
    iterations: int
    choices: dict[str, Any] = Field(description="What was chosen for it, by member of a request.")


class SimulationAnswer(Schema):
    """Results on synthetic rows, the best first. The order does not depend on the theorems."""

    label: str = Field(description="What kind of number this is.")
    details: list[str]
    model: str
    unit: str = Field(description="What an excess is.")
    dataset_size: int = Field(description="Rows that were trained on.")
    repetitions: int
    seed: int
    fit_intercept: bool = Field(description="Whether the linear model has an intercept.")
    penalty: dict[str, Any] | None = Field(description="What runs add to the loss.")
    before_training: float = Field(
        description="The excess of the point that training starts from; for an `mlp`, that of equal probabilities."
    )
    ranked: list[SimulatedBody]
    others: list[RefusalBody] = Field(description="Algorithms that apply and were not simulated.")
    is_complete: bool = Field(
        description="False if time ran out for some of `others`; ask for these with `algorithms`."
    )


def read(request: SimulationRequest, problem: Problem, facts: Facts) -> Simulation:
    """Read and check the settings of a simulation.

    Raises:
        Problem: 422 with a pointer to the field that does not fit.
    """
    usual = "mean" if problem.shape is Shape.MEAN else "logistic_regression"
    kind = request.model or usual
    perceptron = kind == "mlp"
    with refused_at():
        return Simulation(
            problem,
            facts,
            kind,
            classes=request.classes if perceptron or kind == "softmax_regression" else 0,
            fit_intercept=request.fit_intercept and kind not in ("mlp", "mean"),
            hidden=tuple(request.hidden) if perceptron else (),
            activation=request.activation,
            penalty=to_penalty(request.penalty),
            repetitions=request.repetitions,
            seed=request.seed,
        )


def simulated(
    context: Context, asked: Simulation, advised: Sequence[Advice], on_progress: Reached | None = None
) -> SimulationAnswer:
    """Run the advised algorithms one after the other, each in a process with limits of time and memory.

    Raises:
        Problem: 422 ``too_much_work``: not even rows were drawn in time.
    """
    deadline = time.monotonic() + MOST_SECONDS
    found: list[Attained] = []
    applying = [each for each in advised if each.spec is not None]
    with too_much_work("the simulation", "ask for fewer parameters", "simulation"):
        start, unit = context.audit_processes.run(before_training, asked)
    for done, item in enumerate(applying):
        if on_progress is not None:
            on_progress(done, len(applying))
        found.append(_within_limits(context, asked, item, deadline - time.monotonic()))
    return SimulationAnswer(
        label=LABEL,
        details=_details(asked),
        model=asked.kind,
        fit_intercept=asked.fit_intercept,
        penalty=None if asked.penalty is None else asked.penalty.to_json(),
        unit=unit,
        dataset_size=asked.records,
        repetitions=asked.repetitions,
        seed=asked.seed,
        before_training=start,
        ranked=[_simulated(each, start) for each in ranked(found)],
        others=[
            RefusalBody(algorithm=each.algorithm, reasons=[reason_body(each.reason)])
            for each in found
            if each.reason is not None
        ],
        is_complete=all(each.is_final for each in found),
    )


def _within_limits(context: Context, asked: Simulation, item: Advice, left: float) -> Attained:
    seconds = min(left, SHARE_OF_TIME * context.audit_processes.seconds)
    if seconds <= 0.0:
        return Attained(item.algorithm, reason=Reason("the time of the simulation ran out before it"), is_final=False)
    assert item.spec is not None, "it applies"
    try:
        return context.audit_processes.run(simulate, asked, item.algorithm, item.spec, seconds)
    except JobFailed as failure:
        return Attained(item.algorithm, reason=Reason(f"it was given up: {failure}"), is_final=False)


def _details(asked: Simulation) -> list[str]:
    sizes = {"records": asked.records, "dataset_size": asked.facts.dataset_size, "factor": asked.factor}
    found = [] if asked.factor == 1.0 else [_FEWER.format(**sizes)]
    if asked.fit_intercept:
        found.append(_INTERCEPT)
    if asked.penalty is not None:
        found.append(_PENALTY.format(**asked.penalty.to_json()))
    strength = asked.penalty.strength if isinstance(asked.penalty, L2Penalty) else 0.0
    declared = asked.problem.constants(asked.facts.assumptions)
    convexity = max(declared.get("strong_convexity", 0.0), declared.get("pl_constant", 0.0))
    if convexity > strength:
        found.append(_LESS_CONVEX.format(has=f"{strength:g}" if strength else "not", asked=convexity))
    return [*found, *([_TAUGHT] if asked.kind == "mlp" else [])]


def _simulated(item: Attained, start: float) -> SimulatedBody:
    assert item.excess is not None, "it was simulated"
    assert item.steps is not None, "it was simulated"
    return SimulatedBody(
        algorithm=item.algorithm,
        excess=item.excess if math.isfinite(item.excess) else None,
        standard_error=item.standard_error,
        why=_why(item.excess, start),
        iterations=item.steps,
        choices=dict(item.choices),
    )


def _why(excess: float, start: float) -> str:
    if not math.isfinite(excess):
        return "A run diverged, so the point that it released cannot be used."
    if excess >= start:
        return f"It was {excess:.3g} worse than the best point, and before training only {start:.3g}: training harms."
    share = 1.0 - excess / start
    return f"It was {excess:.3g} worse than the best point; before training it is {start:.3g}. It closed {share:.0%}."
