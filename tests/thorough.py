"""Which cases of a test with many are left to `make test-all`.

- A test that runs on both databases runs on one of them in `make test`, and on the other in `make test-all`. Of three,
  one runs on PostgreSQL in `make test`, where a test costs half as much again.
- The marker ``one_in(n)`` is for a test whose cases show one thing many times. One of n cases runs in `make test`, and
  the others are thorough.

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
        if _is_thorough(item):
            continue
        test, marker = item.nodeid.partition("[")[0], item.get_closest_marker("one_in")
        if marker is not None and test in tests and _number(item.nodeid) % marker.args[0]:
            item.add_marker(pytest.mark.thorough)
        tests.add(test)


def _on_one_database(items: list[pytest.Item]) -> None:
    """Leave one of the two databases of each case to `make test-all`."""
    cases = defaultdict(list)
    for item in items:
        databases = item.callspec.params.get("databases") if hasattr(item, "callspec") else None
        if databases in ENGINES and not _is_thorough(item):
            cases[item.nodeid.replace(databases, "")].append(item)
    for name, on_each in cases.items():
        if len(on_each) == len(ENGINES):
            left_out = ENGINES[0 if _number(name) % 3 == 0 else 1]
            next(item for item in on_each if item.callspec.params["databases"] == left_out).add_marker(
                pytest.mark.thorough
            )


def _is_thorough(item: pytest.Item) -> bool:
    return item.get_closest_marker("thorough") is not None


def _number(name: str) -> int:
    return zlib.crc32(name.encode())
