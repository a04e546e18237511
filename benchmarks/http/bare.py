"""This module serves answers of a given size with a bare FastAPI application and the server settings of the service.

`BENCH_ANSWER_BYTES=4000 python -m benchmarks.http.bare`
"""

from __future__ import annotations

import os
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request, Response

from app import server
from app.db.database import Database
from app.fence.watching import fenced_context
from app.observability.logs import configure_logging
from app.runs.progress import ProgressFeed
from app.settings import Settings
from benchmarks.http_servers import NO_TELEMETRY

SIZE = "BENCH_ANSWER_BYTES"


def bare_app(answer: bytes) -> FastAPI:
    """Return an application with two endpoints, both of which answer every request with these bytes."""
    app = FastAPI(
        docs_url=None,
        redoc_url=None,
        telemetry=NO_TELEMETRY,
    )

    @app.post("/bytes")
    async def read_as_bytes(request: Request) -> Response:
        """Answer after the body has been read but not parsed, which is the fastest way in FastAPI."""
        await request.body()
        return Response(answer, media_type="application/json")

    @app.post("/json")
    async def read_as_json(_: Annotated[dict[str, Any], Body()]) -> Response:
        """Answer after FastAPI has parsed the body as JSON."""
        return Response(answer, media_type="application/json")

    return app


def main() -> None:
    """Serve on the address that the settings name, and print the address."""
    settings = Settings()
    configure_logging(settings.log_level, settings.log_format)
    # The context is used only to read the settings. The database of this name is never opened.
    context = fenced_context(settings, Database(f"sqlite:///{settings.data_dir}/bare.sqlite3"))
    app = bare_app(b'"' + b"x" * (int(os.environ[SIZE]) - 2) + b'"')
    app.state.progress = ProgressFeed(context)
    listening = server.listen(settings.host, settings.port)
    print(f"http://{settings.host}:{listening.getsockname()[1]}", flush=True)
    server.serve(app, context, listening)


if __name__ == "__main__":
    main()
