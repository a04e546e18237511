"""`python -m benchmarks.ledger.bare` serves a bare FastAPI application with the server settings of the service.

Its endpoints read a small JSON body with a Pydantic model and answer with a small one, without a database or
middleware.
"""

from __future__ import annotations

from fastapi import FastAPI
from pydantic import BaseModel, Field

from app import server
from app.db.database import Database
from app.fence.watching import fenced_context
from app.observability.logs import configure_logging
from app.runs.progress import ProgressFeed
from app.settings import Settings
from benchmarks.http_servers import NO_TELEMETRY

app = FastAPI(
    docs_url=None,
    redoc_url=None,
    telemetry=NO_TELEMETRY,
)


class Request(BaseModel):
    purpose: str = Field(max_length=200)
    count: int = Field(ge=1)


class Reply(BaseModel):
    id: str
    purpose: str
    count: int


@app.post("/async", status_code=201)
async def on_the_loop(request: Request) -> Reply:
    """Answer in the event loop that read the request, which is the fastest way in FastAPI."""
    return Reply(id="bare", purpose=request.purpose, count=request.count)


@app.post("/sync", status_code=201)
def in_a_thread(request: Request) -> Reply:
    """Answer in a thread, as most services that use a database do."""
    return Reply(id="bare", purpose=request.purpose, count=request.count)


def main() -> None:
    """Serve on the address that the settings name, and print the address."""
    settings = Settings()
    configure_logging(settings.log_level, settings.log_format)
    # The context is used only to read the settings. The database of this name is never opened.
    context = fenced_context(settings, Database(f"sqlite:///{settings.data_dir}/bare.sqlite3"))
    app.state.progress = ProgressFeed(context)
    listening = server.listen(settings.host, settings.port)
    print(f"http://{settings.host}:{listening.getsockname()[1]}", flush=True)
    server.serve(app, context, listening)


if __name__ == "__main__":
    main()
