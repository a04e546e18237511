"""How campaigns print what they counted."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

Say = Callable[[object], None]


@pytest.fixture
def say(request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]) -> Say:
    """Print what was counted to the terminal, which is the standard error of a worker process of pytest, too."""

    def print_line(outcome: object) -> None:
        with capfd.disabled():
            sys.stderr.write(f"\n{request.node.name}: {outcome}\n")

    return print_line
