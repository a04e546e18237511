"""Asks a server for the commands `run` and `budget`, with the standard library alone."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from socket import gaierror
from typing import Annotated, Any, NoReturn
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import typer

from app import VERSION
from app.cli.forms import Form
from app.cli.output import print_answer, print_error
from app.cli.refusals import Status, fail, refuse
from app.cli.requests import Asked
from app.kit import collector

Url = Annotated[
    str,
    typer.Option("--url", envvar="EPSILOND_URL", help="Address of the server; the key is taken from EPSILOND_API_KEY."),
]
IdempotencyKey = Annotated[
    str | None,
    typer.Option(
        help="Idempotency key of a command whose answer got lost: you get its answer again, and it is not done twice."
    ),
]
Budget = Annotated[str, typer.Argument(metavar="BUDGET", help="The id or the name; `budget list` shows both.")]
Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="The id or the name; `dataset list` shows both.")]
Limit = Annotated[int | None, typer.Option(help="How many lines to show, at most 200.")]
Cursor = Annotated[str | None, typer.Option(help="Cursor of the next page, from the end of the last page.")]
DEFAULT_URL = "http://127.0.0.1:8000"

#: The seconds that a request may take. The calibration of a run may take many seconds.
TIMEOUT_S = 120.0
#: A stream that sends nothing for this many seconds is dead, since it should send a comment every 15 seconds.
SILENCE_S = 45.0
#: The most attempts of a request, or of opening a stream, while no answer comes.
ATTEMPTS = 4
PAUSE_S = 1.0

_LARGEST_LINE = 2**20
#: The number of items of a list that are fetched at once.
_LONGEST_PAGE = 200
#: The errors that reading raises if the text is not an answer of the service.
_OTHERWISE = (LookupError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True)
class Progress:
    """One event of a run's stream: how many of its steps are done.

    Attributes:
        id: Names the event, so that the stream can go on after it.
        is_end: Whether this is the last event.
    """

    id: str
    done: int
    total: int
    is_end: bool


@dataclass
class Server:
    """A server, and the key to ask it with: EPSILOND_API_KEY, else the local token of a server on this machine."""

    url: str
    key: str = field(default_factory=lambda: os.environ.get("EPSILOND_API_KEY", "").strip(), repr=False)

    def __post_init__(self) -> None:
        collector.resume()
        self._parts, self._places = _checked(self.url), dict[str, str]()
        if not self.key and _is_loopback(self._parts.hostname or ""):
            self.key = _local_token()
        if not self.key.isascii() or not self.key.isprintable():
            fail("EPSILOND_API_KEY is not a key: it holds characters that no key has.")
        if self.key and self._parts.scheme == "http" and not _is_loopback(self._parts.hostname or ""):
            print_error(f"warning: the key goes to {self._parts.hostname} in the clear; https:// would protect it")

    def get(self, path: str, query: Mapping[str, object] | None = None, accept: str = "application/json") -> bytes:
        """Return the body of the answer. If the request fails, the command ends."""
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = f"{path}?{urlencode(given)}" if given else path
        return self._ask("GET", target, {"Accept": accept}, None)

    def post(self, path: str, request: Asked | None, idempotency_key: str | None) -> bytes:
        """Send a command and return the body of the answer. However often it is sent, it takes effect once.

        Args:
            path: Of the call.
            request: The body; None if the call has none.
            idempotency_key: The idempotency key of an earlier call whose answer is wanted again; None for a new call.
        """
        key = idempotency_key or secrets.token_hex(16)
        headers = {"Idempotency-Key": key}
        body = None
        if request is not None:
            headers["Content-Type"] = "application/json"
            self._places, body = request.places, json.dumps(request.body).encode()
        return self._ask("POST", path, headers, body, f" It may have taken effect: --idempotency-key {key} asks again.")

    def upload(self, path: str, file: Path, metadata: Asked, idempotency_key: str | None) -> bytes:
        """Upload a file with its declaration, and return the answer. The file is read while it is sent, a part at a
        time.

        Args:
            path: Of the call.
            file: The file; its name shows the format.
            metadata: The declaration.
            idempotency_key: As in `post`.
        """
        key, self._places = idempotency_key or secrets.token_hex(16), dict[str, str]()
        self._places |= {f"/metadata{place}": option for place, option in metadata.places.items()}
        form = Form(file, json.dumps(metadata.body).encode())
        headers = {"Idempotency-Key": key, "Content-Type": form.content_type, "Content-Length": str(form.length)}
        return self._ask("POST", path, headers, form, f" It may have taken effect: --idempotency-key {key} asks again.")

    def tell(self, text: bytes, as_json: bool, in_tables: Callable[[Any], None]) -> None:
        """Print an answer as JSON or as tables, if it comes from epsilond."""
        try:
            print_answer(text, as_json, in_tables)
        except _OTHERWISE:
            self._answers_otherwise()

    def field(self, text: bytes, name: str) -> str:
        """Return a field of an answer."""
        try:
            return str(json.loads(text)[name])
        except _OTHERWISE:
            self._answers_otherwise()

    def budget_id(self, named: str) -> str:
        """Return the id of a budget: the given id, or the id of the only budget within reach that has exactly this
        name.

        A text that begins like an id is taken for an id. So no request is made for ids.
        """
        return self._id_of(named, "bud_", "budget", "/v1/budgets")

    def dataset_id(self, named: str) -> str:
        """Find the id of a data set, as `budget_id` does for a budget."""
        return self._id_of(named, "ds_", "dataset", "/v1/datasets")

    def ids_of(self, path: str, name: str) -> list[str]:
        """Return the ids of all objects in a list that have exactly this name and are within reach."""
        found: list[str] = []
        cursor = None
        while True:
            text = self.get(path, {"limit": _LONGEST_PAGE, "cursor": cursor})
            try:
                page = json.loads(text)
                found += [str(each["id"]) for each in page["items"] if each["name"] == name]
                cursor = page["next_cursor"]
            except _OTHERWISE:
                self._answers_otherwise()
            if cursor is None:
                return found

    def _id_of(self, named: str, prefix: str, command: str, path: str) -> str:
        if named.startswith(prefix):
            return named
        found, noun = self.ids_of(path, named), command.replace("dataset", "data set")
        if not found:
            fail(f"There is no {noun} with the name {named!r}. `epsilond {command} list` shows names and ids.")
        if len(found) > 1:
            fail(f"{len(found)} {noun}s have the name {named!r}: {', '.join(found)}. Give the id of the one you mean.")
        return found[0]

    def progress(self, path: str) -> Iterator[Progress]:
        """Yield a run's stream to its end, even if the connection breaks off. Yield nothing if the run has ended."""
        last, failures = "", 0
        while True:
            try:
                for event in self._stream(path, last):
                    last, failures = event.id, 0
                    yield event
                    if event.is_end:
                        return
            except _Ended:
                return
            except (OSError, http.client.HTTPException, *_OTHERWISE) as error:
                failures += 1
                if failures >= ATTEMPTS:
                    self._no_answer(error)
            time.sleep(PAUSE_S)

    def _ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | Form | None, unclear: str = ""
    ) -> bytes:
        attempt = 0
        while True:
            attempt += 1
            connection = self._connect(TIMEOUT_S)
            try:
                connection.request(method, self._parts.path + target, body, self._headers(headers))
                response = connection.getresponse()
                answer = response.read()
            except (
                ConnectionRefusedError,
                gaierror,
                ssl.SSLError,
            ) as error:  # Nothing was sent, and another attempt would not help.
                self._no_answer(error)
            except (OSError, http.client.HTTPException) as error:
                if attempt >= ATTEMPTS:
                    self._no_answer(error, unclear)
            else:
                if not _is_running_still(response, answer) or attempt >= ATTEMPTS:
                    self._check(response, answer)
                    return answer
            finally:
                connection.close()
            time.sleep(PAUSE_S)

    def _stream(self, path: str, last: str) -> Iterator[Progress]:
        connection = self._connect(SILENCE_S)
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        try:
            connection.request("GET", self._parts.path + path, None, self._headers(headers))
            response = connection.getresponse()
            if response.status == http.HTTPStatus.NO_CONTENT:
                raise _Ended
            if response.status != http.HTTPStatus.OK:
                self._check(response, response.read())
            yield from _events(response)
        finally:
            connection.close()

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=timeout)
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def _headers(self, more: Mapping[str, str]) -> dict[str, str]:
        authorization = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return {"User-Agent": f"epsilond/{VERSION}", **authorization, **more}

    def _check(self, response: http.client.HTTPResponse, body: bytes) -> None:
        """End the command unless the answer is a success."""
        if response.status < http.HTTPStatus.MULTIPLE_CHOICES:
            return
        if response.getheader("Content-Type", "").startswith("application/problem+json"):
            try:
                document = json.loads(body)
            except ValueError:
                document = None
            if isinstance(document, dict):
                if response.status == http.HTTPStatus.UNAUTHORIZED and "detail" in document:
                    document["detail"] = _how_to_show_a_key(document["detail"])
                refuse(document, self._places)
        where = response.getheader("Location")
        hint = f" and points to {where}" if where else ""
        fail(f"{self.url} answers {response.status} {response.reason}{hint}, not as epsilond does. Is it the server?")

    def _answers_otherwise(self) -> NoReturn:
        fail(f"{self.url} does not answer as epsilond {VERSION} does. --json prints its answer.")

    def _no_answer(self, error: Exception, unclear: str = "") -> NoReturn:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        fail(f"{self.url} does not answer: {reason}. EPSILOND_URL or --url names another.{unclear}", Status.NO_ANSWER)


def _how_to_show_a_key(said: str) -> str:
    """Return advice for a client that was not admitted, and the service's own message."""
    if "This server has no key yet" in said:
        return (
            "Show this server's token: `export EPSILOND_DATA_DIR=/path/to/the/server/var`, the folder of the server's "
            f"data. {said}"
        )
    return f"{said} A key is read from EPSILOND_API_KEY: `export EPSILOND_API_KEY=epsilond_...`."


class _Ended(Exception):
    """The stream has ended."""


def segment(identifier: str) -> str:
    """Return the typed id as one segment of a path, with special characters escaped."""
    return quote(identifier, safe="")


def _events(response: http.client.HTTPResponse) -> Iterator[Progress]:
    fields: dict[str, str] = {}
    while line := response.readline(_LARGEST_LINE):
        name, _, value = line.decode().rstrip("\r\n").partition(":")
        if name:
            fields[name] = value.removeprefix(" ")
        elif "data" in fields:
            counted = json.loads(fields["data"])["progress"]
            yield Progress(fields["id"], int(counted["done"]), int(counted["total"]), fields["event"] == "end")
            fields = {}
        else:
            fields = {}


def _is_running_still(response: http.client.HTTPResponse, body: bytes) -> bool:
    """Return whether the request was sent before and is still being worked on."""
    return response.status == http.HTTPStatus.CONFLICT and b'"request_in_progress"' in body


def _local_token() -> str:
    """Return the token of this user's own server without keys on this machine; empty if there is none to read.

    This does not call `app.auth.local_token`, whose imports would slow down every command.
    """
    try:
        line = (Path(os.environ.get("EPSILOND_DATA_DIR") or "var") / "local-token").read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""
    head, _, token = line.strip().partition("Bearer ")
    return token if head == "Authorization: " else ""


def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url.rstrip("/"))
        # A host that cannot be a name, such as one with an empty part, is refused here; the socket would raise a
        # traceback.
        host = (parts.hostname or "").encode("idna")
        is_one = parts.scheme in ("http", "https") and host != b"" and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one or not url.isascii() or not url.isprintable():
        fail("--url, or EPSILOND_URL, is not the address of a server, such as https://epsilond.example.")
    if parts.username is not None or parts.query or parts.fragment:
        fail("--url, or EPSILOND_URL, must be an address and nothing else: put the key into EPSILOND_API_KEY.")
    return parts


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
