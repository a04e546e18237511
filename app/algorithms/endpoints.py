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
from app.algorithms.schemas import AlgorithmDetails, AlgorithmList
from app.auth.principal import Principal, Scope
from app.auth.rights import CurrentPrincipal, requires
from app.context import CurrentContext
from app.kit.known_answers import CurrentAnswers
from app.kit.query_parameters import KnownParametersOnly
from app.problems import not_found
from calibrators.registry import ALGORITHMS

router = APIRouter(prefix="/v1", tags=["Calibration"], dependencies=[KnownParametersOnly])


@router.post(
    "/calibrate",
    operation_id="calibrate",
    summary="Noise, steps, batch size or privacy for a target",
    response_model=CalibrateAnswer,
)
async def calibrate(
    context: CurrentContext,
    principal: CurrentPrincipal,
    answers: CurrentAnswers,
    request: Annotated[CalibrateRequest, Body(openapi_examples=CALIBRATE_EXAMPLES)],
) -> Response:
    """The answer is what `solve_for` names, with the certified privacy that this very value achieves, and what theory
    recommends beside it.

    The smallest noise multiplier, the largest number of iterations or the largest batch size that meets the target, or
    the certified epsilon or delta of given noise. A target may be (epsilon, delta), rho, mu, the risk of a membership
    attack, or what remains of a budget: `{"kind": "budget", "budget_id": "bud_..."}`.
    """
    return await answers.respond(
        request,
        lambda: service.answer(context, request, principal),
        is_public=not service.names_a_budget(request),
        is_final=service.has_every_certificate,
    )


@router.post(
    "/calibrate/events",
    operation_id="calibrate_events",
    summary="Noise, steps or sampling of a plain list of events for a target",
    response_model=CalibrateEventsAnswer,
)
async def calibrate_events(
    context: CurrentContext,
    answers: CurrentAnswers,
    request: Annotated[CalibrateEventsRequest, Body(openapi_examples=EVENTS_EXAMPLES)],
) -> Response:
    """Any pipeline's events, with one field left out: the value of that field that meets the target, certified at that
    very value. Nothing is asked of the algorithm. Without a relation it is add_or_remove_one, as in `/v1/account`,
    which also solves for epsilon and delta."""
    return await answers.respond(request, lambda: open_events.answer(context, request))


@router.get("/algorithms", operation_id="list_algorithms", summary="The algorithms that calibrate and run")
def list_algorithms() -> AlgorithmList:
    """Every algorithm with its theorem, its assumptions and what is known to be wrong in its paper."""
    return AlgorithmList(items=[service.describe(algorithm) for algorithm in ALGORITHMS.values()])


@router.get("/algorithms/compare", operation_id="compare_algorithms", summary="The papers' tables at your sizes")
def compare_algorithms(setting: Annotated[SettingQuery, Query()]) -> ComparisonAnswer:
    """What each method of the papers' tables achieves and costs, up to constants: rates, numbers of gradients, lower
    bounds, conditions, and what is known to be wrong with them."""
    return compare(setting)


@router.get("/algorithms/{name}", operation_id="get_algorithm", summary="One algorithm, with its input schema")
def get_algorithm(name: str) -> AlgorithmDetails:
    """The description of one algorithm and the JSON schema of its calibration request."""
    if name not in ALGORITHMS:
        raise not_found("algorithm", name, ALGORITHMS)
    body = service.describe(ALGORITHMS[name])
    return AlgorithmDetails(**body.model_dump(), inputs=CalibrateRequest.model_json_schema())


@router.post(
    "/advise",
    operation_id="advise",
    summary="Which algorithms apply to a problem, and why not the others",
    response_model=AdviseAnswer,
)
async def advise(
    context: CurrentContext,
    answers: CurrentAnswers,
    request: Annotated[AdviseRequest, Body(openapi_examples=ADVISE_EXAMPLES)],
) -> Response:
    """Every algorithm that applies is calibrated with the facts at hand and ranked by what its theorem promises; for
    the others it says what stands against them. A number that is known up to a constant never ranks above a bound.

    With `simulation`, those that apply are run on synthetic rows as well, and ranked by what they attain there."""
    return await answers.respond(request, lambda: advice.answer(context, request), is_final=advice.is_complete)


@router.post(
    "/assumptions",
    operation_id="derive_assumptions",
    summary="The constants that follow from a model and declared bounds",
)
def derive_assumptions(
    context: CurrentContext,
    principal: Annotated[Principal, requires(Scope.ANALYST, Scope.OWNER)],
    request: Annotated[AssumptionsRequest, Body(openapi_examples=ASSUMPTIONS_EXAMPLES)],
) -> AssumptionsAnswer:
    """What a run fills in for itself, with the formula and the reason of each constant; what the domain implies; and
    which constants no declared bound implies. No row of the data set is read: an estimate from private records would
    be a release, which has to be paid for."""
    return assumptions.answer(context, request, principal)
