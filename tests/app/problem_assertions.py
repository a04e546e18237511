"""The one assertion of an error answer's shape; every test of an error uses it."""

from __future__ import annotations

from typing import Any, Protocol

MEMBERS = {"type", "title", "status", "detail", "code", "request_id", "errors"}


class Answer(Protocol):
    """What the clients of the tests have in common."""

    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> Any: ...
    def json(self) -> Any: ...


def assert_problem(
    response: Answer, status: int, code: str, pointer: str | None = None, item_code: str | None = None
) -> dict[str, Any]:
    """Check an error answer and return its body.

    Args:
        response: The answer.
        status: The status code that it must have.
        code: The problem's code.
        pointer: A pointer that must be among its faults.
        item_code: The code of the fault at ``pointer``.
    """
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert (response.status_code, body.get("code")) == (status, code), body
    assert set(body) >= MEMBERS
    assert body["status"] == status
    assert body["type"] == f"urn:epsilond:problem:{code}"
    assert body["title"]
    assert len(body["detail"]) > 10, body["detail"]
    assert body["request_id"] == response.headers["x-request-id"]
    for item in body["errors"]:
        assert set(item) == {"pointer", "code", "detail"}
        assert item["pointer"] == "" or item["pointer"].startswith("/")
        assert item["code"]
        assert item["detail"]
    if pointer is not None:
        found = {item["pointer"]: item["code"] for item in body["errors"]}
        assert pointer in found, body["errors"]
        if item_code is not None:
            assert found[pointer] == item_code, body["errors"]
    return body
