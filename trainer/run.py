"""A Plan and data in, a model out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue, Unsupported, one_of
from calibrators.plan import Clip, Plan
from trainer.algorithms import ALGORITHMS, Algorithm
from trainer.arrays import Array, to_host
from trainer.clipping import SMALLEST_MAX_GRAD_NORM
from trainer.loop import points
from trainer.models import Model
from trainer.noise import GaussianNoise, random_streams
from trainer.records import prepare
from trainer.samplers import sampler_for


@dataclass(frozen=True)
class RunResult:
    """What a run releases, and all that it releases.

    Attributes:
        parameters: The last point: "weights" of shape (p,) or (p, K), "bias" of shape () or (K,) with an intercept.
        steps: Steps carried out; the plan's number.
    """

    parameters: dict[str, npt.NDArray[np.float64]]
    steps: int


class RunCancelled(Exception):
    """The run was asked to stop; nothing is released.

    Attributes:
        steps: Steps that had been carried out.
    """

    def __init__(self, steps: int) -> None:
        super().__init__(f"cancelled after {steps} steps")
        self.steps = steps


def run(
    plan: Plan,
    model: Model,
    features: Array,
    labels: Array,
    *,
    seed: int | None = None,
    dtype: str = "float64",
    on_progress: Callable[[int, int], None] | None = None,
    is_cancelled: Callable[[], bool] | None = None,
) -> RunResult:
    """Carry out the plan on private rows.

    The plan decides sampling, bounds, noise, step sizes, divisors and the number of steps. The rows decide the sums
    of bounded contributions and nothing else: their number is no divisor, and no value of theirs raises, warns or is
    logged. There may be none of them.

    Args:
        plan: An executable plan of an algorithm in `trainer.algorithms`.
        model: What is trained, from its initial parameters.
        features: shape (n, p), scaled by declared bounds (`trainer.scaling`); NumPy, CuPy or array API.
        labels: shape (n,), class indices.
        seed: For public data alone; whoever knows it can subtract the noise. None: keys from the operating system.
        dtype: "float64" or "float32", for the stored inputs and the logits. Norms, sums, noise and parameters are
            float64 in either case.
        on_progress: Called with (steps done, steps in all) at the start and after every step, so it should be cheap.
        is_cancelled: Asked before every step, likewise.

    Returns:
        The last point as NumPy arrays, and the number of steps.

    Guarantees:
        - what_was_charged_is_what_runs: sampler, noise, bound and counts are those of the plan's events.
        - rows_show_only_in_the_model: exceptions, warnings, progress and shapes are the same for every value of a row.
        - unseeded_runs_differ, seeded_runs_repeat.

    Requires:
        Features were scaled without looking at other rows; a seed is given for public data only.

    Raises:
        InvalidValue: the plan is not executable, or its parts do not fit the algorithm; shapes do not fit the model;
            an unknown dtype; a seed that is no non-negative integer.
        Unsupported: no trainer of this name.
        RunCancelled: ``is_cancelled`` said so.

    Source: Yang, Zhang, Chen & Liu 2022, eqs. (2) and (3).

    >>> from accounting.events import Event, Gaussian
    >>> from accounting.relations import NeighboringRelation
    >>> from calibrators.plan import Phase
    >>> from trainer.models import LogisticRegression
    >>> phase = Phase(Event(Gaussian(1.0), count=5), Clip(1.0), divisor=2, step_size=0.5)
    >>> plan = Plan("dp_sgd", 2, NeighboringRelation.ADD_OR_REMOVE_ONE, (phase,))
    >>> result = run(plan, LogisticRegression(3), np.zeros((2, 3)), np.array([0, 1]))
    >>> result.steps, result.parameters["weights"].shape, result.parameters["bias"].shape
    (5, (3,), ())
    """
    algorithm = _algorithm_of(plan)
    streams = random_streams(seed)
    noise = GaussianNoise(streams.noise)
    records = prepare(model, features, labels, dtype)
    point: Array = records.xp.asarray(model.initial())
    done, total = 0, plan.iterations
    _tell(on_progress, done, total)
    for phase in plan.phases:
        sampler = sampler_for(phase.event.sampling, records.inputs.shape[0], streams.sampling)
        path = points(phase, algorithm.update, model, records, start=point, sampler=sampler, noise=noise)
        for _ in range(phase.event.count):
            if is_cancelled is not None and is_cancelled():
                raise RunCancelled(done)
            point = next(path)
            done += 1
            _tell(on_progress, done, total)
    return RunResult(model.parameters(to_host(point)), done)


def _tell(on_progress: Callable[[int, int], None] | None, done: int, total: int) -> None:
    if on_progress is not None:
        on_progress(done, total)


def _algorithm_of(plan: Plan) -> Algorithm:
    """The plan's algorithm, when the plan is one that it can carry out."""
    algorithm = ALGORITHMS.get(plan.algorithm)
    if algorithm is None:
        raise Unsupported(
            f"no trainer for {plan.algorithm!r}; use {one_of(sorted(ALGORITHMS))}",
            code="unsupported_algorithm",
            pointer=("algorithm",),
        )
    if not plan.is_executable:
        raise InvalidValue(
            "this plan was made for its privacy alone: every phase of a run needs a step_size", pointer=("phases",)
        )
    for index, phase in enumerate(plan.phases):
        where = ("phases", index, "gradient_bound")
        bound = phase.gradient_bound
        if type(bound) is not algorithm.gradient_bound:
            raise InvalidValue(
                f"{algorithm.name} bounds gradients by {algorithm.gradient_bound.kind}, not by {bound.kind}",
                pointer=(*where, "kind"),
            )
        if isinstance(bound, Clip) and bound.max_grad_norm < SMALLEST_MAX_GRAD_NORM:
            raise InvalidValue(
                f"max_grad_norm must be at least {SMALLEST_MAX_GRAD_NORM:g} to be kept in floating point, got "
                f"{bound.max_grad_norm!r}; rescale the features",
                pointer=(*where, "max_grad_norm"),
            )
    return algorithm
