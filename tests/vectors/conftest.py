"""The application's fixtures, for tests outside its folder."""

from __future__ import annotations

from tests.app.conftest import reader

__all__ = ["reader"]
