"""The configurations of docs/operating/proxies with the real nginx and Caddy: what a browser and a client see through
them, and what whoever wants in tries. `tests/app/web/test_forwarding.py` is the shorter relative.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from app.context import utc_now
from tests.app.datasets.declarations import CSV, metadata
from tests.contract.documents import DOCS
from tests.e2e.server import ROOT, Api

pytestmark = pytest.mark.thorough

CONFIGURATIONS = DOCS / "operating" / "proxies"
FAILURES = 3
PATIENCE_S = 60


@dataclass
class Front:
    """A proxy with a service behind it.

    Attributes:
        base: What browsers know, without a slash at the end.
        port: Of the proxy.
        authority: That the proxy's certificate is under.
        token: Of a key with every right.
        direct: The service itself.
    """

    base: str
    port: int
    authority: ssl.SSLContext
    token: str
    direct: str

    @property
    def path(self) -> str:
        return self.base.partition("localhost")[2].partition("/")[2]

    def client(self, **options: Any) -> httpx2.Client:
        return httpx2.Client(base_url=self.base, verify=self.authority, timeout=PATIENCE_S, **options)

    def raw(self, sent: bytes) -> bytes:
        """Everything that comes back for these bytes, until the proxy has nothing more to say."""
        received = b""
        with (
            socket.create_connection(("127.0.0.1", self.port), 10) as plain,
            self.authority.wrap_socket(plain, server_hostname="localhost") as connection,
            suppress(TimeoutError, ssl.SSLError, ConnectionResetError),
        ):
            connection.settimeout(1)
            connection.sendall(sent)
            while part := connection.recv(65536):
                received += part
        return received


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def certify(folder: Path) -> ssl.SSLContext:
    """A certificate for localhost, signed by itself."""
    key, now = ec.generate_private_key(ec.SECP256R1()), utc_now()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=12))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(Encoding.PEM)
    (folder / "certificate.pem").write_bytes(pem)
    (folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return ssl.create_default_context(cadata=pem.decode())


def adapted(name: str, folder: Path, port: int, service: int) -> str:
    """A configuration of the page with a test's names, ports and files."""
    text = (CONFIGURATIONS / name).read_text()
    for host in ("privacy.example", "example.org"):
        text = text.replace(f"{host} {{", f"localhost:{port} {{").replace(
            f"server_name {host}", "server_name localhost"
        )
    text = text.replace("/etc/ssl/epsilond", str(folder)).replace("127.0.0.1:8000", f"127.0.0.1:{service}")
    return text.replace("listen 443", f"listen 127.0.0.1:{port}")


def nginx(folder: Path, port: int, service: int, below: bool) -> list[str]:
    site = adapted("nginx.conf", folder, port, service)
    if below:
        own = site.index("    location / {")
        site = site[:own] + adapted("nginx_below_a_path.conf", folder, port, service) + "}\n"
    places = "\n".join(
        f"{each}_temp_path {folder / each};" for each in ("client_body", "proxy", "fastcgi", "scgi", "uwsgi")
    )
    # As Debian's own nginx.conf, but for the places of files.
    main = f"daemon off; pid {folder / 'pid'}; events {{}} http {{ access_log off; {places}\n{site}\n}}\n"
    (folder / "main.conf").write_text(main)
    return ["nginx", "-e", str(folder / "error.log"), "-p", str(folder), "-c", str(folder / "main.conf")]


def caddy(folder: Path, port: int, service: int, below: bool) -> list[str]:
    site = adapted("Caddyfile_below_a_path" if below else "Caddyfile", folder, port, service)
    (folder / "Caddyfile").write_text(f"{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{site}")
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


@contextmanager
def running(command: list[str], folder: Path, environment: dict[str, str], port: int) -> Iterator[None]:
    """A program until the block ends, from when it listens."""
    log = folder / f"{Path(command[0]).name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((nginx, True), id="nginx below a path"),
        pytest.param((caddy, False), id="caddy"),
        # The other half of each: the same service, behind files that share most of their lines.
        pytest.param((nginx, False), id="nginx", marks=pytest.mark.soak),
        pytest.param((caddy, True), id="caddy below a path", marks=pytest.mark.soak),
    ],
)
def front(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    configure, below = request.param
    program = configure.__name__
    path = shutil.which(program, path="/usr/sbin:/usr/bin:/usr/local/bin")
    if path is None:
        pytest.skip(f"{program} is missing: apt install nginx-light caddy")
    folder = tmp_path_factory.mktemp(program)
    port, service = free_port(), free_port()
    authority = certify(folder)
    base = f"https://localhost:{port}" + ("/epsilond" if below else "")
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "EPSILOND_PORT": str(service),
        "EPSILOND_DATA_DIR": str(folder / "data"),
        "EPSILOND_PUBLIC_URL": base,
        "EPSILOND_TRUSTED_PROXIES": "127.0.0.1/32",
        "EPSILOND_FAILED_AUTHENTICATIONS_PER_MINUTE": str(FAILURES),
        "EPSILOND_CHECKPOINT_INTERVAL_S": "1",
    }
    command = [sys.executable, "-m", "app"]
    proxy = [path, *configure(folder, port, service, below)[1:]]
    with (
        running([*command, "serve", "--migrate"], folder, environment, service),
        running(proxy, folder, {"HOME": str(folder), "PATH": "/usr/bin"}, port),
    ):
        with httpx2.Client(base_url=base, verify=authority) as client:
            refused = client.get("/v1/algorithms", headers={"Host": "localhost"})
            assert (refused.status_code, refused.json()["code"]) == (403, "loopback_only"), "there is no key yet"
        made = subprocess.run(
            [*command, "keys", "create", "--name", "first", "--scope", "admin", "--json"],
            cwd=ROOT,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        time.sleep(1.5)  # the server believes for a second that there is no key
        yield Front(base, port, authority, json.loads(made.stdout)["token"], f"http://127.0.0.1:{service}")


@pytest.fixture
def signed_in(front: Front) -> Iterator[httpx2.Client]:
    with front.client() as client:
        origin = front.base.removesuffix("/epsilond")
        answer = client.post("/dashboard/sign-in", data={"key": front.token}, headers={"Origin": origin})
        assert answer.status_code == 303, answer.text
        below = front.base != origin
        assert answer.headers["location"] == ("/epsilond/dashboard" if below else "/dashboard")
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Secure-epsilond_session=" if below else "__Host-epsilond_session=")
        assert all(part in cookie for part in ("; Secure", "; HttpOnly", "; SameSite=strict"))
        assert f"; Path={'/epsilond' if below else '/'};" in cookie
        client.headers["Origin"] = origin
        yield client


def api_of(front: Front, client: httpx2.Client) -> Api:
    client.headers["Authorization"] = f"Bearer {front.token}"
    return Api(client)


def test_every_page_and_all_that_it_links_to_is_found(front: Front, signed_in: httpx2.Client) -> None:
    start = signed_in.get(f"{front.base}/")
    assert start.status_code == 200
    addresses = {urljoin(str(start.url), each) for each in re.findall(r'(?:href|src)="([^"#]+)"', start.text)}
    assert len(addresses) > 12
    docs = signed_in.get(f"{front.base}/docs")
    addresses |= {urljoin(str(docs.url), each) for each in re.findall(r'(?:href|src)="([^"#]+)"', docs.text)}
    for address in addresses:
        assert address.startswith(f"{front.base}/"), address
        answer = signed_in.get(address, follow_redirects=True)
        assert answer.status_code == 200, address
        assert str(answer.url).startswith(f"{front.base}/"), address


def test_commands_are_taken_from_the_public_address_alone(front: Front, signed_in: httpx2.Client) -> None:
    spoofed = {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https", "Forwarded": "host=evil.example"}
    for origin in ("https://evil.example", "null", front.direct, "https://localhost"):
        answer = signed_in.post("/dashboard/sign-out", headers={"Origin": origin} | spoofed)
        assert answer.status_code == 403, origin
    answer = signed_in.post("/dashboard/sign-out")
    assert answer.status_code == 303
    assert all(
        "expires=Thu, 01 Jan 1970" in each or "Max-Age=0" in each for each in answer.headers.get_list("set-cookie")
    )


def test_nobody_is_led_elsewhere_by_a_header(front: Front) -> None:
    names = (
        "X-Forwarded-Host",
        "X-Forwarded-Prefix",
        "X-Forwarded-Proto",
        "X-Original-URL",
        "X-Rewrite-URL",
        "Forwarded",
    )
    with front.client() as client:
        plain = client.get("/dashboard/runs")
        for name in names:
            assert (
                client.get("/dashboard/runs", headers={name: "//evil.example/x"}).headers["location"]
                == plain.headers["location"]
            )


def attempt(client: httpx2.Client, spoofed: str) -> int:
    headers = {"Authorization": "Bearer epsilond_no", "X-Forwarded-For": spoofed, "X-Real-IP": spoofed}
    return client.get("/v1/keys/self", headers=headers).status_code


def test_attempts_are_counted_by_who_is_connected_and_not_by_what_is_written(front: Front) -> None:
    def at(address: str) -> httpx2.Client:
        return front.client(transport=httpx2.HTTPTransport(local_address=address, verify=front.authority))

    with at("127.0.0.9") as attacker, at("127.0.0.8") as somebody:
        found = [attempt(attacker, f"198.51.100.{number}") for number in range(FAILURES + 1)]
        assert found == [401] * FAILURES + [429]
        assert attempt(somebody, "198.51.100.1") == 401, "another address of the same proxy"
        good = attacker.get("/v1/keys/self", headers={"Authorization": f"Bearer {front.token}"})
        assert good.status_code == 200


def test_progress_is_seen_as_it_happens(front: Front) -> None:
    request = {
        "algorithm": "dp_sgd",
        "dataset_id": "ds_digits",
        "model": {"kind": "softmax_regression"},
        "iterations": 6000,
        "sampling": "full_batch",
        "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
        "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5},
        "hyperparameters": {"step_size": 0.5},
    }
    with front.client() as client:
        api = api_of(front, client)
        created = api.post("/v1/runs", request)
        assert created.status_code == 202, created.text
        run = created.json()["id"]
        assert created.headers["location"] == f"/{front.path}/v1/runs/{run}".replace("//", "/")
        with client.stream("GET", f"/v1/runs/{run}/events") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            moments = [(time.monotonic(), line) for line in stream.iter_lines() if line.startswith("event:")]
        assert moments[-1][1] == "event: end"
        assert moments[-1][0] - moments[0][0] > 0.3, "all of it came at once, at the end"
        assert len(moments) > 2


def test_an_upload_is_larger_than_what_proxies_take_by_themselves(front: Front) -> None:
    # nginx takes 1 MB unless it is told otherwise.
    name, *rows = CSV.decode().splitlines()
    many = "\n".join([name, *(rows * 75_000)])
    assert len(many) > 1_500_000
    described = json.dumps(metadata(declared_size=150_000))
    with front.client() as client:
        client.headers["Authorization"] = f"Bearer {front.token}"
        files = {"metadata": (None, described, "application/json"), "file": ("d.csv", many, "text/csv")}
        answer = client.post("/v1/datasets", files=files, headers={"Idempotency-Key": "u"})
        # The service itself has read all of it.
        assert answer.status_code == 201, answer.text


def lines(front: Front, *headers: str, target: str = "/v1/convert", method: str = "POST", body: str = "") -> bytes:
    target = f"/{front.path}{target}".replace("//", "/")
    return "\r\n".join([f"{method} {target} HTTP/1.1", "Host: localhost", *headers, "", body]).encode()


#: A second request in the body of a first one: what says how long that is, and the body before it.
SMUGGLING: dict[str, tuple[list[str], str]] = {
    "length and chunks": (["Content-Length: {n}", "Transfer-Encoding: chunked"], "0\r\n\r\n{inner}"),
    "chunks and length": (["Transfer-Encoding: chunked", "Content-Length: 4"], "5c\r\n{inner}\r\n0\r\n\r\n"),
    "two lengths": (["Content-Length: 0", "Content-Length: {n}"], "{inner}"),
    "a list of lengths": (["Content-Length: 0, {n}"], "{inner}"),
    "a blank before the colon": (["Content-Length: {n}", "Transfer-Encoding : chunked"], "0\r\n\r\n{inner}"),
    "a tab": (["Content-Length: {n}", "Transfer-Encoding:\tchunked"], "0\r\n\r\n{inner}"),
    "a folded line": (["Content-Length: {n}", "Transfer-Encoding:", " chunked"], "0\r\n\r\n{inner}"),
    "another coding": (["Content-Length: {n}", "Transfer-Encoding: xchunked"], "0\r\n\r\n{inner}"),
    "two codings": (
        ["Content-Length: {n}", "Transfer-Encoding: identity", "Transfer-Encoding: chunked"],
        "0\r\n\r\n{inner}",
    ),
    "an underscore": (["Content_Length: 0", "Content-Length: {n}"], "{inner}"),
    "a plus": (["Content-Length: +0", "X: {n}"], "{inner}"),
    "a lone line feed": (["X: a\nTransfer-Encoding: chunked", "Content-Length: {n}"], "0\r\n\r\n{inner}"),
    "an extension of a chunk": (["Transfer-Encoding: chunked"], "0;a=\n\r\n\r\n{inner}"),
}


@pytest.mark.parametrize("way", SMUGGLING)
def test_nothing_is_smuggled(front: Front, way: str) -> None:
    """No answer of the service goes to another request than its own: whoever asks next gets what they asked for."""
    inner = lines(front, method="GET", target="/v1/smuggled").decode()
    headers, body = SMUGGLING[way]
    body = body.replace("{inner}", inner)
    sent = lines(front, *(each.replace("{n}", str(len(body))) for each in headers), body=body)
    received = front.raw(sent)
    statuses = re.findall(rb"HTTP/1\.1 (\d{3})", received)
    # A second answer is that to the bytes behind the end of the first request, which the proxy saw as a request, too.
    assert all(status[:1] in (b"4", b"5") for status in statuses), received[:300]
    assert len(statuses) <= 2
    with front.client() as client:
        for _ in range(20):
            answer = client.get("/health/live")
            assert answer.status_code == 200
            assert "smuggled" not in answer.text


def test_another_name_is_not_answered(front: Front) -> None:
    """By its certificate, or by nothing: a site of the same proxy never leads here."""
    with socket.create_connection(("127.0.0.1", front.port), 10) as plain:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            with context.wrap_socket(plain, server_hostname="evil.example") as connection:
                connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
                assert b'"ok"' not in connection.recv(65536)
        except (ssl.SSLError, ConnectionError):
            pass
