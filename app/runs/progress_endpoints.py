"""`/v1/runs/{id}/events`: the progress of a run, as it happens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from app.auth.principal import Principal, Scope
from app.auth.rights import requires
from app.context import Context, CurrentContext
from app.kit.query_parameters import KnownParametersOnly
from app.runs import service
from app.runs.progress import Listener, ProgressFeed, event_id, has_ended, message_of
from app.runs.schemas import ProgressMessage

router = APIRouter(prefix="/v1/runs", tags=["Runs"], dependencies=[KnownParametersOnly])

Reader = Annotated[Principal, requires(Scope.ANALYST, Scope.OWNER, Scope.AUDITOR)]

EXAMPLE = """\
retry: 3000

event: progress
data: {"id":"run_k3v9","state":"running","progress":{"done":120,"total":500,"unit":"steps"},"problem":null}
id: running-120

: keep-alive

event: end
data: {"id":"run_k3v9","state":"succeeded","progress":{"done":500,"total":500,"unit":"steps"},"problem":null}
id: succeeded-500

"""


def _message_schema() -> dict[str, Any]:
    schema = ProgressMessage.model_json_schema(ref_template="#/components/schemas/{model}")
    return {name: value for name, value in schema.items() if name != "$defs"}


STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events `progress`, then one event `end` with the final state.",
        "content": {
            "text/event-stream": {
                "itemSchema": {
                    "type": "object",
                    "properties": {
                        "event": {
                            "enum": ["progress", "end"],
                            "description": "`progress`: Steps were taken, or the state changed. `end`: The run has "
                            "ended.",
                        },
                        "data": {
                            "type": "string",
                            "contentMediaType": "application/json",
                            "contentSchema": _message_schema(),
                        },
                        "id": {"type": "string"},
                        "retry": {"type": "integer", "minimum": 0},
                    },
                },
                "example": EXAMPLE,
            }
        },
    },
    204: {"description": "The run has ended, and `Last-Event-ID` names its end: there is nothing to come back for."},
    429: {"description": "Too many streams of this key, or of all keys."},
}


async def _feed(request: Request) -> ProgressFeed:
    return cast(ProgressFeed, request.app.state.progress)


async def _listening(
    context: CurrentContext, principal: Reader, feed: Annotated[ProgressFeed, Depends(_feed)], run_id: str
) -> AsyncIterator[Listener]:
    # This runs before the first byte is sent, so that a 404 or 429 is still possible. The listener's place is given up
    # at the end of the stream.
    message = await run_in_threadpool(_now, context, run_id)
    with feed.listen(message, principal.id) as listener:
        yield listener


def _now(context: Context, run_id: str) -> ProgressMessage:
    with context.database.read() as session:
        return message_of(service.get(session, run_id))


@router.get(
    "/{run_id}/events",
    operation_id="follow_run",
    summary="Follow a run: server-sent events",
    response_class=StreamingResponse,
    responses=STREAM,
)
async def follow_run(
    feed: Annotated[ProgressFeed, Depends(_feed)],
    listener: Annotated[Listener, Depends(_listening)],
    last_event_id: Annotated[
        str | None, Header(description="The last event's id that the client has: it is not sent again.")
    ] = None,
) -> Response:
    """Sends the state and the counter now, then after changes, at most once a second, and finally the last state.

    A message has the same fields as `GET /v1/runs/{id}`, so the next message makes up for a missed one. Comments fill
    the pauses. The stream ends after a quarter of an hour; a client then connects again, as after any interruption.
    """
    if has_ended(listener.message) and last_event_id == event_id(listener.message):
        return Response(status_code=204)
    # Without this header, nginx would hold events back until its buffer is full.
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(feed.stream(listener, last_event_id), media_type="text/event-stream", headers=headers)
