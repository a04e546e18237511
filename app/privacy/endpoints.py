"""Stateless accounting: certified losses of events, conversions of guarantees, the cost of tuning, and imports."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body
from starlette.responses import Response

from app.context import CurrentContext
from app.kit.known_answers import CurrentAnswers
from app.kit.query_parameters import KnownParametersOnly
from app.privacy import service
from app.privacy.account import AccountAnswer, AccountRequest
from app.privacy.convert import CONVERT_EXAMPLES, ConvertAnswer, ConvertRequest, answer_conversion
from app.privacy.examples import ACCOUNT_EXAMPLES
from app.privacy.imports import IMPORT_EXAMPLES, ImportAnswer, ImportRequest, answer_import, has_their_number
from app.privacy.tuning import TUNING_EXAMPLES, TuningCostAnswer, TuningCostRequest, answer_tuning_cost

router = APIRouter(prefix="/v1", tags=["Accounting"], dependencies=[KnownParametersOnly])


@router.post(
    "/account",
    operation_id="account",
    summary="Certify epsilon at delta, or delta at epsilon",
    response_model=AccountAnswer,
)
async def account(
    context: CurrentContext,
    answers: CurrentAnswers,
    request: Annotated[AccountRequest, Body(openapi_examples=ACCOUNT_EXAMPLES)],
) -> Response:
    """The privacy loss of events that are fixed in advance, as an interval that contains the truth.

    Give `delta` to get epsilon, or `epsilon` to get delta; a list of values gives `points`. `curve` adds curves around
    the value; `certify` adds the number of an independent library.
    """
    # Parts that were not requested are left out. A null means that a quantity has no finite bound.
    return await answers.respond(
        request, lambda: service.account(context, request), is_final=service.has_every_opinion, exclude_unset=True
    )


@router.post(
    "/convert",
    operation_id="convert",
    summary="Convert one privacy guarantee into another",
    response_model=ConvertAnswer,
)
async def convert(
    context: CurrentContext,
    answers: CurrentAnswers,
    request: Annotated[ConvertRequest, Body(openapi_examples=CONVERT_EXAMPLES)],
) -> Response:
    """The best guarantee of another kind that is known to follow, with its theorem and the textbook formulas.

    `tight` says whether some mechanism attains it. Conversions that do not exist are refused (`no_such_conversion`).
    """
    return await answers.respond(request, lambda: answer_conversion(context, request), exclude_none=True)


@router.post(
    "/tuning-cost",
    operation_id="tuning_cost",
    summary="Price the release of the best of several runs",
    response_model=TuningCostAnswer,
)
async def tuning_cost(
    context: CurrentContext,
    answers: CurrentAnswers,
    request: Annotated[TuningCostRequest, Body(openapi_examples=TUNING_EXAMPLES)],
) -> Response:
    """The privacy of a search that runs a private algorithm a random number of times and releases the best result.

    `events` are those of ONE run. The answer has the selection's epsilon as an interval, each bound with its theorem,
    the cost of releasing all runs, and the selection as one event for a budget. With `target` it solves for the noise.
    """
    return await answers.respond(request, lambda: answer_tuning_cost(context, request), exclude_unset=True)


@router.post(
    "/import",
    operation_id="import_history",
    summary="Account again what another library recorded",
    response_model=ImportAnswer,
)
async def import_history(
    context: CurrentContext,
    answers: CurrentAnswers,
    request: Annotated[ImportRequest, Body(openapi_examples=IMPORT_EXAMPLES)],
) -> Response:
    """Accounts a history of Opacus, an event of dp-accounting (JAX Privacy, TF Privacy), or a pasted call of these.

    A call is read as text, and never run; a refusal names each field that it leaves open (`missing`). The answer has
    the certified interval, the library's own number, and each reason why the two differ.
    """
    return await answers.respond(request, lambda: answer_import(context, request), is_final=has_their_number)
