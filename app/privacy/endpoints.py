"""`/v1/account` and `/v1/convert`: events to certified numbers, guarantees to other guarantees; stateless."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body

from app.kit.context import CurrentContext
from app.privacy import service
from app.privacy.account import AccountAnswer, AccountRequest
from app.privacy.convert import CONVERT_EXAMPLES, ConvertAnswer, ConvertRequest, answer_conversion
from app.privacy.examples import ACCOUNT_EXAMPLES

router = APIRouter(prefix="/v1", tags=["Accounting"])


@router.post(
    "/account",
    operation_id="account",
    summary="Certified epsilon at delta, or delta at epsilon",
    # Parts that were not asked for are absent; null is kept for quantities without a finite bound.
    response_model_exclude_unset=True,
)
def account(
    context: CurrentContext, request: Annotated[AccountRequest, Body(openapi_examples=ACCOUNT_EXAMPLES)]
) -> AccountAnswer:
    """Privacy loss of events fixed in advance, as an interval that contains the truth.

    Give `delta` to get epsilon, or `epsilon` to get delta; a list of values gives `points`. `curve` adds curves around
    the value, `certify` the number of an independent library.
    """
    return service.account(context, request)


@router.post(
    "/convert",
    operation_id="convert",
    summary="What one privacy guarantee implies about another",
    response_model_exclude_none=True,
)
def convert(
    context: CurrentContext, request: Annotated[ConvertRequest, Body(openapi_examples=CONVERT_EXAMPLES)]
) -> ConvertAnswer:
    """The best guarantee of another kind that is known to follow, with its theorem and the textbook forms beside it.

    `tight` says whether some mechanism attains it. A direction that does not exist is refused (`no_such_conversion`).
    """
    return answer_conversion(context, request)
