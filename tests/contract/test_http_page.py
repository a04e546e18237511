"""The page of endpoints is the committed one, and has every operation with the scopes that it asks for."""

from __future__ import annotations

import re

from app.auth.principal import Scope
from docs.reference.http_pages import PAGE, allowed, documented_routes, http_page
from tests.app.test_scopes_of_routes import ALLOWED, OPEN

LINE = re.compile(r"^\| `(\w+) (/[^`]*)`", re.MULTILINE)


def test_the_generated_page_is_the_committed_one() -> None:
    assert PAGE.read_text() == http_page(), "run: make docs"


def test_every_operation_has_a_line_and_every_line_says_what_it_does() -> None:
    shown = LINE.findall(PAGE.read_text())
    served = [(method, route.path) for route in documented_routes() for method in route.methods]
    assert sorted(shown) == sorted(served)
    assert not re.search(r"\| +\|", PAGE.read_text())


def test_the_scopes_of_the_routes_are_those_that_keys_were_tried_with() -> None:
    for route in documented_routes():
        scopes = allowed(route)
        assert (scopes is None) == (route.name in OPEN), route.name
        if scopes is not None:
            assert scopes | {Scope.ADMIN} == ALLOWED[route.name] | {Scope.ADMIN}, route.name
