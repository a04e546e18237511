"""`POST /v1/advise`: which algorithms apply to a problem, and why the others do not."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi.openapi.models import Example
from pydantic import Field

from accounting.errors import AccountingError
from accounting.numbers import MAX_COUNT, MAX_DATASET_SIZE, MAX_DIMENSION
from accounting.relations import NeighboringRelation
from app.algorithms.geometry import GradientBoundBody, to_gradient_bound
from app.algorithms.plans import NoiseBody, noise_body
from app.algorithms.reasons import ReasonBody, RefusalBody, reason_body
from app.algorithms.service import in_dtype
from app.algorithms.simulation import Reached, SimulationAnswer, SimulationRequest, simulated
from app.algorithms.simulation import read as read_simulation
from app.algorithms.targets import RunTargetBody, to_target
from app.context import Context
from app.kit.fields import Integer, OptionalInteger, Schema
from app.kit.process_pool import too_much_work
from app.problems import refused_at
from app.wire.answers import ProvenanceBody
from calibrators.advice import Advice, Facts, advise, advise_on_batches
from calibrators.loaders import Loader, LoaderAdvice
from calibrators.registry import ALGORITHMS
from calibrators.scopes import Measure, Problem, Shape
from calibrators.spec import OpenDelta, OpenEpsilon, Unknown


class ProblemAtHand(Schema):
    """The objective that is to be optimised, and what is known about it."""

    shape: Shape = Field(
        strict=False,
        description="The strongest known property: `strongly_convex`, `convex`, `polyak_lojasiewicz`, `weakly_convex` "
        "or "
        "`nonconvex`; `mean` if the mean of the records is wanted.",
    )
    norm_order: float = Field(
        2.0,
        ge=1,
        le=2,
        description="p of the l_p norm in which parameters are measured. Gradients are measured in its dual.",
    )
    smooth: bool = Field(True, description="Whether the gradient is Lipschitz.")
    heavy_tailed: bool = Field(False, description="Whether gradients have moments but no bound.")


class AdviseRequest(Schema):
    """The request: what is known about the data, and what the run is for."""

    dataset_size: Integer = Field(ge=1, le=MAX_DATASET_SIZE, description="A public number of records.")
    dimension: Integer = Field(ge=1, le=MAX_DIMENSION, description="Number of parameters.")
    problem: ProblemAtHand
    target: RunTargetBody
    neighboring_relation: NeighboringRelation | None = Field(
        None, strict=False, description="If left out, each algorithm's own."
    )
    gradient_bound: GradientBoundBody | None = Field(
        None,
        description="If left out, algorithms that clip in l2 do so at the longest gradient that `lipschitz` allows, "
        "a bound in the dual of the problem's norm.",
    )
    batch_size: OptionalInteger = Field(
        None,
        ge=1,
        le=MAX_DATASET_SIZE,
        description="Used by algorithms whose theorems leave it open. If left out, it is the practical default.",
    )
    iterations: OptionalInteger = Field(
        None,
        ge=1,
        le=MAX_COUNT,
        description="Used where a theorem leaves it open, or takes more steps than are possible. If absent, a number "
        "that a theorem leaves open is the practical default.",
    )
    loader: Loader | None = Field(
        None,
        strict=False,
        description="How batches are made: `poisson` draws each record independently; `shuffled` goes through all "
        "records in another order in every epoch, `fixed_order` in the same order. Algorithms whose batches it cannot "
        "make do not apply, and `batches` shows what this costs. If left out, batches are made as each algorithm "
        "requires.",
    )
    assumptions: dict[Annotated[str, Field(max_length=64)], float] = Field(
        default={}, max_length=64, description="Constants of the problem in its norm; each algorithm takes its own."
    )
    algorithms: list[Annotated[str, Field(max_length=64)]] | None = Field(
        None, min_length=1, max_length=64, description="The algorithms to consider; if left out, all."
    )
    simulation: SimulationRequest | None = Field(
        None,
        description="If this is given, even as `{}`, every algorithm that applies is also run on synthetic rows of "
        "this shape, with the calibrated noise. That takes seconds for each; no data set is looked at, and nothing is "
        "charged.",
    )


class AdviceBody(Schema):
    """An algorithm that applies to the problem."""

    algorithm: str
    why: str = Field(
        description="A sentence that explains its place in the list. Bounds of one measure are ranked by size."
    )
    summary: str
    source: str
    bound: ProvenanceBody | None = Field(
        description="The bound with all constants; null if the theorem promises nothing here."
    )
    rate: ProvenanceBody | None = Field(description="Known up to a constant, which is taken as 1.")
    gradient_evaluations: float | None
    iterations: int
    noise: NoiseBody
    reasons: list[ReasonBody] = Field(description="The reasons why there is no bound.")
    request: dict[str, Any] = Field(description="The answer of POST /v1/calibrate for this plan.")
    plan_hash: str


class MeasureBody(Schema):
    """Algorithms whose theorems bound the same quantity, best first."""

    measure: Measure | None = Field(strict=False, description="Null if no theorem covers the algorithms.")
    ranked: list[AdviceBody]


class BatchesBody(Schema):
    """One way of making batches, with the least noise for the target."""

    algorithm: str
    sampling: str
    bands: int = Field(description="Number of bands of its noise; 1 is fresh noise in every step.")
    noise_multiplier: float = Field(
        description="Standard deviation of the normal numbers from which the noise is made, divided by the "
        "contribution bound."
    )
    error: float = Field(
        description="Root mean square of the error of the sums of gradients that training follows, in contribution "
        "bounds."
    )
    ratio: float = Field(description="The error divided by that of fresh noise without sampling.")
    is_possible: bool = Field(description="Whether the loader can make these batches.")


class LoaderAdviceBody(Schema):
    """The extra error that a loader's batches cause, compared with Poisson batches, and choices that cause less."""

    loader: Loader = Field(strict=False)
    detail: str
    ranked: list[BatchesBody] = Field(description="Sorted by error, least first.")


class AdviseAnswer(Schema):
    measures: list[MeasureBody] = Field(description="Numbers of different measures are not compared.")
    others: list[RefusalBody]
    batches: LoaderAdviceBody | None = Field(
        default=None,
        exclude_if=lambda found: found is None,
        description="The loader's batches compared with others, if the request names the loader, a batch size and a "
        "number of steps.",
    )
    simulation: SimulationAnswer | None = Field(
        default=None,
        exclude_if=lambda found: found is None,
        description="What the algorithms attained on synthetic rows, if the request asks for it.",
    )
    warnings: list[str]


ADVISE_EXAMPLES: dict[str, Example] = {
    "convex": {
        "summary": "A convex, smooth loss on an l2 ball",
        "value": {
            "dataset_size": 50000,
            "dimension": 20,
            "problem": {"shape": "convex"},
            "target": {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-6},
            "assumptions": {
                "lipschitz": 1,
                "smoothness": 0.5,
                "radius": 1,
                "diameter": 2,
                "initial_gap": 1,
                "moment_order": 4,
                "moment_bound": 1,
            },
        },
    },
    "sparse": {
        "summary": "The same over the l1 ball",
        "value": {
            "dataset_size": 50000,
            "dimension": 1000,
            "problem": {"shape": "convex", "norm_order": 1},
            "target": {"kind": "zcdp", "rho": 0.1},
            "assumptions": {"lipschitz": 1, "smoothness": 0.5, "radius": 1, "initial_gap": 1},
        },
    },
    "mean": {
        "summary": "The mean of records with moments, and what the algorithms attain on synthetic ones",
        "value": {
            "dataset_size": 10000,
            "dimension": 10,
            "problem": {"shape": "mean", "heavy_tailed": True},
            "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
            "assumptions": {
                "moment_order": 4,
                "moment_bound": 2,
                "coordinate_moment_bound": 1,
                "mean_bound": 1,
                "failure_probability": 0.05,
            },
            "simulation": {"repetitions": 2},
        },
    },
    "network": {
        "summary": "A neural network: no convexity",
        "value": {
            "dataset_size": 60000,
            "dimension": 200000,
            "problem": {"shape": "nonconvex"},
            "target": {"kind": "approximate_dp", "epsilon": 8, "delta": 1e-6},
            "gradient_bound": {"kind": "clip", "max_grad_norm": 1},
            "batch_size": 1000,
            "iterations": 1000,
        },
    },
    "loader": {
        "summary": "The same where batches come in a fixed order",
        "value": {
            "dataset_size": 60000,
            "dimension": 200000,
            "problem": {"shape": "nonconvex"},
            "target": {"kind": "approximate_dp", "epsilon": 8, "delta": 1e-6},
            "neighboring_relation": "replace_special",
            "gradient_bound": {"kind": "clip", "max_grad_norm": 1},
            "batch_size": 1000,
            "iterations": 1000,
            "loader": "fixed_order",
        },
    },
}

_WARNING = (
    "Theorems promise what holds in the worst case under their assumptions. If bounds are loose, measured values may "
    "rank differently. A rate has the constant 1 and is always listed below the bounds."
)


def answer(context: Context, request: AdviseRequest, on_progress: Reached | None = None) -> AdviseAnswer:
    """Calibrate every algorithm that applies, in a process with limits of time and memory. Also simulate them if the
    request asks for it.

    Args:
        context: The process's context.
        request: The problem.
        on_progress: A function that is called with the number of algorithms that have been simulated.

    Raises:
        Problem: 422 with a pointer to the malformed field, or ``too_much_work``.
    """
    problem, facts = _read(request)
    asked = None if request.simulation is None else read_simulation(request.simulation, problem, facts)
    remedy = "smaller sizes or fewer iterations are quicker"
    with refused_at(), too_much_work("the advice", remedy, "dataset_size"):
        found = context.processes.run(advise, problem, facts, request.algorithms)
        batches = context.processes.run(_batches, facts)
    groups: dict[Measure | None, list[AdviceBody]] = {}
    for item in found:
        if item.calibration is not None:
            groups.setdefault(item.measure, []).append(_advice(item, request))
    return AdviseAnswer(
        measures=[MeasureBody(measure=measure, ranked=ranked) for measure, ranked in groups.items()],
        others=[
            RefusalBody(algorithm=item.algorithm, reasons=_reasons(item)) for item in found if item.calibration is None
        ],
        batches=None if batches is None else _loader_advice(batches),
        simulation=None if asked is None else simulated(context, asked, found, on_progress),
        warnings=[_WARNING],
    )


def is_complete(found: AdviseAnswer) -> bool:
    """Return whether every simulation ended in time. If not, the same request may get further on a less busy server."""
    return found.simulation is None or found.simulation.is_complete


def _loader_advice(found: LoaderAdvice) -> LoaderAdviceBody:
    ranked = [BatchesBody(**asdict(each)) for each in found.ranked]
    return LoaderAdviceBody(loader=found.loader, detail=found.detail, ranked=ranked)


def _batches(facts: Facts) -> LoaderAdvice | None:
    """Return the advice about the request's loader; None if no batches that the loader can make meet the target."""
    try:
        return advise_on_batches(facts)
    except AccountingError:
        return None


def _read(request: AdviseRequest) -> tuple[Problem, Facts]:
    target = to_target(request.target, Unknown.NOISE_MULTIPLIER, None)
    assert not isinstance(target, OpenEpsilon | OpenDelta), "a run's target leaves nothing open"
    with refused_at():
        problem = Problem(
            request.problem.shape, request.problem.norm_order, request.problem.smooth, request.problem.heavy_tailed
        )
        return problem, Facts(
            dataset_size=request.dataset_size,
            dimension=request.dimension,
            target=target,
            neighboring_relation=request.neighboring_relation,
            gradient_bound=to_gradient_bound(request.gradient_bound),
            batch_size=request.batch_size,
            iterations=request.iterations,
            loader=request.loader,
            assumptions=request.assumptions,
        )


def _advice(item: Advice, request: AdviseRequest) -> AdviceBody:
    assert item.calibration is not None
    algorithm, plan = ALGORITHMS[item.algorithm], in_dtype(item.calibration, None).plan
    gradients = [found.value for found in item.calibration.utility if found.name == "gradient_evaluations"]
    return AdviceBody(
        algorithm=item.algorithm,
        why=item.why,
        summary=algorithm.summary,
        source=algorithm.source,
        bound=None if item.bound is None else ProvenanceBody.of(item.bound),
        rate=None if item.rate is None else ProvenanceBody.of(item.rate),
        gradient_evaluations=gradients[0] if gradients and isinstance(gradients[0], float) else None,
        iterations=plan.iterations,
        noise=noise_body(plan),
        reasons=_reasons(item),
        request=_calibration(item, request),
        plan_hash=plan.plan_hash,
    )


def _reasons(item: Advice) -> list[ReasonBody]:
    return [reason_body(reason) for reason in item.reasons]


def _calibration(item: Advice, request: AdviseRequest) -> dict[str, Any]:
    """Return the request body for which `/v1/calibrate` returns the same plan."""
    spec = item.spec
    assert spec is not None
    body: dict[str, Any] = {
        "algorithm": item.algorithm,
        "dataset_size": spec.dataset_size,
        "dimension": spec.dimension,
        "target": request.target.model_dump(),
    }
    optional = {
        "neighboring_relation": None if spec.neighboring_relation is None else str(spec.neighboring_relation),
        "gradient_bound": None if spec.gradient_bound is None else spec.gradient_bound.to_json(),
        "sampling": spec.sampling,
        "batch_size": spec.batch_size,
        "iterations": spec.iterations,
        "assumptions": dict(spec.assumptions) or None,
    }
    return body | {name: value for name, value in optional.items() if value is not None}
