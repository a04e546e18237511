"""Which addresses the service asks: nothing that an operator has not allowed, and nothing that is not public."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from app.kit.web_addresses import Forbidden, checked_ips, is_allowed, parse_address

ALLOWED = ["https://hooks.example/epsilond", "http://plain.example:8080", "https://10.1.2.3:8443/"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://hooks.example/epsilond", True),
        ("https://hooks.example/epsilond/", True),
        ("https://hooks.example/epsilond/a/b?c=d", True),
        ("https://hooks.example/epsilond?c=d", True),
        ("https://hooks.example:443/epsilond", True),
        ("http://plain.example:8080/x", True),
        ("https://10.1.2.3:8443/x", True),
        ("https://hooks.example/epsilondx", False),
        ("https://hooks.example/", False),
        ("https://hooks.example:8443/epsilond", False),
        ("http://hooks.example/epsilond", False),
        ("https://hooks.example.evil.example/epsilond", False),
        ("https://plain.example:8080/x", False),
        ("https://10.1.2.3/x", False),
        ("https://167838211:8443/", False),
        ("https://0x0a010203:8443/", False),
    ],
)
def test_an_address_is_allowed_below_one_that_is_named(text: str, expected: bool) -> None:
    assert is_allowed(parse_address(text), ALLOWED) is expected


@pytest.mark.parametrize(
    "text",
    [
        "hooks.example/epsilond",
        "ftp://hooks.example/",
        "file:///etc/passwd",
        "https://user@hooks.example/epsilond",
        "https://hooks.example@127.0.0.1/epsilond",
        "https://hooks.example/epsilond#x",
        "https://hooks.example/epsilond/../x",
        "https://hooks.example/epsilond/%2e%2E/x",
        "https://hooks.example/epsilond/..%2Fx",
        "https://hooks.example/epsilond\\..\\x",
        "https://hooks.example/epsilond/..;/x",
        "https://hooks.example/epsilond/%2e%2e;a=b/x",
        "https://hooks.example/epsilond/..%3Bc/x",
        "https://hooks.example/epsilond/%252e%252e/x",
        "https://hooks.example\\@127.0.0.1/",
        "https://HOOKS.example/epsilond",
        "https://hooks.example:99999/",
        "https://hooks.example:0/",
        "https://hooks.example/a b",
        "https://hooks.example/a\r\nX: y",
        "https://hööks.example/",
        "https://[fe80::1%25eth0]/",
        "https:///epsilond",
        "",
    ],
)
def test_what_is_no_plain_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"this is not an address|must"):
        parse_address(text)


def leading_to(*ips: str) -> Any:
    """A name server that leads every name to these addresses."""

    def resolve(host: str, port: int, type: int) -> list[Any]:
        return [(0, type, 6, "", (ip, port)) for ip in ips]

    return resolve


SPECIAL = [
    "127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "192.0.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1",
    "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1",
    "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "2002:7f00:1::", "2002:a9fe:a9fe::",
    "2001:0:4136:e378:8000:63bf:80ff:fffe", "fec0::1", "feff::1", "3fff::1", "192.88.99.1",
]  # fmt: skip


@pytest.mark.parametrize("ip", SPECIAL)
def test_a_name_that_leads_to_a_special_address_is_not_asked(ip: str) -> None:
    address = parse_address("https://hooks.example/")
    with pytest.raises(Forbidden):
        checked_ips(address, [], leading_to(ip))
    with pytest.raises(Forbidden):
        checked_ips(address, [], leading_to("93.184.215.14", ip))
    assert [str(found) for found in checked_ips(address, [], leading_to("93.184.215.14"))] == ["93.184.215.14"]


#: However an address of this machine is written: the host's own reader knows them all.
WRITTEN = ["127.0.0.1", "[::1]", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[::ffff:127.0.0.1]", "localhost"]


@pytest.mark.parametrize("host", WRITTEN)
def test_an_address_of_this_machine_is_not_asked_however_it_is_written(host: str) -> None:
    address = parse_address(f"http://{host}:8000/")
    with pytest.raises((Forbidden, OSError)):
        checked_ips(address, [], socket.getaddrinfo)


@pytest.mark.parametrize(
    ("ip", "networks", "is_asked"),
    [
        ("10.20.3.4", ["10.20.0.0/16"], True),
        ("10.21.3.4", ["10.20.0.0/16"], False),
        ("::ffff:10.20.3.4", ["10.20.0.0/16"], True),
        ("fd00:1::5", ["10.20.0.0/16", "fd00:1::/32"], True),
        ("127.0.0.1", ["10.20.0.0/16"], False),
        ("::1", ["::1/128"], True),
    ],
)
def test_a_network_that_is_named_is_asked(ip: str, networks: list[str], is_asked: bool) -> None:
    address = parse_address("https://hooks.example/")
    if is_asked:
        assert len(checked_ips(address, networks, leading_to(ip))) == 1
    else:
        with pytest.raises(Forbidden):
            checked_ips(address, networks, leading_to(ip))
