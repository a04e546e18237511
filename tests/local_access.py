"""How tests come to a server without keys: by the token in its data folder, as everybody does who may read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
from fastapi import FastAPI
from starlette.testclient import TestClient

from app.auth import local_token, sessions
from app.context import Context
from app.db.database import Database
from app.fence.watching import fenced_context
from app.settings import Settings

BASE_URL = "http://127.0.0.1:8000"
LOOPBACK_PEER = ("127.0.0.1", 50000)

#: The data folders of servers that tests have started, by their ports.
_FOLDERS: dict[int, Path] = {}


class LocalAccess(httpx2.Auth):
    """Shows the token where a request shows nothing and there is one, and its session to pages of the dashboard."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def auth_flow(self, request: httpx2.Request) -> Iterator[httpx2.Request]:
        if sessions.is_page(request.url.path):
            session = sessions.begin_with_local_token(self.context)
            if session is not None and "cookie" not in request.headers:
                request.headers["cookie"] = f"{sessions.COOKIE}={session.cookie}"
        elif "authorization" not in request.headers and not request.url.path.startswith("/health/"):
            token = local_token.read(self.context.settings)
            if token is not None:
                request.headers["authorization"] = f"Bearer {token}"
        yield request


def local_client(app: FastAPI, **options: Any) -> TestClient:
    """A client on the machine itself with the token of the service; ``options`` are those of `TestClient`."""
    context: Context = app.state.context
    local_token.settle(context)
    client = TestClient(app, **{"base_url": BASE_URL, "client": LOOPBACK_PEER} | options)
    client.auth = LocalAccess(context)
    return client


def remember(port: int, data_dir: Path) -> None:
    """Note which data folder a server has that a test started."""
    _FOLDERS[port] = data_dir


def authorization(port: int) -> dict[str, str]:
    """The header that the server at a port wants; none where it has keys, or was started by nobody here."""
    token = local_token.read(Settings(data_dir=_FOLDERS[port])) if port in _FOLDERS else None
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def access_to(data_dir: Path) -> LocalAccess:
    """The same for a client of a server in another process."""
    return LocalAccess(fenced_context(Settings(data_dir=data_dir), Database("sqlite://")))


def session_cookie(port: int) -> str | None:
    """The cookie of a browser that is signed in to the server at a port."""
    session = sessions.begin_with_local_token(access_to(_FOLDERS[port]).context) if port in _FOLDERS else None
    return None if session is None else session.cookie
