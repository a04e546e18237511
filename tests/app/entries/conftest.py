"""The client of the runs' tests."""

from tests.app.runs.conftest import service

__all__ = ["service"]
