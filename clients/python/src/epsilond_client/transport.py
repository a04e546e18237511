"""Requests and answers over HTTP: the address, the key, retries, and errors as exceptions."""

from __future__ import annotations

import copy
import ipaddress
import json
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

import httpx2

from epsilond_client.answers import Document
from epsilond_client.problems import ProblemError, Unavailable, problem_of
from epsilond_client.retries import Clock, Retries, may_try_again, retry_after

_LOCAL_NAME = "localhost"
_TOKEN_LINE = re.compile(r"Authorization: Bearer ([!-~]+)")
#: Makes the content of a request's body for each attempt, since a file must be read from its beginning each time.
Content = Callable[[], Mapping[str, Any]]
D = TypeVar("D", bound=Document)


class Transport:
    """One server, one key, one pool of connections; safe to use from several threads.

    Args:
        base_url: The address of the service, such as ``http://127.0.0.1:8000``.
        api_key: A key, or the token of a server without keys, which is sent with every request; None for neither.
        timeout: Seconds that an answer may take.
        retries: When a request is sent again.
        allow_insecure: Send the key over plain HTTP to another machine, too.
        clock: A clock, which tests replace.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        timeout: float,
        retries: Retries,
        *,
        allow_insecure: bool = False,
        clock: Clock | None = None,
    ) -> None:
        is_local = _check_address(base_url, has_key=api_key is not None, allow_insecure=allow_insecure)
        headers = {"User-Agent": "epsilond-client"}
        if api_key is not None:
            headers["Authorization"] = f"Bearer {_checked_key(api_key)}"
        self.base_url = base_url.rstrip("/")
        self._retries = retries
        self._clock = clock or Clock()
        # Redirects are not followed, since they would take the key elsewhere. Requests to this machine use no proxy.
        self._http = httpx2.Client(base_url=self.base_url, headers=headers, trust_env=not is_local)
        self._timeout = httpx2.Timeout(timeout, connect=min(timeout, 10.0))

    def in_haste(self, timeout: float) -> Self:
        """Return a transport over the same connections for repeated calls. Each has one attempt, within this time."""
        other = copy.copy(self)
        other._retries, other._timeout = Retries(seconds=0.0), httpx2.Timeout(timeout)
        return other

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, answer: type[D], **params: Any) -> D:
        """Get an object."""
        return answer(_object(self._attempt("GET", path, params=params)))

    def get_bytes(self, path: str, accept: str | None = None, **params: Any) -> bytes:
        """Get something other than JSON."""
        headers = {} if accept is None else {"Accept": accept}
        return self._attempt("GET", path, params=params, headers=headers).content

    def pages(self, path: str, item: type[D], page_size: int, **params: Any) -> Iterator[D]:
        """Iterate over all items of a list. The next page is fetched when the previous one is used up."""
        cursor: str | None = None
        while True:
            page = _object(self._attempt("GET", path, params=params | {"cursor": cursor, "limit": page_size}))
            yield from (item(fields) for fields in page["items"])
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def ask(self, path: str, request: Mapping[str, Any] | None, answer: type[D], **params: Any) -> D:
        """Send a POST that writes nothing, and return the answer."""
        return answer(_object(self._attempt("POST", path, params=params, content=json_body(request))))

    def write(
        self,
        path: str,
        request: Mapping[str, Any] | Content | None,
        answer: type[D],
        idempotency_key: str | None = None,
    ) -> D:
        """Send a POST that writes at most once, however often it is sent: every attempt carries the same key.

        Args:
            path: The path below the server's address.
            request: The fields of the body, or a function that makes another body.
            answer: The class of the answer.
            idempotency_key: The caller's own key, for a command that must survive the end of this process.
        """
        key = str(uuid.uuid4()) if idempotency_key is None else _checked_idempotency_key(idempotency_key)
        content = request if callable(request) else json_body(request)
        return answer(_object(self._attempt("POST", path, content=content, headers={"Idempotency-Key": key}, key=key)))

    def delete(self, path: str) -> None:
        """Send a DELETE. It is never sent again, because a second one would find nothing."""
        self._attempt("DELETE", path, repeatable=False)

    @contextmanager
    def stream(self, path: str, headers: Mapping[str, str] | None = None, **params: Any) -> Iterator[httpx2.Response]:
        """Return an answer that is read as it arrives. Once it has begun, the request is not sent again."""
        try:
            with self._http.stream(
                "GET", path, params=_given(params), headers=headers, timeout=self._timeout
            ) as response:
                if not response.is_success:
                    response.read()
                    raise problem_of(response.status_code, _json(response))
                yield response
        except httpx2.TransportError as error:
            raise _no_answer(error, self._http.base_url, None) from error

    def _attempt(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        content: Content | None = None,
        repeatable: bool = True,
        key: str | None = None,
    ) -> httpx2.Response:
        started = self._clock.now()
        attempt = 0
        while True:
            attempt += 1
            failure: httpx2.TransportError | httpx2.Response
            asked: float | None = None
            try:
                body = {} if content is None else dict(content())
                all_headers = {**(headers or {}), **body.pop("headers", {})}
                response = self._http.request(
                    method, path, params=_given(params or {}), headers=all_headers, timeout=self._timeout, **body
                )
            except httpx2.TransportError as error:
                failure = error
                problem: ProblemError = _no_answer(error, self._http.base_url, key)
            else:
                if response.is_success:
                    return response
                failure, asked = response, retry_after(response)
                problem = problem_of(response.status_code, _json(response))
                if isinstance(problem, Unavailable):
                    problem.idempotency_key = key
            wait = self._retries.wait_before(attempt, asked)
            too_late = self._clock.now() + wait - started > self._retries.seconds
            if too_late or not may_try_again(failure, problem.code, repeatable=repeatable):
                raise problem from (failure if isinstance(failure, Exception) else None)
            self._clock.sleep(wait)


class Resource:
    """The calls about one kind of object, over the client's transport."""

    def __init__(self, transport: Transport) -> None:
        self._http = transport


def identifier(named: str | Document) -> str:
    """Return the id of an object that is given by its id, or as the object itself."""
    value = named if isinstance(named, str) else named["id"]
    if not isinstance(value, str) or not value:
        raise ValueError("the argument must be an id, or an answer that has an id")
    return value


def path_to(pattern: str, named: str | Document) -> str:
    """Return a path with an id in it.

    >>> path_to("/v1/budgets/{}/limit", "bud_1")
    '/v1/budgets/bud_1/limit'
    """
    return pattern.format(quote(identifier(named), safe=""))


def json_body(request: Mapping[str, Any] | None) -> Content:
    """Return the body of a request. Fields that are None are left out, so that the service's defaults apply."""
    if request is None:
        return dict
    body = json.dumps(plain(_given(request)), allow_nan=False).encode()
    return lambda: {"content": body, "headers": {"Content-Type": "application/json"}}


def plain(value: Any) -> Any:
    """Return a value in JSON's own types. Answers of the service, tuples and NumPy's numbers are converted."""
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"a request takes numbers, texts, lists and mappings, not {type(value).__name__}")


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _moment(value) for name, value in fields.items() if value is not None}


def _moment(value: Any) -> Any:
    """Return a time in the form of the service. It must have a time zone."""
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is None:
        raise ValueError("a moment needs a time zone: datetime(..., tzinfo=UTC)")
    return value.isoformat()


def _object(response: httpx2.Response) -> dict[str, Any]:
    body = _json(response)
    if not isinstance(body, dict):
        raise problem_of(response.status_code, None)
    return body


def _json(response: httpx2.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _no_answer(error: httpx2.TransportError, url: httpx2.URL, key: str | None) -> Unavailable:
    # The library's message names the cause and never a header; the address has neither user nor query.
    problem = Unavailable(0, "no_answer", f"no answer came from {url}: {str(error) or type(error).__name__}")
    problem.idempotency_key = key
    return problem


def local_token(base_url: str, file: str | os.PathLike[str] | None) -> str | None:
    """Return the token of a server without keys on this machine; None for another machine, or if there is no such file.

    Raises:
        ValueError: the caller named a file that cannot be read, or that holds no token.
    """
    parts = _parts(base_url)
    if parts is None or not _is_loopback(parts.hostname or ""):
        return None
    path = Path(os.environ.get("EPSILOND_DATA_DIR") or "var", "local-token") if file is None else Path(file)
    try:
        line = path.read_text(encoding="ascii")
    except (OSError, ValueError):
        line = ""
    found = _TOKEN_LINE.fullmatch(line.strip())
    if found is None and file is not None:
        raise ValueError(f"token_file {str(path)!r} is not the file local-token of a server, or cannot be read")
    return None if found is None else found[1]


def _check_address(base_url: str, *, has_key: bool, allow_insecure: bool) -> bool:
    """Return whether the address is this machine's own.

    Raises:
        ValueError: the text is no address, or the key would travel unencrypted over a network.
    """
    parts = _parts(base_url)
    if parts is None or parts.hostname is None:
        raise ValueError("base_url must be http://HOST:PORT or https://HOST, without a user, a password or a query")
    is_local = _is_loopback(parts.hostname)
    if has_key and parts.scheme == "http" and not is_local and not allow_insecure:
        raise ValueError(
            f"the key would be sent to {parts.hostname} in clear: use https, or say allow_insecure=True where nobody "
            "else can read that network"
        )
    return is_local


def _parts(base_url: str) -> SplitResult | None:
    """Split a text that is only an address. Return None for any other text."""
    try:
        parts = urlsplit(base_url)
        is_one = parts.scheme in ("http", "https") and parts.port != 0 and (parts.hostname or "").encode("idna") != b""
    except ValueError:  # the brackets, the port or the name is malformed
        return None
    has_more = parts.username is not None or parts.query or parts.fragment
    return parts if is_one and not has_more and base_url.isprintable() and " " not in base_url else None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == _LOCAL_NAME


def _checked_key(api_key: str) -> str:
    if not api_key or not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise ValueError("api_key is not a key of epsilond: such keys consist of ASCII characters without spaces")
    return api_key


def _checked_idempotency_key(key: str) -> str:
    if not 1 <= len(key) <= 200 or not key.isascii() or not key.isprintable() or key != key.strip():
        raise ValueError("idempotency_key must be 1 to 200 printable ASCII characters, without spaces at its ends")
    return key
