"""Sessions of browsers: somebody who signs in with a key gets a session, which opens the pages of the dashboard.

A cookie names a key and an end, and has a code that proves both and also covers the hash of the key's newest token. So
nothing is stored, and ending the token ends the session. The token itself never reaches the browser. A session opens
only pages, never `/v1`, so no other site can make a signed-in browser ask the service for anything.

Somebody who signs in by a provider (`app.auth.oidc`) gets a session of their account. The account's rights are looked
up with every request. On a server without keys the local token is used in place of a key, and its session ends with the
first key.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import SplitResult, quote, urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Scope

from app.auth import local_token, repository, service
from app.auth.oidc import principals
from app.auth.principal import LOOPBACK, Principal
from app.context import Context
from app.problems import Problem
from app.settings import Settings
from app.tables.access import ApiKey

LONGEST = timedelta(hours=12)
#: Browsers accept a cookie with this prefix only over https, and no other host can set it.
COOKIE_OF_HTTPS = "__Host-epsilond_session"
#: The cookie of a service below a path, which `__Host-` does not allow: the browser sends it only to that path.
COOKIE_OF_HTTPS_BELOW = "__Secure-epsilond_session"
COOKIE = "epsilond_session"

START = "/"
PAGES = "/dashboard"
SIGN_IN = "/dashboard/sign-in"

# A session of an account contains, in base64, the group that gives the account its rights.
_COOKIE = re.compile(
    rf"(?P<id>key_[a-z2-7]{{24}}|{LOOPBACK.id})(~(?P<group>[A-Za-z0-9_-]{{0,1100}}))?"
    r"\.(?P<end>[0-9]{1,11})\.(?P<code>[0-9a-f]{64})"
)
_NO_HASH = "0" * 64
# A path of this service with its query. A path that begins with `//`, or has a backslash in place of a slash, leads
# browsers to another site.
_OWN_ADDRESS = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*")
_LONGEST_ADDRESS = 4000


@dataclass(frozen=True)
class Session:
    """A new session: the content and the lifetime of its cookie."""

    cookie: str
    seconds: int


def begin(context: Context, key_id: str, valid_until: datetime | None) -> Session | None:
    """Begin a session for a key whose token was just shown, valid until ``valid_until``; None if the key has ended.

    The result is also None for an account, whose session must contain its group (`begin_of_account`).
    """
    now = context.clock()
    end = min(now + LONGEST, valid_until or now + LONGEST)
    with context.database.read() as session:
        key = repository.find(session, key_id)
    if key is None or key.is_account or key.has_ended(now):
        return None
    return _session(context, key.id, end, lambda named: _code(context, key, named))


def begin_of_account(context: Context, account_id: str, group: str | None, lifetime: timedelta) -> Session | None:
    """Begin a session of an account that the provider has just confirmed; None if it is barred.

    Args:
        context: The process's context.
        account_id: The id of its row.
        group: The group that gives it its rights; None if they are its own.
        lifetime: At most `LONGEST`.
    """
    now = context.clock()
    with context.database.read() as session:
        account = repository.find(session, account_id)
    if account is None or account.has_ended(now):
        return None
    named = "" if group is None else urlsafe_b64encode(group.encode()).rstrip(b"=").decode()
    return _session(
        context, f"{account.id}~{named}", now + min(lifetime, LONGEST), lambda text: _code(context, account, text)
    )


def _session(context: Context, holder: str, end: datetime, code: Callable[[str], str]) -> Session:
    named = f"{holder}.{int(end.timestamp())}"
    return Session(f"{named}.{code(named)}", int((end - context.clock()).total_seconds()))


def begin_with_local_token(context: Context) -> Session | None:
    """Begin a session for somebody who showed the local token, or a code in its place; None if the token has ended."""
    token = local_token.read(context.settings)
    if token is None:
        return None
    end = context.clock() + LONGEST
    return _session(context, LOOPBACK.id, end, lambda named: _code_of_local(token, named))


def is_of_local_token(context: Context, cookie: str) -> bool:
    """Return whether the present local token began this session. This is asked only on a server without keys."""
    parts, token = _COOKIE.fullmatch(cookie), local_token.read(context.settings)
    if parts is None or parts["id"] != LOOPBACK.id or token is None or is_over(context, cookie):
        return False
    return hmac.compare_digest(_code_of_local(token, _named(cookie)), parts["code"])


def authenticate(context: Context, cookie: str) -> Principal | None:
    """Return the principal of a key's or an account's session; None if the session has ended or is not valid."""
    parts = _COOKIE.fullmatch(cookie)
    if parts is None or parts["id"] == LOOPBACK.id or is_over(context, cookie):
        return None
    with context.database.read() as session:
        key = repository.find(session, parts["id"])
        # The comparison is always made, and takes the same time whichever characters differ.
        is_right = hmac.compare_digest(_NO_HASH if key is None else _code(context, key, _named(cookie)), parts["code"])
        if key is None or key.has_ended(context.clock()) or not is_right:
            return None
        end = datetime.fromtimestamp(int(parts["end"]), UTC)
        if parts["group"] is not None:
            return principals.principal_of(session, context, key, _groups(parts["group"]), end)
    return service.principal_of(key, end if key.expires_at is None else min(end, key.expires_at))


def _groups(text: str) -> list[str]:
    """Return the group in a cookie with a right code, as a list; empty if the account's rights are its own."""
    return [urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()] if text else []


def is_over(context: Context, cookie: str) -> bool:
    """Return whether a cookie has the right form and a time that has passed. Such a cookie is not a sign of an
    attack.
    """
    parts = _COOKIE.fullmatch(cookie)
    return parts is not None and int(parts["end"]) <= context.clock().timestamp()


def cookie_place(settings: Settings, *, is_https: bool) -> tuple[str, str]:
    """Return the name and the path of the session's cookie."""
    of_https = COOKIE_OF_HTTPS_BELOW if settings.public_path else COOKIE_OF_HTTPS
    return of_https if is_https else COOKIE, settings.public_path or "/"


def cookie_of(settings: Settings, headers: Headers) -> str | None:
    """Return the session's cookie of a request, preferring the one that only https may set.

    If the service has an https address, only that cookie counts, because others could set the other one.
    """
    found, known = cookie_parser("; ".join(headers.getlist("cookie"))), settings.public_address
    schemes = (True, False) if known is None else (known.scheme == "https",)
    names = [cookie_place(settings, is_https=is_https)[0] for is_https in schemes]
    return next((found[name] for name in names if found.get(name)), None)


def is_page(path: str) -> bool:
    """Return whether an address belongs to the dashboard."""
    return path in (START, PAGES) or path.startswith(f"{PAGES}/")


def own_address(text: str) -> str:
    """Return where to go after signing in: ``text`` if it is the address of a page, else the first page.

    >>> own_address("/dashboard/runs?state=failed"), own_address("//evil.example/dashboard"), own_address("/v1/keys")
    ('/dashboard/runs?state=failed', '/', '/')
    """
    if len(text) > _LONGEST_ADDRESS or _OWN_ADDRESS.fullmatch(text) is None:
        return START
    path = urlsplit(text).path
    return text if is_page(path) and not path.startswith(SIGN_IN) else START


def sign_in_address(settings: Settings, scope: Scope, headers: Headers) -> str:
    """Return the sign-in address to which a page without a session leads; signing in leads back to the page."""
    if scope["method"] not in ("GET", "HEAD"):
        return SIGN_IN
    query = scope["query_string"].decode("latin-1")
    wanted = scope["path"] + (f"?{query}" if query else "")
    if "hx-request" in headers:  # htmx asks for a part of a page, but the whole page is wanted
        shown = _parts(headers.get("hx-current-url", ""))
        wanted = shown.path.removeprefix(settings.public_path) + (f"?{shown.query}" if shown.query else "")
    address = own_address(wanted)
    return SIGN_IN if address == START else f"{SIGN_IN}?next={quote(address, safe='')}"


def address_with_code(server: str, code: str) -> str:
    """Return the address of the page that signs a browser in with a code (`app.auth.sign_in_codes`)."""
    return f"{server.rstrip('/')}{SIGN_IN}?code={code}"


def check_same_origin(settings: Settings, headers: Headers) -> None:
    """Refuse a command that was not sent by a page of the service's public address or, without one, of the Host's.

    Raises:
        Problem: 403 if another site sent it, or if no header says which site sent it.
    """
    origins, hosts = headers.getlist("origin"), headers.getlist("host")
    known = settings.public_address
    if known is None:
        is_ours = len(origins) == len(hosts) == 1 and _parts(origins[0]).netloc.lower() == hosts[0].lower() != ""
        ours = "this server"
    else:
        ours = f"{known.scheme}://{known.authority}"
        is_ours = [origin.lower() for origin in origins] == [ours]
    if not is_ours or headers.get("sec-fetch-site", "same-origin") != "same-origin":
        detail = f"The dashboard takes commands only from its own pages: the header Origin must name {ours}."
        raise Problem(403, "other_origin", detail)


def _parts(address: str) -> SplitResult:
    """Split an address from a header. The client wrote it, so all parts are empty if it is not an address."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _named(cookie: str) -> str:
    """Return the part of a cookie that its code covers, which is everything before the code."""
    return cookie.rpartition(".")[0]


def _code(context: Context, key: ApiKey, named: str) -> str:
    return context.keyed_hash("session", f"{named}.{key.token_hash}".encode(), key.secret_version)


def _code_of_local(token: str, named: str) -> str:
    """Return the code of a session of the local token. The code is keyed with the token itself, which has 256 random
    bits. So a new token ends the sessions of the previous token.
    """
    return hmac.new(token.encode(), f"session {named}".encode(), hashlib.sha256).hexdigest()
