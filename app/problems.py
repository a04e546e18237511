"""Problems: the common form of all error answers (RFC 9457)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse

from accounting.errors import AccountingError, Pointer
from accounting.near_names import suggestion

MEDIA_TYPE = "application/problem+json"


class ProblemItem(BaseModel):
    """One fault of a request, and the place of the fault in the request."""

    pointer: str = Field(
        description="JSON pointer (RFC 6901) into the request body; outside the body, `/query/...` or `/header/...`."
    )
    code: str
    detail: str


class ProblemBody(BaseModel):
    """An error answer. It never repeats the request body."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str = Field(description="What was wrong and what would be right, in one or two sentences.")
    code: str = Field(description="Stable name of the problem, for programs.")
    request_id: str
    errors: list[ProblemItem] = []


class Problem(Exception):
    """An error that becomes an answer.

    Attributes:
        status: HTTP status code.
        code: Stable machine-readable name.
        detail: One or two sentences for people: what is wrong, and what to do instead.
        errors: The faults one by one, with pointers.
        members: Further members of the answer, such as ``cost`` and ``remaining`` of a denial.
        headers: Further response headers.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Sequence[ProblemItem] = (),
        members: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)
        self.members = dict(members or {})
        self.headers = dict(headers or {})

    def inside(self, *path: str | int) -> Problem:
        """Return the same problem for a request that has the faulty object at ``path``; pointers begin there."""
        prefix = json_pointer(path)
        errors = [item.model_copy(update={"pointer": f"{prefix}{item.pointer}"}) for item in self.errors]
        return Problem(self.status, self.code, self.detail, errors=errors, members=self.members, headers=self.headers)

    def body(self, request_id: str) -> dict[str, object]:
        """Return the members of the problem document."""
        return {
            "type": f"urn:epsilond:problem:{self.code}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "request_id": request_id,
            "errors": [item.model_dump() for item in self.errors],
            **self.members,
        }

    def response(self, request_id: str) -> JSONResponse:
        return JSONResponse(self.body(request_id), self.status, headers=self.headers, media_type=MEDIA_TYPE)


def unprocessable(code: str, detail: str, *pointer: str | int) -> Problem:
    """Return a 422 with one fault at ``pointer`` in the request body."""
    return Problem(422, code, detail, errors=[ProblemItem(pointer=json_pointer(pointer), code=code, detail=detail)])


def from_accounting(error: AccountingError, *prefix: str | int) -> Problem:
    """Turn the engine's refusal into an answer. ``prefix`` leads from the body to the object that the engine was
    reading."""
    return unprocessable(error.code, error.detail, *prefix, *error.pointer)


@contextmanager
def refused_at(*prefix: str | int) -> Iterator[None]:
    """Turn the engine's refusals in the block into answers. ``prefix`` leads from the body to the object that is read
    there."""
    try:
        yield
    except AccountingError as error:
        raise from_accounting(error, *prefix) from None


def database_unavailable() -> Problem:
    """Return a 503 without the database's own message, since it quotes statements and their parameters."""
    detail = "The database does not answer, or its schema is not the newest (`epsilond migrate`)."
    return Problem(503, "database_unavailable", detail, headers={"Retry-After": "5"})


def disk_full() -> Problem:
    """Return a 507. Nothing of what the request would have written is stored."""
    detail = "The disk has no room for what the request would write; nothing was written. Send it again later."
    return Problem(507, "disk_full", detail, headers={"Retry-After": "60"})


def not_found(what: str, identifier: str, names: Iterable[str] = ()) -> Problem:
    """Return a 404 for an id that names nothing. The answer is the same for other people's ids.

    Args:
        what: The kind of object that was requested.
        identifier: Its id, or its name.
        names: Public names, to suggest the one that was probably meant.
    """
    return Problem(404, "not_found", f"There is no {what} with the id {identifier!r}.{suggestion(identifier, names)}")


def json_pointer(path: Pointer) -> str:
    """Return the JSON pointer (RFC 6901).

    >>> json_pointer(("events", 0, "a/b"))
    '/events/0/a~1b'
    """
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
