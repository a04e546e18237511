"""Addresses to which the service itself sends requests: how they are written, and which are allowed.

A person who registers an address chooses what this machine connects to, and this machine may reach hosts that the
person cannot. So an address must be below one that an operator has allowed. Its host is resolved once, to public
addresses or
to addresses in networks that the operator has named.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

Network = IPv4Network | IPv6Network
Ip = IPv4Address | IPv6Address

_FORM = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(:(?P<port>[0-9]{1,5}))?"
    r"(?P<path>(/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)*)(\?(?P<query>[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*))?"
)
_PORTS = {"http": 80, "https": 443}
#: IPv6 networks whose last 32 bits are an IPv4 address, at any translator.
_TRANSLATED = (ip_network("64:ff9b::/96"), ip_network("::/96"))
#: The IPv6 network of local translators, which may put an IPv4 address anywhere.
_OWN_TRANSLATORS = ip_network("64:ff9b:1::/48")
#: Networks that IANA registers as special and that the library does not list: relays of 6to4, documentation.
_SPECIAL_BESIDES = (_OWN_TRANSLATORS, ip_network("192.88.99.0/24"), ip_network("3fff::/20"))
#: The type of `socket.getaddrinfo`, and of the functions that tests use in its place.
Resolve = Callable[..., Sequence[Any]]


@dataclass(frozen=True)
class Address:
    """An address that a request goes to.

    Attributes:
        scheme: ``http`` or ``https``.
        host: A name, or an address of IPv4 or IPv6 without brackets.
        port: The given port, or the default of the scheme.
        path: With its leading slash; empty if none is given.
        query: The query, without the question mark.
    """

    scheme: str
    host: str
    port: int
    path: str
    query: str

    @property
    def target(self) -> str:
        """Return the target in the first line of a request."""
        return (self.path or "/") + (f"?{self.query}" if self.query else "")

    @property
    def authority(self) -> str:
        """Return the value of the header Host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def is_below(self, allowed: Address) -> bool:
        """Return whether this address has the scheme, host and port of another, and a path at or below the other's
        path."""
        if (self.scheme, self.host, self.port) != (allowed.scheme, allowed.host, allowed.port):
            return False
        above = allowed.path.rstrip("/")
        return self.path == above or self.path.startswith(f"{above}/")


class Forbidden(ValueError):
    """The host resolves to an address to which the service must not connect."""


def parse_address(text: str) -> Address:
    """Read an address.

    Raises:
        ValueError: the text is no address, or has a part that no address here needs: a user, a fragment, capital
            letters in the host, or a path that leads upwards.

    >>> parse_address("https://hooks.example:8443/a?b=c").target
    '/a?b=c'
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(
            "this is not an address such as https://privacy.example/path: it must begin with https:// or http:// "
            "and a host in lower case, and must have no user and no #"
        )
    port = int(found["port"]) if found["port"] else _PORTS[found["scheme"]]
    if not 1 <= port <= 65535:
        raise ValueError("the port must be between 1 and 65535")
    _check_steps(found["path"])
    return Address(found["scheme"], found["host"].strip("[]"), port, found["path"], found["query"] or "")


def _check_steps(path: str) -> None:
    """Check that no server reads a path as leading upwards. Some servers drop what follows a semicolon, or decode
    twice.

    Raises:
        ValueError: some server might read the path as leading upwards.
    """
    steps = [re.split(r";|%3[bB]", re.sub(r"%2[eE]", ".", step))[0] for step in path.split("/")]
    if any(step in (".", "..") for step in steps):
        raise ValueError("the path must not have steps such as . and ..")
    if re.search(r"%(2[fF]|5[cC]|25|00)", path):
        raise ValueError("the path must not contain %2F, %5C, %25 or %00")


def is_allowed(address: Address, allowed: Iterable[str]) -> bool:
    """Return whether an address is below one of those that an operator has allowed."""
    return any(address.is_below(parse_address(each)) for each in allowed)


def checked_ips(address: Address, networks: Iterable[str], resolve: Resolve = socket.getaddrinfo) -> list[Ip]:
    """Resolve the host once. Callers connect only to the returned addresses.

    Raises:
        OSError: the host does not resolve.
        Forbidden: one of the addresses is private, local or otherwise special, and in none of the networks.
    """
    named = [ip_network(each) for each in networks]
    found = resolve(address.host, address.port, type=socket.SOCK_STREAM)
    ips = [ip_address(each[4][0].partition("%")[0]) for each in found]
    if not ips or not all(_may_be_asked(ip, named) for ip in ips):
        raise Forbidden("the host resolves to an address that is not public")
    return list(dict.fromkeys(ips))


def _may_be_asked(ip: Ip, named: Sequence[Network]) -> bool:
    behind = _behind(ip)
    if any(behind.version == network.version and behind in network for network in named):
        return True
    is_special = behind.is_multicast or behind.is_reserved or behind.is_unspecified
    if isinstance(behind, IPv6Address):
        is_special = is_special or behind.is_site_local
    return behind.is_global and not is_special and not any(behind in network for network in _SPECIAL_BESIDES)


def _behind(ip: Ip) -> Ip:
    """Return the IPv4 address that an IPv6 address stands for; any other address is returned unchanged."""
    if isinstance(ip, IPv4Address):
        return ip
    if ip.is_loopback:
        return ip
    for inside in (ip.ipv4_mapped, ip.sixtofour, None if ip.teredo is None else ip.teredo[1]):
        if inside is not None:
            return inside
    return IPv4Address(int(ip) & 0xFFFFFFFF) if any(ip in network for network in _TRANSLATED) else ip


def is_within(host: str, networks: tuple[Network, ...]) -> bool:
    """Return whether this is an address in one of the networks. An IPv4 address may be written as an IPv6 one.

    >>> is_within("::ffff:10.0.0.7", (ip_network("10.0.0.0/8"),)), is_within("a name", (ip_network("0.0.0.0/0"),))
    (True, False)
    """
    address = ip_of(host)
    return address is not None and any(address in network for network in networks)


def ip_of(text: str) -> Ip | None:
    """Return the text as an IP address; None if it is not one."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
