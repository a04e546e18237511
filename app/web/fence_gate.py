"""The gate that every request passes after the guard: it refuses requests while the database lacks recorded entries."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from app.context import Context
from app.db.failures import Unfenced
from app.fence.service import refusal
from app.fence.watching import fence_of
from app.observability.request_id import request_id_of

#: These paths stay open: health says what is wrong, and metrics raise an alert about it.
_OPEN = ("/health/", "/metrics")


class FenceGate:
    """ASGI middleware that answers 503 while the database lacks entries that the fence (`docs/operating/fence.md`)
    records as acknowledged.
    """

    def __init__(self, app: ASGIApp, context: Context) -> None:
        self.app = app
        self._fence = fence_of(context)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._fence.loss is not None and not scope["path"].startswith(_OPEN):
            try:
                loss = await run_in_threadpool(self._fence.standing)
                problem = None if loss is None else refusal(loss)
            except Unfenced as unavailable:
                problem = unavailable
            if problem is not None:
                await problem.response(request_id_of(scope))(scope, receive, send)
                return
        await self.app(scope, receive, send)
