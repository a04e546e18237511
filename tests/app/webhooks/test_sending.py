"""One attempt, against real receivers: nothing is followed, nothing is waited for longer than it may."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from app.kit.web_addresses import parse_address
from app.webhooks.sending import Outcome, send
from tests.app.webhooks.receiver import receiving

LOCAL = ["127.0.0.0/8"]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Outcome(None, 200)),
        (b"HTTP/1.0 299 Anything\n", Outcome(None, 299)),
        (b"HTTP/1.1 204\r\n", Outcome(None, 204)),
        (b"HTTP/1.1 500 No\r\n\r\n", Outcome("refused", 500)),
        (b"HTTP/1.1 410 Gone\r\n\r\n", Outcome("refused", 410)),
        (b"HTTP/1.1 100 Continue\r\n\r\n", Outcome("refused", 100)),
        (b"SSH-2.0-OpenSSH\r\n", Outcome("no_answer")),
        (b"HTTP/1.1 2000 OK\r\n", Outcome("no_answer")),
        (b"x" * 10_000, Outcome("no_answer")),
        (b"", Outcome("no_answer")),
        (None, Outcome("no_answer")),
    ],
)
def test_the_first_line_of_the_answer_decides(answer: bytes | None, outcome: Outcome) -> None:
    with receiving() as receiver:
        receiver.answer = answer
        assert send(parse_address(receiver.url + "?a=b"), LOCAL, {"webhook-id": "msg_1"}, b"{}") == outcome
        (received,) = receiver.received
    assert (received.target, received.body) == ("/hook?a=b", b"{}")
    assert received.headers["webhook-id"] == "msg_1"
    assert received.headers["host"] == f"127.0.0.1:{receiver.port}"


def test_a_redirect_is_not_followed() -> None:
    with receiving() as inside, receiving() as receiver:
        receiver.answer = f"HTTP/1.1 307 Elsewhere\r\nLocation: {inside.url}\r\n\r\n".encode()
        assert send(parse_address(receiver.url), LOCAL, {}, b"{}") == Outcome("redirect_not_followed", 307)
        assert len(receiver.received) == 1
        assert inside.received == []


def test_a_receiver_that_is_slow_is_given_up() -> None:
    with receiving() as receiver:
        receiver.answer = 30.0
        began = time.monotonic()
        assert send(parse_address(receiver.url), LOCAL, {}, b"{}", deadline_s=0.3) == Outcome("timeout")
        assert time.monotonic() - began < 5


def test_a_receiver_that_drips_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            connection, _ = listening.accept()
            with connection:
                try:
                    while True:
                        connection.sendall(b"H")
                        time.sleep(0.05)
                except OSError:
                    return

        threading.Thread(target=drip, daemon=True).start()
        address = parse_address(f"http://127.0.0.1:{listening.getsockname()[1]}/")
        assert send(address, LOCAL, {}, b"{}", deadline_s=0.5).error in ("timeout", "no_answer")


def test_nobody_listens() -> None:
    with receiving() as receiver:
        url = receiver.url
    assert send(parse_address(url), LOCAL, {}, b"{}") == Outcome("connection_failed")


def test_an_address_that_is_not_public_is_never_connected_to() -> None:
    with receiving() as receiver:
        assert send(parse_address(receiver.url), [], {}, b"{}") == Outcome("address_forbidden")
        assert receiver.received == []


def test_the_name_is_resolved_once_and_the_checked_address_is_asked() -> None:
    """A name server that tells a public address first, and the next time one of this machine, gets nobody there."""
    asked = []

    def rebinding(host: str, port: int, type: int) -> list[Any]:
        asked.append(host)
        ip = "127.0.0.1" if len(asked) == 1 else "127.0.0.2"
        return [(0, type, 6, "", (ip, port))]

    with receiving() as receiver:
        address = parse_address(f"http://hooks.example:{receiver.port}/hook")
        # The name itself leads nowhere: whoever resolved it again would not get here.
        assert send(address, ["127.0.0.1/32"], {}, b"{}", resolve=rebinding) == Outcome(None, 204)
        assert receiver.received[0].headers["host"] == f"hooks.example:{receiver.port}"
    assert asked == ["hooks.example"]


def test_a_name_that_leads_nowhere() -> None:
    def nowhere(host: str, port: int, type: int) -> list[Any]:
        raise socket.gaierror(-2, "Name or service not known")

    assert send(parse_address("https://hooks.example/"), [], {}, b"{}", resolve=nowhere) == Outcome("name_not_found")


def test_https_needs_a_certificate_that_is_believed(tmp_path: Path) -> None:
    trusted, certificate = self_signed("hooks.example", tmp_path)
    with receiving(certificate) as receiver:
        address = parse_address(f"https://hooks.example:{receiver.port}/hook")

        def here(host: str, port: int, type: int) -> list[Any]:
            return [(0, type, 6, "", ("127.0.0.1", port))]

        assert send(address, LOCAL, {}, b"{}", resolve=here) == Outcome("tls_failed")
        assert receiver.received == []
        assert send(address, LOCAL, {}, b"{}", resolve=here, tls=trusted) == Outcome(None, 204)
        other = parse_address(f"https://other.example:{receiver.port}/hook")
        assert send(other, LOCAL, {}, b"{}", resolve=here, tls=trusted) == Outcome("tls_failed")
        assert len(receiver.received) == 1


def self_signed(name: str, folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A context that believes a fresh certificate for a name, and one that shows it."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    shown = folder / "certificate.pem"
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    shown.write_bytes(secret + certificate.public_bytes(Encoding.PEM))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(shown)
    return ssl.create_default_context(cadata=certificate.public_bytes(Encoding.PEM).decode()), server
