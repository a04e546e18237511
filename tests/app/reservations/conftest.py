"""The fixtures of budgets: a clock that the test turns by hand, and an auditor at the end."""

from __future__ import annotations

from tests.app.budgets.conftest import api, api_of, clock, context

__all__ = ["api", "api_of", "clock", "context"]
