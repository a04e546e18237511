"""`/v1/sweep`: stateless; nothing is stored or charged."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body
from starlette.responses import Response

from app.auth.rights import CurrentPrincipal
from app.context import CurrentContext
from app.kit.known_answers import CurrentAnswers
from app.kit.query_parameters import KnownParametersOnly
from app.sweeps import service
from app.sweeps.examples import SWEEP_EXAMPLES
from app.sweeps.schemas import SweepAnswer, SweepRequest

router = APIRouter(prefix="/v1", tags=["Calibration"], dependencies=[KnownParametersOnly])


@router.post(
    "/sweep",
    operation_id="sweep",
    summary="Calibrate once for each value of one field",
    response_model=SweepAnswer,
)
async def sweep(
    context: CurrentContext,
    principal: CurrentPrincipal,
    answers: CurrentAnswers,
    request: Annotated[SweepRequest, Body(openapi_examples=SWEEP_EXAMPLES)],
) -> Response:
    """A calibrate request in which exactly one field takes a list of up to 10,000 values; the answer is a table.

    A value without an answer has a `problem` in its row, and does not affect other rows. The time limit is 30 seconds
    for up to 64 values, and two minutes for more. Values that are not reached have the problem `too_much_work`.
    """
    return await answers.respond(
        request,
        lambda: service.sweep(context, request, principal),
        is_final=service.is_complete,
        is_public=not service.names_a_budget(request),
    )
