"""`GET /metrics`, for Prometheus."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from app.auth.principal import Principal, Scope
from app.auth.rights import requires
from app.context import CurrentContext
from app.kit.query_parameters import KnownParametersOnly
from app.problems import Problem

router = APIRouter(tags=["Health"], dependencies=[KnownParametersOnly])

Reader = Annotated[Principal, requires(Scope.METRICS, Scope.AUDITOR)]


@router.get(
    "/metrics",
    operation_id="metrics",
    summary="Show metrics in the text format of Prometheus",
    response_class=Response,
    responses={200: {"description": "The metrics", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(context: CurrentContext, principal: Reader, request: Request) -> Response:
    """Metrics of this process and of the database. None depends on a private record, or on hidden trials.

    A key for only some budgets is refused, because the metrics count all of them.
    """
    if principal.budgets is not None:
        detail = "Metrics are about all budgets; this call needs a key that reaches all of them."
        raise Problem(403, "forbidden", detail)
    text = generate_latest(context.metrics.registry) + generate_latest(request.app.state.metrics)
    return Response(text, media_type=CONTENT_TYPE_LATEST)
