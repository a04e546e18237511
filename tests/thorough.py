"""Which cases of a test with many are left to `make test-all`.

The marker ``one_in(n)`` is for a test whose cases show one thing many times. One of n cases runs in `make test`, and
the others are thorough. A case's name decides, so that it stays where it is when others come and go. The first case of
a test always runs.
"""

from __future__ import annotations

import zlib

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases before pytest selects by markers."""
    tests: set[str] = set()
    for item in items:
        test = item.nodeid.partition("[")[0]
        marker = item.get_closest_marker("one_in")
        if marker is not None and test in tests and zlib.crc32(item.nodeid.encode()) % marker.args[0]:
            item.add_marker(pytest.mark.thorough)
        tests.add(test)
