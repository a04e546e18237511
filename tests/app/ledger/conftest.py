"""A clock that the test turns by hand."""

from __future__ import annotations

from tests.app.budgets.conftest import api, api_of, clock, context

__all__ = ["api", "api_of", "clock", "context"]
