"""A clock that the test turns by hand."""

from __future__ import annotations

from tests.app.budgets.conftest import api, clock, context

__all__ = ["api", "clock", "context"]
