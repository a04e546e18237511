"""The guard before every route: a key, or on a server without keys its local token (`app.auth.local_token`).

A server that has no key yet answers only its own machine. Calculations are open there, because they read and write
nothing that is stored. Everything else needs the token, because a request from another user of the machine, or through
a proxy that adds no header, looks like a request from the service's own user. A web page in the machine's browser can
also send
requests to 127.0.0.1, and can give 127.0.0.1 a name of its own (DNS rebinding). So the peer, the Host, the Origin and
the absence of a proxy are checked before the token.

Pages of the dashboard are shown to people with a session (`app.auth.sessions`). While there are no keys, pages that
only calculate are also shown to every caller on the machine. Everybody else is sent to the sign-in page. A page calls
the paths under
`/v1` in this process, with the rights of the person who sees it.

Addresses from which many attempts failed share a few threads, so that somebody who tries keys keeps nobody else
waiting.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from functools import lru_cache

from anyio import CapacityLimiter, to_thread
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.auth import local_token, service, sessions
from app.auth.failures import FailedAttempts
from app.auth.memory import KeyMemory, SessionMemory
from app.auth.principal import ANYBODY, LOOPBACK, Principal
from app.context import Context
from app.db.failures import DATABASE_FAILURES
from app.kit.caller import CALLER
from app.kit.known_answers import PATHS as KNOWN_ANSWERS
from app.observability.request_id import request_id_of
from app.problems import Problem, database_unavailable

_LOOPBACK_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
_FORWARDING = frozenset({"forwarded", "x-real-ip", "via"})
_FORWARDING_PREFIX = "x-forwarded-"

#: Paths that are answered without a key. Supervisors ask for liveness; the documentation, the dashboard's files and the
#: sign-in page hold no data.
_ALWAYS_OPEN = "/health/"
_OPEN_WITH_KEYS = ("/docs", "/openapi.json", "/dashboard/assets", sessions.SIGN_IN)
#: Calculations, which a server without keys answers to every caller on its own machine. They depend on nothing that is
#: stored; a body that names a budget or a data set is refused by `app.auth.reach`. All paths below `/v1/algorithms` are
#: open in the same way.
CALCULATIONS = KNOWN_ANSWERS | {"/v1/assumptions"}
_DESCRIPTIONS = "/v1/algorithms"
_CALCULATORS = ("/dashboard/calibrate", "/dashboard/import", "/dashboard/compare", "/dashboard/algorithms")
#: The number of threads that look up keys for addresses that sent too many wrong ones.
_THREADS_FOR_SUSPECTS = 2


class Guard:
    """ASGI middleware that finds the request's principal or answers 401, 403 or 503.

    What the database says about keys is remembered for a second (`app.auth.memory`). Then the database is asked again,
    in a thread.
    """

    def __init__(self, app: ASGIApp, context: Context) -> None:
        self.app = app
        self.context = context
        self.memory = KeyMemory(context)
        self.sessions = SessionMemory(context)
        self.failures = FailedAttempts(context.settings.failed_authentications_per_minute)
        self._suspects = CapacityLimiter(_THREADS_FOR_SUSPECTS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] == "http" and not scope["path"].startswith(_ALWAYS_OPEN):
            shown_to = _shown_to(scope)
            if shown_to is not None and (shown_to != ANYBODY or is_calculation(scope["path"])):
                await self.app(scope, receive, send)
                return
            if shown_to is not None:
                await local_token.needed().response(request_id_of(scope))(scope, receive, send)
                return
            try:
                principal = self._remembered(scope) or await self._ask(scope)
            except Problem as refusal:
                problem = self.failures.count(scope.get("client"), refusal) if refusal.status == 401 else refusal
                await problem.response(request_id_of(scope))(scope, receive, send)
                return
            scope["state"]["principal"] = principal
            if principal is None and not _is_open(scope["path"]):
                await self._to_sign_in(scope)(scope, receive, send)
                return
            if principal is not None:
                CALLER.set(principal.id)
        await self.app(scope, receive, send)

    async def _ask(self, scope: Scope) -> Principal | None:
        """Return the principal by asking the database; None for paths that are open to everybody."""
        memory, shown = self._shown(scope, Headers(scope=scope))
        if self.failures.is_suspect(scope.get("client")) and not (shown and memory.knows(shown)):
            principal = await to_thread.run_sync(self._admit, scope, limiter=self._suspects)
        else:
            principal = await run_in_threadpool(self._admit, scope)
        if principal is not None and principal not in (LOOPBACK, ANYBODY) and self.memory.is_due_for_a_note(principal):
            # The request does not wait until its use of the key is recorded, because on SQLite that may wait for
            # another transaction.
            asyncio.get_running_loop().run_in_executor(None, service.note_use, self.context, principal.id)
        return principal

    def _remembered(self, scope: Scope) -> Principal | None:
        """Return the principal, if it is known without asking the database."""
        headers = Headers(scope=scope)
        keys_exist = self.memory.keys_exist(ask=False)
        if keys_exist is None:
            return None
        if not keys_exist:
            return self._without_keys(scope, headers)
        self._check_page(scope, headers)
        memory, shown = self._shown(scope, headers)
        return None if shown is None else memory.principal(shown, ask=False)

    def _admit(self, scope: Scope) -> Principal | None:
        try:
            headers = Headers(scope=scope)
            if not self.memory.keys_exist(ask=True):
                return self._without_keys(scope, headers)
            self._check_page(scope, headers)
            if _is_open(scope["path"]):
                return None
            if sessions.is_page(scope["path"]):
                _, cookie = self._shown(scope, headers)
                return None if cookie is None else self.sessions.principal(cookie, ask=True)
            return self._holder_of_key(headers)
        except DATABASE_FAILURES as error:
            raise database_unavailable() from error

    def _without_keys(self, scope: Scope, headers: Headers) -> Principal | None:
        """Return the principal of a request to a server that never had a key; None for open paths and for signing
        in."""
        check_loopback(scope, headers)
        self._check_page(scope, headers)
        path, settings = scope["path"], self.context.settings
        if _is_open(path):
            return None
        if sessions.is_page(path):
            cookie = sessions.cookie_of(settings, headers)
            if cookie is not None and sessions.is_of_local_token(self.context, cookie):
                return LOOPBACK
            return ANYBODY if path in (sessions.START, sessions.PAGES) or _is_within(path, _CALCULATORS) else None
        if "authorization" in headers:
            if local_token.is_right(settings, _token(headers) or ""):
                return LOOPBACK
            raise local_token.wrong()
        if is_calculation(path):
            return ANYBODY
        raise local_token.needed()

    def _holder_of_key(self, headers: Headers) -> Principal:
        token = _token(headers)
        if token is None:
            detail = (
                "This server needs a key: send one header `Authorization: Bearer epsilond_...`. A token of the "
                "server's provider of accounts works, too, if the server has such a provider."
            )
            raise Problem(401, "unauthenticated", detail, headers={"WWW-Authenticate": 'Bearer realm="epsilond"'})
        principal = self.memory.principal(token, ask=True)
        if principal is None and token.startswith(local_token.PREFIX):
            raise local_token.ended()
        if principal is None:
            challenge = {"WWW-Authenticate": 'Bearer realm="epsilond", error="invalid_token"'}
            raise Problem(401, "invalid_key", "The key is unknown, revoked or expired.", headers=challenge)
        return principal

    def _check_page(self, scope: Scope, headers: Headers) -> None:
        """Refuse a command that was not sent by a page of the dashboard."""
        if scope["method"] not in ("GET", "HEAD") and sessions.is_page(scope["path"]):
            sessions.check_same_origin(self.context.settings, headers)

    def _shown(self, scope: Scope, headers: Headers) -> tuple[KeyMemory, str | None]:
        """Return the memory that checks a request's credential, and the credential: a session for pages, a key for
        everything else."""
        if sessions.is_page(scope["path"]):
            return self.sessions, sessions.cookie_of(self.context.settings, headers)
        return self.memory, _token(headers)

    def _to_sign_in(self, scope: Scope) -> Response:
        """Return a redirect to the sign-in page for clients without a session; 429 if an address sent too many false
        sessions."""
        headers, settings = Headers(scope=scope), self.context.settings
        address, cookie = sessions.sign_in_address(settings, scope, headers), sessions.cookie_of(settings, headers)
        if cookie is not None and not sessions.is_over(self.context, cookie):
            refusal = Problem(401, "invalid_key", "The session is over.")
            counted = self.failures.count(scope.get("client"), refusal)
            if counted is not refusal:
                return counted.response(request_id_of(scope))
        if "hx-request" in headers:  # htmx asks for a part of a page, but the whole page must go to the sign-in
            return Response(status_code=401, headers={"HX-Redirect": address})
        return RedirectResponse(address, 303)


def is_calculation(path: str) -> bool:
    """Return whether a server without keys answers this path to everybody on its machine."""
    return path in CALCULATIONS or _is_within(path, (_DESCRIPTIONS,))


def _shown_to(scope: Scope) -> Principal | None:
    """Return the principal to whom a page of the dashboard is shown. It comes from the request's state, which no client
    can set."""
    principal = scope["state"].get("principal")
    return principal if isinstance(principal, Principal) else None


def _token(headers: Headers) -> str | None:
    """Return the token after `Bearer` in the header Authorization; the token may come in no other place."""
    given = headers.getlist("authorization")
    scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else None


def check_loopback(scope: Scope, headers: Headers) -> None:
    """Refuse every request that might not come from this machine's user.

    Raises:
        Problem: 403, saying which condition is not met.
    """
    hosts, origins = headers.getlist("host"), headers.getlist("origin")
    forwarding = sorted(name for name in headers if name in _FORWARDING or name.startswith(_FORWARDING_PREFIX))
    if not _is_loopback(scope.get("client")):
        reason = "the request comes from another machine"
    elif len(hosts) != 1 or not _LOOPBACK_HOST.fullmatch(hosts[0]):
        reason = "the header Host is not localhost, 127.0.0.1 or [::1]"
    elif origins and [origin.lower() for origin in origins] != [f"{scope['scheme']}://{hosts[0]}".lower()]:
        reason = "the header Origin names another site"
    elif forwarding:
        reason = f"the header {forwarding[0]} shows that a proxy forwarded the request"
    else:
        return
    detail = (
        f"This server has no key yet and answers only its own machine: {reason}. "
        "Create a key with `epsilond keys create`."
    )
    raise Problem(403, "loopback_only", detail)


def _is_loopback(client: tuple[str, int] | None) -> bool:
    return _is_loopback_address(client[0] if client else "")


@lru_cache(maxsize=256)
def _is_loopback_address(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _is_open(path: str) -> bool:
    return _is_within(path, _OPEN_WITH_KEYS)


def _is_within(path: str, prefixes: tuple[str, ...]) -> bool:
    return any(path == prefix or path.startswith(f"{prefix}/") for prefix in prefixes)
