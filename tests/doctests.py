"""Look for doctests only in the files that have one.

To find that a file has none, pytest would import it and look at all that it defines. Most files have none, and each
process of the tests would look at all of them.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule

PROMPT = b">>> "


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    collected = yield
    return [each for each in collected if not isinstance(each, DoctestModule) or PROMPT in file_path.read_bytes()]
