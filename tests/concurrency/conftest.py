"""An event loop like a server's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal


@pytest.fixture
def loop() -> Iterator[BlockingPortal]:
    """It runs in a thread of its own."""
    with start_blocking_portal() as portal:
        yield portal
