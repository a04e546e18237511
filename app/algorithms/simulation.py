"""What the algorithms that apply attain on synthetic rows: asked for beside advice, and no part of any theorem."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import Field

from app.algorithms.reasons import RefusalBody, reason_body
from app.context import Context
from app.kit.fields import Integer, Schema
from app.kit.process_pool import JobFailed, too_much_work
from app.problems import refused_at
from calibrators.advice import Advice, Facts, Reason
from calibrators.scopes import Problem, Shape
from trainer.simulation.attained import MAX_REPETITIONS, Attained, Simulation, before_training, ranked, simulate

#: After so long no further algorithm is begun.
MOST_SECONDS = 100.0
#: Of the limit of a job's process, so much is for the runs; the rest is for starting and for answering.
SHARE_OF_TIME = 0.8

LABEL = (
    "A simulation, and no bound. Rows are synthetic: they follow from the declared numbers and the seed, and no data "
    "set has a part in them. Other rows may give another order."
)
_FEWER = (
    "It has {records} of {dataset_size} rows, and each mean has the noise that it would have with all of them: the "
    "target's mu is multiplied by {factor:.4g}. What is larger is the sampling error, which all algorithms share."
)
_NO_PENALTY = (
    "The simulated loss has no penalty. Algorithms that make use of a strong convexity that the penalty would give "
    "attain less here than with it."
)

#: Takes how many algorithms are through, and how many there are.
Reached = Callable[[int, int], None]


class SimulationRequest(Schema):
    """Whether, and how, the algorithms that apply are run on synthetic rows of the declared shape."""

    model: (
        Literal[
            "logistic_regression",
            "softmax_regression",
            "linear_regression",
            "huber_regression",
            "quantile_regression",
            "q_norm_regression",
            "q_norm_hinge",
            "mean",
        ]
        | None
    ) = Field(
        None,
        description="What is trained, without an intercept; left out, the mean for the shape mean, else a logistic "
        "regression. `logistic_regression`: A label of two classes. `softmax_regression`: A label of as many classes "
        "as `classes` says. `linear_regression`: Least squares. `huber_regression`: Squared error up to 1, absolute "
        "error beyond. `quantile_regression`: The median of the label. `q_norm_regression`: The error's power of 1.5. "
        "`q_norm_hinge`: The hinge's power of 1.5. `mean`: The mean of the features.",
    )
    classes: Integer = Field(
        2, ge=2, le=100, description="How many classes a `softmax_regression` has; other models do not read it."
    )
    repetitions: Integer = Field(
        3, ge=1, le=MAX_REPETITIONS, description="Runs of each algorithm, each on rows and with noise of its own."
    )
    seed: Integer = Field(0, ge=0, le=2**31 - 1, description="Public: it decides rows, batches and noise.")


class SimulatedBody(Schema):
    """What an algorithm attained in the simulation."""

    algorithm: str
    excess: float | None = Field(description="Mean over the runs, in `unit`; null where a run diverged.")
    standard_error: float | None = Field(description="The standard error of that mean; null for a single run.")
    why: str = Field(description="What the number says, in a sentence.")
    iterations: int
    choices: dict[str, Any] = Field(description="What was chosen for it, by member of a request.")


class SimulationAnswer(Schema):
    """What was attained on synthetic rows, the best first, whatever the algorithms' theorems are about."""

    label: str = Field(description="What kind of number this is.")
    details: list[str]
    model: str
    unit: str = Field(description="What an excess is.")
    dataset_size: int = Field(description="Rows that were trained on.")
    repetitions: int
    seed: int
    before_training: float = Field(description="The excess of the point that training starts from.")
    ranked: list[SimulatedBody]
    others: list[RefusalBody] = Field(description="Algorithms that apply and were not simulated.")
    is_complete: bool = Field(
        description="False where time ran out for some of `others`: ask for these alone, with `algorithms`."
    )


def read(request: SimulationRequest, problem: Problem, facts: Facts) -> Simulation:
    """Read what is to be simulated.

    Raises:
        Problem: 422 that points at what does not fit.
    """
    usual = "mean" if problem.shape is Shape.MEAN else "logistic_regression"
    kind = request.model or usual
    classes = request.classes if kind == "softmax_regression" else 0
    with refused_at():
        return Simulation(problem, facts, kind, classes, request.repetitions, request.seed)


def simulated(
    context: Context, asked: Simulation, advised: Sequence[Advice], on_progress: Reached | None = None
) -> SimulationAnswer:
    """Run one algorithm after the other, each in a process with limits of time and memory.

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
        return Attained(item.algorithm, reason=Reason("the simulation's time was over before it"), is_final=False)
    assert item.spec is not None, "it applies"
    try:
        return context.audit_processes.run(simulate, asked, item.algorithm, item.spec, seconds)
    except JobFailed as failure:
        return Attained(item.algorithm, reason=Reason(f"it was given up: {failure}"), is_final=False)


def _details(asked: Simulation) -> list[str]:
    sizes = {"records": asked.records, "dataset_size": asked.facts.dataset_size, "factor": asked.factor}
    found = [] if asked.factor == 1.0 else [_FEWER.format(**sizes)]
    penalised = asked.problem.shape in (Shape.STRONGLY_CONVEX, Shape.POLYAK_LOJASIEWICZ)
    return [*found, *([_NO_PENALTY] if penalised else [])]


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
        return "A run diverged: what it released is no usable point."
    if excess >= start:
        return f"It was {excess:.3g} worse than the best point, and the start of training is {start:.3g}: it does harm."
    share = 1.0 - excess / start
    return f"It was {excess:.3g} worse than the best point; before training it is {start:.3g}. It closed {share:.0%}."
