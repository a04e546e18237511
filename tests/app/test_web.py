"""The documentation page: ours to the last byte, no other machine, no script in the page."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import urljoin

from starlette.testclient import TestClient

from app.web.docs import CONTENT_SECURITY_POLICY, STATIC

VENDORED = STATIC / "swagger-ui"


def test_the_start_is_a_page_that_leads_to_the_documentation(reader: TestClient) -> None:
    response = reader.get("/", follow_redirects=False)
    assert (response.status_code, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert 'href="/docs"' in response.text


def test_the_page_has_a_strict_policy_and_no_script_in_it(reader: TestClient) -> None:
    response = reader.get("/docs")
    assert response.status_code == 200
    assert response.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "script-src 'self';" in CONTENT_SECURITY_POLICY
    assert "unsafe-eval" not in CONTENT_SECURITY_POLICY
    for attributes, content in re.findall(r"<script([^>]*)>(.*?)</script>", response.text, re.DOTALL):
        assert "src=" in attributes
        assert not content.strip()
    assert not re.findall(r"<style|\son[a-z]+=|\sstyle=", response.text)


def test_every_address_of_the_page_is_ours_and_answers(reader: TestClient) -> None:
    page = reader.get("/docs").text
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert len(addresses) >= 5
    for address in (each for each in addresses if not each.startswith("#")):
        # Relative, so that they are ours below a path of a proxy, too.
        assert re.match(r"[a-z./]", address)
        assert "//" not in address
        assert not address.startswith("/")
        assert reader.get(urljoin("/docs", address)).status_code == 200, address


def test_every_place_in_the_page_that_a_link_leads_to_is_there(reader: TestClient) -> None:
    page = reader.get("/docs").text
    document = reader.get("/openapi.json").json()
    operations = {
        f"#/{operation['tags'][0]}/{operation['operationId']}"
        for item in document["paths"].values()
        for operation in item.values()
    }
    places = {f"#{name}" for name in re.findall(r'id="([^"]*)"', page)} | operations
    links = re.findall(r'href="(#[^"]*)"', page)
    assert len(links) >= 5
    assert set(links) <= places


def test_our_own_files_name_no_other_machine() -> None:
    for name in ("docs.html", "docs.css", "docs.js"):
        assert not re.search(r"https?://|\W//[a-z]+\.[a-z]", (STATIC / name).read_text()), name
    assert "validatorUrl: null" in (STATIC / "docs.js").read_text()


def test_the_vendored_files_are_the_ones_that_were_released() -> None:
    sums = dict(line.split()[::-1] for line in (VENDORED / "SHA256SUMS").read_text().splitlines())
    present = {path.name for path in VENDORED.iterdir()} - {"README.md", "SHA256SUMS"}
    assert present == set(sums)
    for name, digest in sums.items():
        assert hashlib.sha256((VENDORED / name).read_bytes()).hexdigest() == digest, name


def test_there_is_no_second_documentation(reader: TestClient) -> None:
    assert reader.get("/redoc").status_code == 404
