"""Leave some cases of a test that has many to `make test-all`, and some to `make soak`.

- A test that runs on both databases runs on one of them in `make test`, and on the other in `make test-all`. Of three,
  one runs on PostgreSQL in `make test`, where a test costs half as much again. A thorough one runs on one of them in
  `make test-all`, and on the other in `make soak`.
- The marker ``one_in(n)`` is for a test whose cases show one thing many times. One of n cases runs in `make test`.
  Of the others one in three is thorough, and two are left to `make soak`.

A case's name decides, so that it stays where it is when others come and go. Of every test at least one case runs in
`make test`.
"""

from __future__ import annotations

import zlib
from collections import defaultdict

import pytest

from tests.databases import ENGINES


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases before pytest selects by markers."""
    _on_one_database(items)
    tests: set[str] = set()
    for item in items:
        markers = {marker.name: marker for marker in item.iter_markers()}
        if "one_in" not in markers:
            continue
        test, number, n = item.nodeid.partition("[")[0], _number(item.nodeid), markers["one_in"].args[0]
        if "thorough" in markers or (test in tests and number % n):
            item.add_marker(pytest.mark.soak if number // n % 3 else pytest.mark.thorough)
        else:
            tests.add(test)


def _on_one_database(items: list[pytest.Item]) -> None:
    """Leave one of the two databases of each case to `make test-all`."""
    cases = defaultdict(list)
    for item in items:
        databases = item.callspec.params.get("databases") if hasattr(item, "callspec") else None
        if databases in ENGINES:
            cases[item.nodeid.replace(databases, "")].append(item)
    for name, on_each in cases.items():
        if len(on_each) == len(ENGINES):
            left_out = ENGINES[0 if _number(name) % 3 == 0 else 1]
            item = next(each for each in on_each if each.callspec.params["databases"] == left_out)
            item.add_marker(pytest.mark.soak if _is_thorough(item) else pytest.mark.thorough)


def _is_thorough(item: pytest.Item) -> bool:
    return item.get_closest_marker("thorough") is not None


def _number(name: str) -> int:
    return zlib.crc32(name.encode())
