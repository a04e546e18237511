"""A request of nobody, for what only draws."""

from __future__ import annotations

from types import SimpleNamespace

from fastapi import FastAPI, Request

from app.settings import Settings


def a_request() -> Request:
    app = FastAPI()
    app.state.context = SimpleNamespace(settings=Settings())
    return Request(
        {
            "type": "http",
            "method": "GET",
            "path": "/",
            "query_string": b"",
            "headers": [],
            "server": ("127.0.0.1", 8000),
            "scheme": "http",
            "state": {},
            "app": app,
        }
    )
