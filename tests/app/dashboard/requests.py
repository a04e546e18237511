"""A request of nobody, for what only draws."""

from __future__ import annotations

from fastapi import Request


def a_request() -> Request:
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
        }
    )
