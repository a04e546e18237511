"""`/v1/account`: certified epsilon or delta of a list of events; stateless."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body

from app.kit.context import CurrentContext
from app.privacy import service
from app.privacy.account import ACCOUNT_EXAMPLES, AccountAnswer, AccountCurve, AccountRequest

router = APIRouter(prefix="/v1", tags=["Accounting"])


@router.post("/account", operation_id="account", summary="Certified epsilon at delta, or delta at epsilon")
def account(
    context: CurrentContext, request: Annotated[AccountRequest, Body(openapi_examples=ACCOUNT_EXAMPLES)]
) -> AccountAnswer | AccountCurve:
    """Privacy loss of events fixed in advance, as an interval that contains the truth.

    Give `delta` to get epsilon, or `epsilon` to get delta; a list of values gives `points`.
    """
    return service.account(context, request)
