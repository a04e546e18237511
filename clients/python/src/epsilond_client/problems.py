"""Errors of the client: every error answer of the service is a `ProblemError`, with subclasses for the common cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class EpsilondError(Exception):
    """The base of all errors that this package raises itself."""


class StepsExhausted(EpsilondError):
    """A step beyond the reserved ones was requested. It was not taken."""


class RunFailed(EpsilondError):
    """A run that was waited for has ended without success.

    Attributes:
        run_id: The id of the run.
        state: ``failed`` or ``cancelled``.
        problem: The code and the detail, if the service gives a reason.
    """

    def __init__(self, run_id: str, state: str, problem: Mapping[str, Any] | None) -> None:
        reason = "" if problem is None else f": {problem['detail']} ({problem['code']})"
        super().__init__(f"the run {run_id} is {state}{reason}")
        self.run_id = run_id
        self.state = state
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a request, and its place.

    Attributes:
        pointer: JSON pointer (RFC 6901) into the request body; elsewhere ``/query/...``, ``/header/...`` or
            ``/path/...``.
        code: The code, for programs.
        detail: The explanation, for people.
    """

    pointer: str
    code: str
    detail: str


class ProblemError(EpsilondError):
    """An answer that is an error (RFC 9457).

    Attributes:
        status: HTTP status; 0 if no answer came.
        code: Stable name of the problem. Programs should depend on it, since sentences may change.
        detail: What is wrong, and what to do instead.
        errors: The faults one by one.
        request_id: The id of the request in the service's log.
        members: Everything else that the answer holds.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: tuple[Fault, ...] = (),
        request_id: str | None = None,
        members: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = errors
        self.request_id = request_id
        self.members = dict(members or {})

    def __str__(self) -> str:
        text = f"{self.detail} ({self.code}{f', status {self.status}' if self.status else ''})"
        told = [fault for fault in self.errors if fault.detail != self.detail or fault.pointer]
        lines = [f"  {fault.pointer or 'the request'}: {fault.detail} ({fault.code})" for fault in told]
        if self.request_id is not None:
            lines.append(f"  request {self.request_id}")
        return "\n".join([text, *lines])

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickling between processes (multiprocessing, Dask) keeps everything that the problem says.
        state = {"errors": self.errors, "request_id": self.request_id, "members": self.members}
        return _restored, (type(self), self.status, self.code, self.detail, state)


class InvalidRequest(ProblemError):
    """400, 405, 413, 415, 422: the request is wrong; `errors` says where. Sending it again does not help."""


class Unauthenticated(ProblemError):
    """401: no key, or one that is unknown, revoked or expired."""


class Forbidden(ProblemError):
    """403: the key may not do this."""


class NotFound(ProblemError):
    """404: nothing has this id."""


class Conflict(ProblemError):
    """409: the present state does not allow the request; `code` says why."""


class BudgetExceeded(Conflict):
    """The budget does not admit the events; nothing was held, and nothing was charged."""

    @property
    def cost(self) -> Mapping[str, Any]:
        """Return the cost of the events, in the fields of the budget's filter."""
        cost: Mapping[str, Any] = self.members["cost"]
        return cost

    @property
    def remaining(self) -> Mapping[str, Any]:
        """Return the most that the next charge may cost."""
        remaining: Mapping[str, Any] = self.members["remaining"]
        return remaining

    @property
    def price(self) -> Mapping[str, Any] | None:
        """Return the cost as an epsilon: ``tight`` and ``charged`` for the plan alone, the increase ``adds``, and the
        rest ``left``."""
        price: Mapping[str, Any] | None = self.members.get("price")
        return price

    @property
    def largest_count_that_fits(self) -> int | None:
        """Return how many of the steps the budget would admit, if that is known."""
        count: int | None = self.members.get("largest_count_that_fits")
        return count

    def __str__(self) -> str:
        count = self.largest_count_that_fits
        fits = "" if count is None else f"\n  largest_count_that_fits: {count}"
        said = f"{super().__str__()}\n  cost: {_amounts(self.cost)}\n  remaining: {_amounts(self.remaining)}{fits}"
        if self.price is None:
            return said
        told = {name: self.price[name] for name in ("charged", "adds", "left", "delta")}
        alone = f"epsilon {self.price['tight']['upper']}"
        return f"{said}\n  tight alone: {alone}; {_amounts(told)}\n  {self.price['why']}"


class RateLimited(ProblemError):
    """429: too many requests, runs or streams of this key; `detail` says which."""


class Unavailable(ProblemError):
    """502, 503, 504, 507, or no answer at all (status 0, code ``no_answer``). The request may have taken effect.

    Attributes:
        idempotency_key: The key of the request; repeating the request with it has no second effect. None if no key was
            sent.
    """

    idempotency_key: str | None = None

    def __str__(self) -> str:
        text = super().__str__()
        if self.idempotency_key is None:
            return text
        return f"{text}\n  send the same again with idempotency_key={self.idempotency_key!r}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (*super().__reduce__(), {"idempotency_key": self.idempotency_key})


_BY_CODE: Mapping[str, type[ProblemError]] = {"budget_exceeded": BudgetExceeded}
_BY_STATUS: Mapping[int, type[ProblemError]] = {
    400: InvalidRequest,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    405: InvalidRequest,
    409: Conflict,
    413: InvalidRequest,
    415: InvalidRequest,
    422: InvalidRequest,
    429: RateLimited,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
    507: Unavailable,
}
_OWN = frozenset({"type", "title", "status", "detail", "code", "request_id", "errors"})


def problem_of(status: int, body: object) -> ProblemError:
    """Return the error of an answer, even if it is not a problem document, such as a proxy's page."""
    if not isinstance(body, Mapping) or not isinstance(body.get("code"), str):
        kind = _BY_STATUS.get(status, ProblemError)
        return kind(status, f"http_{status}", f"the answer has status {status} and is not one of epsilond's")
    errors = tuple(
        Fault(str(item.get("pointer", "")), str(item.get("code", "")), str(item.get("detail", "")))
        for item in body.get("errors", ())
    )
    code = body["code"]
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status, ProblemError)
    return kind(
        status,
        code,
        str(body.get("detail", code)),
        errors=errors,
        request_id=body.get("request_id"),
        members={name: value for name, value in body.items() if name not in _OWN},
    )


def _restored(kind: type[ProblemError], status: int, code: str, detail: str, state: dict[str, Any]) -> ProblemError:
    return kind(status, code, detail, **state)


def _amounts(amounts: Mapping[str, Any]) -> str:
    """Return the amounts that are single numbers; one amount for each order would fill the screen."""
    return ", ".join(f"{name} {value}" for name, value in amounts.items() if not isinstance(value, list | Mapping))
