"""Problems: the one shape of every error answer (RFC 9457), from whichever source the error comes."""

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
    """One thing that is wrong, and where."""

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
        detail: One or two sentences for a person: what was wrong and what would be right.
        errors: The single faults, with pointers.
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
        """Return the same problem about a part of a request, with pointers that begin at ``path``."""
        prefix = json_pointer(path)
        errors = [item.model_copy(update={"pointer": f"{prefix}{item.pointer}"}) for item in self.errors]
        return Problem(self.status, self.code, self.detail, errors=errors, members=self.members, headers=self.headers)

    def body(self, request_id: str) -> dict[str, object]:
        """The members of the problem document."""
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
    """422 with one fault at ``pointer`` in the request body."""
    return Problem(422, code, detail, errors=[ProblemItem(pointer=json_pointer(pointer), code=code, detail=detail)])


def from_accounting(error: AccountingError, *prefix: str | int) -> Problem:
    """The engine's refusal as an answer; ``prefix`` leads from the body to the object the engine was reading."""
    return unprocessable(error.code, error.detail, *prefix, *error.pointer)


@contextmanager
def refused_at(*prefix: str | int) -> Iterator[None]:
    """Answer the engine's refusals in the block; ``prefix`` leads from the body to the object that is read there."""
    try:
        yield
    except AccountingError as error:
        raise from_accounting(error, *prefix) from None


def database_unavailable() -> Problem:
    """503 with nothing of the database's own words: they quote statements and their parameters."""
    detail = "The database does not answer, or its schema is not the newest (`epsilond migrate`)."
    return Problem(503, "database_unavailable", detail, headers={"Retry-After": "5"})


def disk_full() -> Problem:
    """507: what the request would have written is not there, not even in part."""
    detail = "The disk has no room for what the request would write; nothing was written. Send it again later."
    return Problem(507, "disk_full", detail, headers={"Retry-After": "60"})


def not_found(what: str, identifier: str, names: Iterable[str] = ()) -> Problem:
    """404 for an id that names nothing. Ids are unguessable, so an id of another's is not told apart.

    Args:
        what: What was asked for.
        identifier: Its id, or its name.
        names: Of things that everybody may know, to tell which of them was probably meant.
    """
    return Problem(404, "not_found", f"There is no {what} with the id {identifier!r}.{suggestion(identifier, names)}")


def json_pointer(path: Pointer) -> str:
    """RFC 6901 pointer.

    >>> json_pointer(("events", 0, "a/b"))
    '/events/0/a~1b'
    """
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
