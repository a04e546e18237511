"""Arithmetic of tests that compare balls of numbers with exact values."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flint import ctx


@pytest.fixture
def precise() -> Iterator[None]:
    """Balls of 160 bits."""
    before = ctx.prec
    ctx.prec = 160
    yield
    ctx.prec = before
