"""The service behind a proxy: the address from which a request comes, and the path at the beginning of every link.

The proxy removes the path of EPSILOND_PUBLIC_URL from a request, so that all code inside uses addresses at the root.
The path is put back into every address that leaves: into headers here, into links by `with_path`. The headers Host,
X-Forwarded-Host, X-Forwarded-Proto and Forwarded are ignored, since any client may write them.
"""

from __future__ import annotations

import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.kit.web_addresses import Network, ip_of, is_within
from app.settings import Settings

#: The headers of answers whose value is an address.
_ADDRESSES = frozenset({b"location", b"hx-redirect", b"hx-location", b"hx-push-url", b"hx-replace-url"})
#: The attributes in this service's templates whose value is an address. Values are escaped, so no text of a page
#: matches.
_LINK = re.compile(r'(?<=[\s"])((?:href|src|action|formaction|hx-(?:get|post|push-url))=")/(?!/)')
#: The largest number of proxies in a row. No real installation has as many.
_MOST_HOPS = 20


class Forwarding:
    """ASGI middleware that believes trusted proxies about clients, and leads answers below the public path."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self._trusted = settings.trusted_networks
        self._path = settings.public_path.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._trusted and scope.get("client"):
            scope["client"] = _client(scope["client"], Headers(scope=scope), self._trusted)

        async def send_below(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [self._below(name, value) for name, value in message.get("headers", ())]
            await send(message)

        await self.app(scope, receive, send_below if self._path else send)

    def _below(self, name: bytes, value: bytes) -> tuple[bytes, bytes]:
        leads_here = name in _ADDRESSES and value.startswith(b"/") and not value.startswith(b"//")
        return name, self._path + value if leads_here else value


def with_path(page: str, path: str) -> str:
    """Put the public path before every address of this service in a page.

    >>> with_path('<a class="x" href="/docs">', "/epsilond"), with_path('<a href="//other/">', "/epsilond")
    ('<a class="x" href="/epsilond/docs">', '<a href="//other/">')
    """
    return _LINK.sub(rf"\1{path}/", page) if path else page


def _client(peer: tuple[str, int], headers: Headers, trusted: tuple[Network, ...]) -> tuple[str, int]:
    """Return the address of the client: the last one in X-Forwarded-For that belongs to no trusted proxy.

    Each proxy appends the address that connected to it. Addresses further left were written by the client, and are not
    believed.
    """
    client = peer
    hops = [hop.strip() for hop in ",".join(headers.getlist("x-forwarded-for")).split(",")]
    for hop in reversed(hops[-_MOST_HOPS:]):
        if not is_within(client[0], trusted) or ip_of(hop) is None:
            break
        client = (str(ip_of(hop)), 0)
    return client
