"""Every page: valid, strict about what may run in it, made of files of ours, and silent about what it was sent."""

from __future__ import annotations

import hashlib
import re

import pytest
from starlette.testclient import TestClient

from app.dashboard.asking import Answer
from app.dashboard.formulas import formula
from app.dashboard.pages import ASSETS, CONTENT_SECURITY_POLICY, GROUPS, STATIC
from tests.app.conftest import ConnectAs
from tests.app.dashboard.documents import Document
from tests.databases import on_one_engine

HTMX = STATIC / "htmx"
LINKS = [link for links in GROUPS.values() for link in links]
PAGES = [address for address, _ in LINKS if address != "/docs"]
HOSTILE = "\"'><script>alert(1)</script>{{ 7001 * 7001 }}"


@pytest.mark.parametrize("path", [*PAGES, "/dashboard/algorithms/dp_svrg_pp"])
def test_a_page_is_valid_and_may_do_nothing_but_be_read(reader: TestClient, path: str) -> None:
    response = reader.get(path)
    assert (response.status_code, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert response.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert response.headers["cache-control"] == "no-store"
    document = Document(response.text)
    assert document.faults == []
    assert document.all("html", lang="en")
    assert [link.text for link in document.all("a", aria_current="page")] in (
        [[name for address, name in LINKS if address == path]] if path in PAGES else [["Algorithms"]]
    )
    assert document.all("a", href="#content"), "a way past the navigation"


def test_the_policy_allows_no_script_in_a_page_and_nothing_from_elsewhere() -> None:
    allowed = dict(part.split(" ", 1) for part in CONTENT_SECURITY_POLICY.split("; "))
    assert allowed["default-src"] == "'none'"
    assert {allowed[name] for name in ("script-src", "style-src", "connect-src", "form-action")} == {"'self'"}
    assert {allowed["frame-ancestors"], allowed["base-uri"]} == {"'none'"}
    assert "unsafe" not in CONTENT_SECURITY_POLICY


@pytest.mark.parametrize("path", PAGES)
def test_every_file_of_a_page_is_ours_and_there(reader: TestClient, path: str) -> None:
    addresses = re.findall(r'<(?:link|script)[^>]* (?:href|src)="([^"]*)"', reader.get(path).text)
    assert len(addresses) == 4
    for address in addresses:
        assert address.startswith(f"{ASSETS}/")
        found = reader.get(address)
        assert found.status_code == 200, address
        assert found.headers.get("cache-control") != "no-store"


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.one_in(8)
def test_what_is_sent_to_a_page_is_only_ever_text_in_it(reader: TestClient, path: str) -> None:
    names = re.findall(r'<(?:input|select)[^>]* name="([^"]*)"', reader.get(path).text)
    for name in {*names, "cursor", "next", HOSTILE}:
        response = reader.get(path, params={"algorithm": "dp_sgd", name: HOSTILE})
        assert "<script>alert" not in response.text, name
        assert "49014001" not in response.text, name
        if response.headers["content-type"].startswith("text/html"):
            assert Document(response.text).faults == [], name


def test_a_page_of_an_algorithm_shows_all_that_is_known_of_it(reader: TestClient) -> None:
    known = reader.get("/v1/algorithms/dp_svrg_pp").json()
    source = reader.get("/dashboard/algorithms/dp_svrg_pp").text
    text = Document(source).all("main")[0].text
    for name in ("summary", "source", "guarantee", "verdict"):
        assert known[name] in text, name
    # A member that is called as a method of dictionaries is among them.
    for name in ("update", "gradient_complexity"):
        assert formula(known[name]) in source, name
    for each in known["assumptions"]:
        assert each["meaning"] in text
    for erratum in known["errata"]:
        assert erratum in text


def test_a_page_that_is_refused_says_why(reader: TestClient) -> None:
    response = reader.get("/dashboard/algorithms/nothing")
    assert response.status_code == 404
    document = Document(response.text)
    assert document.faults == []
    assert "There is no algorithm with the id 'nothing'." in document.all("main")[0].text
    assert response.headers["x-request-id"] in response.text, "to be found in the log"


def test_an_address_of_no_page_is_a_page_that_says_so(reader: TestClient) -> None:
    response = reader.get("/dashboard/nothing/there?x=<script>")
    assert response.status_code == 404
    document = Document(response.text)
    assert document.faults == []
    assert "There is nothing at this path." in document.all("main")[0].text
    assert reader.get("/dashboard/assets/nothing.css").status_code == 404


def test_the_vendored_script_is_the_one_that_was_released() -> None:
    sums = dict(line.split()[::-1] for line in (HTMX / "SHA256SUMS").read_text().splitlines())
    present = {path.name for path in HTMX.iterdir()} - {"README.md", "SHA256SUMS", "LICENSE"}
    assert present <= set(sums)
    for name, digest in sums.items():
        assert hashlib.sha256((HTMX / name).read_bytes()).hexdigest() == digest, name


@on_one_engine
def test_a_page_of_another_machine_is_refused_while_there_is_no_key(connect: ConnectAs) -> None:
    assert connect(peer=("10.0.0.1", 1)).get("/").status_code == 403
    assert connect().get("/", headers={"Host": "evil.example"}).status_code == 403


def test_routes_of_pages_are_told_by_their_templates(reader: TestClient) -> None:
    reader.get("/dashboard/algorithms/dp_gd")
    metrics = reader.get("/metrics").text
    assert 'route="/dashboard/algorithms/{name}"' in metrics
    assert "dp_gd" not in metrics


def test_faults_below_a_pointer_are_found_and_neighbours_are_not() -> None:
    errors = [
        {"pointer": "/target/epsilon", "detail": "one"},
        {"pointer": "/target", "detail": "two"},
        {"pointer": "/targets", "detail": "three"},
    ]
    answer = Answer(422, {"errors": errors})
    assert answer.faults("/target") == ["one", "two"]
    assert answer.faults("/target/epsilon", "/targets") == ["one", "three"]
    assert not answer.is_good
    assert Answer(404, {}).faults("/target") == []
