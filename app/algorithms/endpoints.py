"""`/v1/calibrate` and `/v1/algorithms`: stateless; nothing is stored or charged."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Query
from starlette.responses import Response

from app.algorithms import advice, assumptions, open_events, service
from app.algorithms.advice import ADVISE_EXAMPLES, AdviseAnswer, AdviseRequest
from app.algorithms.assumptions import ASSUMPTIONS_EXAMPLES, AssumptionsAnswer, AssumptionsRequest
from app.algorithms.calibrate import CalibrateAnswer, CalibrateRequest
from app.algorithms.comparison import ComparisonAnswer, SettingQuery, compare
from app.algorithms.examples import CALIBRATE_EXAMPLES
from app.algorithms.open_events import EVENTS_EXAMPLES, CalibrateEventsAnswer, CalibrateEventsRequest
from app.algorithms.questions import names_a_budget
from app.algorithms.schemas import AlgorithmBody, AlgorithmDetails, AlgorithmList, AssumptionBody
from app.auth.principal import Principal, Scope
from app.auth.rights import CurrentPrincipal, requires
from app.context import CurrentContext
from app.kit.known_answers import CurrentAnswers
from app.kit.query_parameters import KnownParametersOnly
from app.problems import not_found
from calibrators.algorithm import Algorithm
from calibrators.registry import ALGORITHMS
from trainer.algorithms import EXECUTIONS

router = APIRouter(prefix="/v1", tags=["Calibration"], dependencies=[KnownParametersOnly])


@router.post(
    "/calibrate",
    operation_id="calibrate",
    summary="Find noise, steps, batch size or privacy for a target",
    response_model=CalibrateAnswer,
)
async def calibrate(
    context: CurrentContext,
    principal: CurrentPrincipal,
    answers: CurrentAnswers,
    request: Annotated[CalibrateRequest, Body(openapi_examples=CALIBRATE_EXAMPLES)],
) -> Response:
    """The answer has the quantity that `solve_for` names, the certified privacy that exactly this value achieves, and
    the other numbers that the theory recommends.

    The quantity is the smallest noise multiplier, the most iterations or the largest batch size that meets the target,
    or the certified epsilon or delta of given noise. A target may be (epsilon, delta), rho, mu, the risk of a
    membership attack, or what remains of a budget: `{"kind": "budget", "budget_id": "bud_..."}`.
    """
    return await answers.respond(
        request,
        lambda: service.answer(context, request, principal),
        is_public=not names_a_budget(request),
        is_final=service.has_every_certificate,
    )


@router.post(
    "/calibrate/events",
    operation_id="calibrate_events",
    summary="Find noise, steps or sampling of a list of events for a target",
    response_model=CalibrateEventsAnswer,
)
async def calibrate_events(
    context: CurrentContext,
    answers: CurrentAnswers,
    request: Annotated[CalibrateEventsRequest, Body(openapi_examples=EVENTS_EXAMPLES)],
) -> Response:
    """Solves for one field of a list of events, from any pipeline and without an algorithm. The answer is a value that
    meets the target, certified at exactly that value. The relation defaults to add_or_remove_one, as in `/v1/account`,
    which also solves for epsilon and delta."""
    return await answers.respond(request, lambda: open_events.answer(context, request))


@router.get("/algorithms", operation_id="list_algorithms", summary="List the algorithms that calibrate and run")
def list_algorithms() -> AlgorithmList:
    """Lists every algorithm with its theorem, its assumptions and the known errors of its paper."""
    return AlgorithmList(items=[_described(algorithm) for algorithm in ALGORITHMS.values()])


@router.get("/algorithms/compare", operation_id="compare_algorithms", summary="Fill the papers' tables for your sizes")
def compare_algorithms(setting: Annotated[SettingQuery, Query()]) -> ComparisonAnswer:
    """The answer says what each method in the papers' tables achieves and costs, up to constants: rates, numbers of
    gradients, lower bounds, conditions, and known errors."""
    return compare(setting)


@router.get("/algorithms/{name}", operation_id="get_algorithm", summary="Show an algorithm and its input schema")
def get_algorithm(name: str) -> AlgorithmDetails:
    """Describes one algorithm and gives the JSON schema of its calibration request."""
    if name not in ALGORITHMS:
        raise not_found("algorithm", name, ALGORITHMS)
    body = _described(ALGORITHMS[name])
    return AlgorithmDetails(**body.model_dump(), inputs=CalibrateRequest.model_json_schema())


@router.post(
    "/advise",
    operation_id="advise",
    summary="Say which algorithms apply to a problem, and why others do not",
    response_model=AdviseAnswer,
)
async def advise(
    context: CurrentContext,
    answers: CurrentAnswers,
    request: Annotated[AdviseRequest, Body(openapi_examples=ADVISE_EXAMPLES)],
) -> Response:
    """Every algorithm that applies is calibrated with the given facts and ranked by what its theorem promises. For the
    others the answer says why they do not apply. A number that is known only up to a constant never ranks above a
    bound.

    With `simulation`, algorithms that apply also run on synthetic rows, and are ranked by their results there."""
    return await answers.respond(request, lambda: advice.answer(context, request), is_final=advice.is_complete)


@router.post(
    "/assumptions",
    operation_id="derive_assumptions",
    summary="Derive constants from a model and declared bounds",
)
def derive_assumptions(
    context: CurrentContext,
    principal: Annotated[Principal, requires(Scope.ANALYST, Scope.OWNER)],
    request: Annotated[AssumptionsRequest, Body(openapi_examples=ASSUMPTIONS_EXAMPLES)],
) -> AssumptionsAnswer:
    """The answer has the constants that a run fills in by itself, each with its formula and reason, those that the
    domain implies, and the names of those that no declared bound implies. No row of the data set is read: an estimate
    from private records would be a release, which has to be paid for."""
    return assumptions.answer(context, request, principal)


def _described(algorithm: Algorithm) -> AlgorithmBody:
    return AlgorithmBody(
        name=algorithm.name,
        summary=algorithm.summary,
        source=algorithm.source,
        update=algorithm.update,
        samplings=[scheme.kind for scheme in algorithm.samplings],
        neighboring_relations=[str(relation) for relation in algorithm.relations],
        gradient_bounds=[bound.kind for bound in algorithm.gradient_bounds],
        assumptions=[AssumptionBody.of(item) for item in algorithm.assumptions],
        guarantee=algorithm.guarantee,
        gradient_bound_required=algorithm.gradient_bound_required,
        variants=list(algorithm.variants),
        correlates=algorithm.correlates,
        gradient_complexity=algorithm.gradient_complexity,
        verdict=algorithm.verdict,
        errata=list(algorithm.errata),
        models=list(EXECUTIONS[algorithm.name].models),
    )
